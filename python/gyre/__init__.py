"""Gyre: distributed training over many processes and machines. Its parts are modules: gyre.torch, gyre.distributed …"""

from gyre.core.metrics import log
from gyre.errors import Error
from gyre.launch.function import RunError, run

__all__ = ["Error", "RunError", "__version__", "log", "run"]

__version__ = "0.1.0"
