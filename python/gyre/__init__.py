"""Gyre: distributed training over many processes and machines. The parts are modules: gyre.torch, gyre.datasets, …"""

__version__ = "0.1.0"
