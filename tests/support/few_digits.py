"""The first digits of each file: enough to see that training works, few enough to be quick."""

from __future__ import annotations

from gyre import datasets

IMAGES_PER_FILE = 40


def few_digits() -> dict[str, bytes]:
    full = datasets.digits()
    train_count = IMAGES_PER_FILE * datasets.TRAIN_FILES
    few = datasets.Dataset(
        full.train_images[:train_count],
        full.train_labels[:train_count],
        full.test_images[:IMAGES_PER_FILE],
        full.test_labels[:IMAGES_PER_FILE],
        full.label_names,
    )
    return datasets.cifar10_files(few)
