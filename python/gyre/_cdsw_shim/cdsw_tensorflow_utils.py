"""The platform's utility for clusters of TensorFlow, run by Gyre; see gyre.cdsw."""

from gyre.workers import run_cluster, tensorboard

__all__ = ["run_cluster", "tensorboard"]


def __getattr__(name: str) -> object:
    raise AttributeError(f"Gyre's cdsw_tensorflow_utils has {' and '.join(__all__)} only, not {name}")
