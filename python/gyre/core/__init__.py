"""The extension module `_core` (C++ engine). Nothing here is meant for users; they import `gyre.torch`."""
