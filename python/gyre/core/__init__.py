"""The extension module `_core` (C++ engine). Not for users, who import `gyre.torch`."""
