"""Synthetic images in ImageNet's layouts.

The images are drawn in C++ (gyre/data/synthetic_images.h): objects of one kind per class over a cloudy background,
JPEGs of about ImageNet's sizes in pixels and bytes. An image depends only on the seed, its set and its number.

Layouts: "tfrecord" has ImageNet's keys in files train-00000-of-00004 (labels from 1), "folder" one folder per class in
FOLDER/train and FOLDER/validation, "tar" webdataset's shards train-00000.tar (labels from 0), "parquet" the columns
of Hugging Face's image sets in train-00000-of-00004.parquet (needs pyarrow).
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from gyre.core import _core
from gyre.data import write_tfrecords
from gyre.datasets.errors import DatasetError
from gyre.errors import Error

LAYOUTS = ("tfrecord", "folder", "tar", "parquet")
ROWS_PER_GROUP = 128  # For Parquet: about 14 MB of images.
IMAGES_PER_SHARD = 512
_SETS = ("train", "validation")


@dataclass(frozen=True)
class Recipe:
    """What all images of a data set have in common."""

    seed: int = 0
    classes: int = 10
    size: int = 500

    def image(self, which: str, index: int) -> tuple[bytes, int, int, int]:
        """JPEG, label, width, height."""
        return _core.synthetic_image(self.seed, self.classes, self.size, _SETS.index(which), index)


def class_name(label: int) -> str:
    return f"n{label:08}"


def _write_tfrecords(path: Path, recipe: Recipe, which: str, indices: range) -> None:
    examples = []
    for index in indices:
        jpeg, label, width, height = recipe.image(which, index)
        name = class_name(label)
        examples.append(
            {
                "image/encoded": jpeg,
                "image/class/label": label + 1,
                "image/class/synset": name.encode(),
                "image/class/text": f"class {label}".encode(),
                "image/width": width,
                "image/height": height,
                "image/channels": 3,
                "image/colorspace": b"RGB",
                "image/format": b"JPEG",
                "image/filename": f"{name}_{index}.JPEG".encode(),
            }
        )
    write_tfrecords(path, examples)


def _write_tar(path: Path, recipe: Recipe, which: str, indices: range) -> None:
    with tarfile.open(path, "w") as archive:
        for index in indices:
            jpeg, label, _, _ = recipe.image(which, index)
            for ending, contents in (("jpg", jpeg), ("cls", str(label).encode())):
                member = tarfile.TarInfo(f"{index:08}.{ending}")
                member.size = len(contents)
                archive.addfile(member, io.BytesIO(contents))


def _write_parquet(path: Path, recipe: Recipe, which: str, indices: range) -> None:
    import pyarrow as pa  # noqa: PLC0415 - only this layout needs it
    import pyarrow.parquet as pq  # noqa: PLC0415

    images, labels = [], []
    for index in indices:
        jpeg, label, _, _ = recipe.image(which, index)
        images.append({"bytes": jpeg, "path": f"{class_name(label)}_{index}.JPEG"})
        labels.append(label)
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table({"image": pa.array(images, kind), "label": pa.array(labels, pa.int64())})
    pq.write_table(table, path, row_group_size=ROWS_PER_GROUP)


def _write_folder(folder: Path, recipe: Recipe, which: str, indices: range) -> None:
    for index in indices:
        jpeg, label, _, _ = recipe.image(which, index)
        (folder / which / class_name(label) / f"{class_name(label)}_{index}.JPEG").write_bytes(jpeg)


def _write_shard(folder: Path, recipe: Recipe, layout: str, which: str, shard: int, shards: int, count: int) -> None:
    indices = range(shard * count // shards, (shard + 1) * count // shards)
    if layout == "tfrecord":
        _write_tfrecords(folder / f"{which}-{shard:05}-of-{shards:05}", recipe, which, indices)
    elif layout == "parquet":
        _write_parquet(folder / f"{which}-{shard:05}-of-{shards:05}.parquet", recipe, which, indices)
    elif layout == "tar":
        _write_tar(folder / f"{which}-{shard:05}.tar", recipe, which, indices)
    else:
        _write_folder(folder, recipe, which, indices)


def write_images(
    folder: Path,
    images: Mapping[str, int],
    recipe: Recipe,
    *,
    layout: str = "tfrecord",
    images_per_shard: int = IMAGES_PER_SHARD,
    threads: int | None = None,
) -> None:
    """Writes these numbers of images. DatasetError says what could not be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if layout == "folder":
            for which, count in images.items():
                for label in range(min(recipe.classes, count)):
                    (folder / which / class_name(label)).mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(threads or _core.usable_cores()) as pool:
            waiting = []
            for which, count in images.items():
                shards = -(-count // images_per_shard)
                for shard in range(shards):
                    waiting.append(pool.submit(_write_shard, folder, recipe, layout, which, shard, shards, count))
            for shard_written in waiting:
                shard_written.result()
    except ModuleNotFoundError as error:
        raise DatasetError("the layout 'parquet' needs pyarrow: pip install 'gyre-train[parquet]'") from error
    except (OSError, Error) as error:
        raise DatasetError(f"cannot write the images to {folder}: {error}") from error
