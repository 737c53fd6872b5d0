"""The workers API of newer platforms, run by Gyre; see gyre.cdsw."""

from gyre.workers import await_workers, launch_workers, list_workers, stop_workers

__all__ = ["await_workers", "launch_workers", "list_workers", "stop_workers"]
