"""Names of Horovod's that Gyre does not have: each use says why, in one sentence."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import NoReturn

NO_ELASTIC = (
    "Gyre has no elastic training: a job has the ranks it was started with, and ends when one of them fails. Keep "
    "checkpoints, and let `gyre run --max-restarts N` start the script anew (docs/guide/from_horovod.md)"
)
GRADIENT_AGGREGATION = "gradients of several passes are added up by DistributedOptimizer(backward_passes_per_step=N)"
TENSORFLOW_DATA = "there are no workers for tf.data; gyre.data.Loader reads ahead on threads (docs/guide/data.md)"


def explain_absent(module: str, absent: Mapping[str, str]) -> None:
    """From now on the AttributeError for a name that the module lacks says why, for those in `absent`. (Not by a
    `__getattr__` in its text: type checkers would then believe that it has every name.)"""

    def raise_attribute_error(name: str) -> NoReturn:
        reason = f": {absent[name]}" if name in absent else ""
        raise AttributeError(f"module '{module}' has no attribute '{name}'{reason}", name=name)

    sys.modules[module].__dict__["__getattr__"] = raise_attribute_error
