"""The platform's utility for clusters of TensorFlow, run by Gyre; see gyre.cdsw."""

from gyre.workers import run_cluster, tensorboard, tensorflow_worker_code

__all__ = ["run_cluster", "tensorboard", "tensorflow_worker_code"]


def __getattr__(name: str) -> object:
    raise AttributeError(f"Gyre's cdsw_tensorflow_utils has {', '.join(__all__)} only, not {name}")
