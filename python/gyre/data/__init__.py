"""Samples from files to batches, read ahead by C++ threads within a memory budget.

    from gyre.data import Loader, floats, raw

    loader = Loader(
        "cosmo/train/*.tfrecord*",
        {"x": raw("int16", (128, 128, 128, 4), dtype="float32", transform="log1p"), "y": floats(4)},
        batch_size=4,
    )
    for epoch in range(epochs):
        for batch in loader:
            loss = model(batch["x"]) - batch["y"]

Images are decoded, cropped, resized and normalised on the way:

    loader = Loader(
        "imagenet/train-*",
        {
            "image": image(224, augment=True, key="image/encoded"),
            "label": ints(key="image/class/label", offset=-1),
        },
        batch_size=256,
    )

The order of samples depends only on the seed and the epoch: it is the same for any number of ranks and threads, and
when a run resumes in the middle of an epoch (`state_dict`). Every rank gets the same number of batches.
"""

from gyre.data._fields import IMAGENET_MEAN, IMAGENET_STD, Field, Image, floats, image, ints, length, raw
from gyre.data._files import open_file
from gyre.data._ledger import StallLedger
from gyre.data._loader import Batch, Loader
from gyre.data._records import write_tfrecords

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "Batch",
    "Field",
    "Image",
    "Loader",
    "StallLedger",
    "floats",
    "image",
    "ints",
    "length",
    "open_file",
    "raw",
    "write_tfrecords",
]
