"""scikit-learn's 1,797 hand-written digits in the layouts of CIFAR-10.

They are enlarged from 8x8 to 32x32 pixels and three equal channels, and written in the binary layout
(DIR/cifar-10-batches-bin) and in the Python layout (DIR/cifar-10-batches-py). 1,500 are for training, 297 for testing;
the split and the files' bytes are always the same.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gyre.datasets.errors import DatasetError

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]

SIDE = 32
IMAGE_BYTES = 3 * SIDE * SIDE
CLASSES = 10
TRAIN_FILES = 5
DIGITS_TEST_COUNT = 297
SPLIT_SEED = 20240229


@dataclass(frozen=True)
class Dataset:
    """Images are n x 3072, plane-major (1024 red, 1024 green, 1024 blue); labels go from 0 to 9."""

    train_images: Images
    train_labels: Labels
    test_images: Images
    test_labels: Labels
    label_names: tuple[str, ...]


def digits() -> Dataset:
    """scikit-learn's scanned digits (the test part of UCI's optical recognition set), enlarged and split."""
    try:
        from sklearn.datasets import load_digits  # noqa: PLC0415 - only this data set needs it
    except ImportError as error:
        raise DatasetError(
            "the digits come with scikit-learn, which is not installed: pip install scikit-learn"
        ) from error
    bunch = load_digits()
    images = np.asarray(bunch.images, dtype=np.float64) / 16.0
    labels = np.asarray(bunch.target, dtype=np.int64)
    train, test = stratified_split(labels, DIGITS_TEST_COUNT, SPLIT_SEED)
    pixels = as_cifar10_images(images)
    names = tuple(str(digit) for digit in range(CLASSES))
    return Dataset(pixels[train], labels[train], pixels[test], labels[test], names)


def stratified_split(labels: Labels, test_count: int, seed: int) -> tuple[Labels, Labels]:
    """Indices for training and for testing, each class in (nearly) its share of both; both in shuffled order."""
    # PCG64's raw stream is guaranteed by numpy to stay the same; Generator.shuffle is not.
    keys = np.random.PCG64(seed).random_raw(len(labels))
    order = np.argsort(keys, kind="stable")
    counts = np.bincount(labels, minlength=CLASSES)
    quota = np.floor(counts * test_count / len(labels)).astype(np.int64)
    # The classes whose share was rounded down the most contribute one more, the lower class first.
    lost = counts * test_count / len(labels) - quota
    for index in np.argsort(-lost, kind="stable")[: test_count - int(quota.sum())]:
        quota[index] += 1
    taken = np.zeros(CLASSES, dtype=np.int64)
    is_test = np.zeros(len(labels), dtype=bool)
    for index in order:
        label = labels[index]
        if taken[label] < quota[label]:
            is_test[index] = True
            taken[label] += 1
    return order[~is_test[order]], order[is_test[order]]


def enlargement_matrix(small: int, large: int) -> npt.NDArray[np.float64]:
    """large x small: linear interpolation between pixel centres, with the edge pixel repeated outside."""
    position = (np.arange(large) + 0.5) * small / large - 0.5
    low = np.floor(position).astype(np.int64)
    weight = position - low
    matrix = np.zeros((large, small))
    rows = np.arange(large)
    np.add.at(matrix, (rows, np.clip(low, 0, small - 1)), 1.0 - weight)
    np.add.at(matrix, (rows, np.clip(low + 1, 0, small - 1)), weight)
    return matrix


def as_cifar10_images(grey: npt.NDArray[np.float64]) -> Images:
    """n x h x w with values from 0 to 1 -> n x 3072 bytes, three equal planes."""
    rows = enlargement_matrix(grey.shape[1], SIDE)
    columns = enlargement_matrix(grey.shape[2], SIDE)
    # einsum without optimize adds in one fixed order, so the bytes do not depend on a BLAS.
    tall = np.einsum("ys,nsx->nyx", rows, grey, optimize=False)
    large = np.einsum("nyx,zx->nyz", tall, columns, optimize=False)
    # 1/1024 keeps values that are exactly between two bytes from depending on the last bit of a sum.
    plane = np.floor(large * 255.0 + 0.5 + 2.0**-10).clip(0, 255).astype(np.uint8).reshape(len(grey), SIDE * SIDE)
    return np.tile(plane, (1, 3))


def binary_batch(images: Images, labels: Labels) -> bytes:
    """CIFAR-10's binary layout: one label byte and 3072 pixel bytes per image."""
    records = np.empty((len(images), 1 + IMAGE_BYTES), dtype=np.uint8)
    records[:, 0] = labels
    records[:, 1:] = images
    return records.tobytes()


class Python2Pickle:
    """Writes pickle protocol 2 as Python 2 wrote CIFAR-10's own files: str is a byte string.

    Python 3 cannot: its bytes come out as a call of _codecs.encode and its str as unicode, and then pickle.load(file,
    encoding="bytes") returns different keys than for the original files.
    """

    def __init__(self) -> None:
        self.result = bytearray(b"\x80\x02")

    def finish(self) -> bytes:
        return bytes(self.result + b".")

    def text(self, value: str | bytes) -> None:
        raw = value.encode("ascii") if isinstance(value, str) else value
        if len(raw) < 256:
            self.result += b"U" + struct.pack("<B", len(raw)) + raw
        else:
            self.result += b"T" + struct.pack("<I", len(raw)) + raw

    def integer(self, value: int) -> None:
        if 0 <= value < 256:
            self.result += b"K" + struct.pack("<B", value)
        elif 0 <= value < 65536:
            self.result += b"M" + struct.pack("<H", value)
        else:
            self.result += b"J" + struct.pack("<i", value)

    def list_of(self, write: Callable[[], None]) -> None:
        self.result += b"]("
        write()
        self.result += b"e"

    def dict_of(self, write: Callable[[], None]) -> None:
        self.result += b"}("
        write()
        self.result += b"u"

    def array(self, value: Images) -> None:
        """A two-dimensional uint8 array: numpy's reconstruct, then its state (version, shape, type, order, bytes)."""
        self.result += b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
        self.integer(0)
        self.result += b"\x85"
        self.text("b")
        self.result += b"\x87R("
        self.integer(1)
        self.integer(value.shape[0])
        self.integer(value.shape[1])
        self.result += b"\x86cnumpy\ndtype\n"
        self.text("u1")
        self.integer(0)
        self.integer(1)
        self.result += b"\x87R("
        self.integer(3)
        self.text("|")
        self.result += b"NNN"
        self.integer(-1)
        self.integer(-1)
        self.integer(0)
        self.result += b"tb\x89"
        self.text(value.tobytes())
        self.result += b"tb"


def python_batch(images: Images, labels: Labels, title: str, first_number: int) -> bytes:
    """CIFAR-10's Python layout: batch_label, labels, data, filenames."""
    pickle = Python2Pickle()

    def write_labels() -> None:
        for label in labels:
            pickle.integer(int(label))

    def write_names() -> None:
        for index, label in enumerate(labels):
            pickle.text(f"digit_{label}_s_{first_number + index:06d}.png")

    def write_entries() -> None:
        pickle.text("batch_label")
        pickle.text(title)
        pickle.text("labels")
        pickle.list_of(write_labels)
        pickle.text("data")
        pickle.array(images)
        pickle.text("filenames")
        pickle.list_of(write_names)

    pickle.dict_of(write_entries)
    return pickle.finish()


def python_meta(names: tuple[str, ...], images_per_file: int) -> bytes:
    pickle = Python2Pickle()

    def write_names() -> None:
        for name in names:
            pickle.text(name)

    def write_entries() -> None:
        pickle.text("num_cases_per_batch")
        pickle.integer(images_per_file)
        pickle.text("label_names")
        pickle.list_of(write_names)
        pickle.text("num_vis")
        pickle.integer(IMAGE_BYTES)

    pickle.dict_of(write_entries)
    return pickle.finish()


def cifar10_files(dataset: Dataset) -> dict[str, bytes]:
    """Every file of both layouts: path below the output folder -> content."""
    files: dict[str, bytes] = {}
    bounds = [len(dataset.train_images) * part // TRAIN_FILES for part in range(TRAIN_FILES + 1)]
    for part in range(TRAIN_FILES):
        span = slice(bounds[part], bounds[part + 1])
        images, labels = dataset.train_images[span], dataset.train_labels[span]
        title = f"training batch {part + 1} of {TRAIN_FILES}"
        files[f"cifar-10-batches-bin/data_batch_{part + 1}.bin"] = binary_batch(images, labels)
        files[f"cifar-10-batches-py/data_batch_{part + 1}"] = python_batch(images, labels, title, bounds[part])
    files["cifar-10-batches-bin/test_batch.bin"] = binary_batch(dataset.test_images, dataset.test_labels)
    files["cifar-10-batches-py/test_batch"] = python_batch(
        dataset.test_images, dataset.test_labels, "testing batch 1 of 1", len(dataset.train_images)
    )
    files["cifar-10-batches-bin/batches.meta.txt"] = ("\n".join(dataset.label_names) + "\n").encode("ascii")
    files["cifar-10-batches-py/batches.meta"] = python_meta(dataset.label_names, bounds[1])
    return files


def write_atomically(path: Path, content: bytes) -> bool:
    """True if the file was written, False if it already had this content. Readers never see a partial file."""
    if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return True


def write_dataset(dataset: Dataset, folder: Path) -> int:
    """Writes files that are missing or different; returns the number of files written."""
    try:
        return sum(write_atomically(folder / name, content) for name, content in cifar10_files(dataset).items())
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise DatasetError(f"cannot write the data set to {folder}: {error.strerror}{where}") from error
