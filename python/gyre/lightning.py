"""PyTorch Lightning's metrics in the file of `gyre run --metrics`:

    from gyre.lightning import MetricsLogger

    trainer = Trainer(logger=MetricsLogger(), …)

For `lightning` and `pytorch_lightning`, whichever the program has imported, else whichever is installed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

from gyre.core.metrics import log

__all__ = ["MetricsLogger"]


def _logger_class() -> Any:
    packages = ("lightning.pytorch", "pytorch_lightning")
    for name in sorted(packages, key=lambda package: package not in sys.modules):
        try:
            return importlib.import_module(f"{name}.loggers").Logger
        except ModuleNotFoundError as failure:
            if failure.name not in (name, name.partition(".")[0]):
                raise
    raise ImportError("gyre.lightning needs lightning or pytorch_lightning")


class MetricsLogger(_logger_class()):  # type: ignore[misc]
    """What Lightning logs goes to gyre.log: the numbers of rank 0, under Lightning's names and steps."""

    @property
    def name(self) -> str:
        return "gyre"

    @property
    def version(self) -> str:
        return ""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        log(metrics, step)

    def log_hyperparams(self, *arguments: Any, **named: Any) -> None:
        """Does nothing: the file has the command and the commit, from which they follow."""
