"""horovod.common.process_sets."""

from __future__ import annotations

from gyre._job.process_set_registry import add_process_set, remove_process_set
from gyre._job.process_sets import ProcessSet, global_process_set

__all__ = ["ProcessSet", "add_process_set", "global_process_set", "remove_process_set"]
