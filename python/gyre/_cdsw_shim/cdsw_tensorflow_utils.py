"""The platform's utility for clusters of TensorFlow, run by Gyre; see gyre.cdsw."""

from gyre.workers import run_cluster

__all__ = ["run_cluster"]
