"""The first digits of each file: enough to see that training works, few enough to be quick."""

from __future__ import annotations

from gyre.datasets import cifar10

IMAGES_PER_FILE = 40


def few_digits() -> dict[str, bytes]:
    full = cifar10.digits()
    train_count = IMAGES_PER_FILE * cifar10.TRAIN_FILES
    few = cifar10.Dataset(
        full.train_images[:train_count],
        full.train_labels[:train_count],
        full.test_images[:IMAGES_PER_FILE],
        full.test_labels[:IMAGES_PER_FILE],
        full.label_names,
    )
    return cifar10.cifar10_files(few)
