"""The workers API of the platform's module of this name, run by Gyre; see gyre.cdsw."""

from gyre.cdsw import warn_of_another_utility
from gyre.workers import await_workers, launch_workers, list_workers, stop_workers

__all__ = ["await_workers", "launch_workers", "list_workers", "stop_workers"]


def __getattr__(name: str) -> object:
    raise AttributeError(f"Gyre's cdsw has the workers API only ({', '.join(__all__)}), not {name}")


warn_of_another_utility()
