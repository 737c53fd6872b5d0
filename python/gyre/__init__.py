"""Gyre: distributed training over many processes and machines. The parts are modules: gyre.torch, gyre.datasets, …"""

from gyre.errors import Error

__all__ = ["Error", "__version__"]

__version__ = "0.1.0"
