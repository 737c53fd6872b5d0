"""Data sets in the layouts that the workloads read, made without a download.

    python -m gyre.datasets digits --out DIR    # real: scikit-learn's digits, as CIFAR-10
    python -m gyre.datasets cosmo --out DIR     # synthetic: dark-matter volumes, as CosmoFlow's TFRecords
    python -m gyre.datasets imagenet --out DIR  # synthetic: JPEGs in ImageNet's layouts

The files' contents depend only on the arguments, not on the number of processes that write them.
"""

from gyre.datasets.cifar10 import Dataset, digits
from gyre.datasets.command import main
from gyre.datasets.errors import DatasetError

__all__ = ["Dataset", "DatasetError", "digits", "main"]
