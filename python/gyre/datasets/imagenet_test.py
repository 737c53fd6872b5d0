"""Trainings and benchmarks without a download stand on these files: every layout must hold the same images, and they
must be learnable from parts of them."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image as Pillow
from torch import nn

from gyre.data import Loader, image, ints
from gyre.datasets import main

KEYS = {
    "tfrecord": ("image/encoded", "image/class/label", -1),
    "tar": ("jpg", "cls", 0),
    "folder": ("image", "label", 0),
    "parquet": ("image", "label", 0),
}


def fields(layout: str, size: int, augment: bool) -> dict[str, object]:
    picture, label, offset = KEYS[layout]
    return {
        "image": image(size, augment=augment, resize=round(size * 8 / 7), key=picture),
        "label": ints(key=label, offset=offset),
    }


def files(folder: Path, layout: str, which: str) -> Path:
    return folder / which if layout == "folder" else folder / f"{which}-*"


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Several of them only wait for each other, on so small a network."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imagenet")
    for layout in KEYS:
        arguments = f"imagenet --out {folder / layout} --train 240 --validation 60 --size 64 --layout {layout}"
        assert main([*arguments.split(), "--per-shard", "100"]) == 0
    return folder


def test_every_layout_holds_the_same_images(folder: Path) -> None:
    sums = {}
    for layout in KEYS:
        loader = Loader(files(folder / layout, layout, "train"), fields(layout, 32, False), batch_size=240)  # type: ignore[arg-type]
        batch = next(iter(loader))
        values = [image.double().sum().item() + 1e6 * label for image, label in zip(batch["image"], batch["label"])]  # noqa: B905
        sums[layout] = sorted(float(value) for value in values)
    assert sums["tfrecord"] == sums["tar"] == sums["folder"] == sums["parquet"]


def test_other_peoples_readers_find_the_same_images(folder: Path) -> None:
    """Python's tarfile, pyarrow and the file system: each with the image's name, whose class is the label."""
    in_folders = {path.name: path.read_bytes() for path in (folder / "folder" / "train").rglob("*.JPEG")}
    assert len(in_folders) == 240
    in_tables = {}
    for path in sorted((folder / "parquet").glob("train-*")):
        for row in pq.read_table(path).to_pylist():
            in_tables[row["image"]["path"]] = row["image"]["bytes"]
            assert row["image"]["path"].startswith(f"n{row['label']:08}_")
    assert in_tables == in_folders
    in_shards = []
    for path in sorted((folder / "tar").glob("train-*")):
        with tarfile.open(path) as shard:
            members = {member.name: shard.extractfile(member).read() for member in shard}  # type: ignore[union-attr]
        for name in [name for name in members if name.endswith(".jpg")]:
            label = int(members[name.removesuffix("jpg") + "cls"])
            in_shards.append((label, members[name]))
    assert sorted(in_shards) == sorted((int(name[1:9]), jpeg) for name, jpeg in in_folders.items())
    assert Pillow.open(io.BytesIO(in_shards[0][1])).format == "JPEG"


@pytest.mark.usefixtures("one_thread")
def test_a_small_network_tells_the_classes_apart_from_random_parts(folder: Path) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 16, 5, 2, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.AdaptiveMaxPool2d(1),
        nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    train = Loader(folder / "tfrecord" / "train-*", fields("tfrecord", 32, True), batch_size=24)  # type: ignore[arg-type]
    for _ in range(5):
        for batch in train:
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(network(batch["image"]), batch["label"]))
            optimizer.step()
    validation = Loader(folder / "tfrecord" / "validation-*", fields("tfrecord", 32, False), batch_size=60)  # type: ignore[arg-type]
    batch = next(iter(validation))
    right = (network(batch["image"]).argmax(1) == batch["label"]).float().mean()
    assert right > 0.7


def test_what_cannot_be_made_is_said_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["imagenet", "--out", str(tmp_path), "--classes", "2000"]) == 1
    assert "images of 2000 classes cannot be made; 1 to 1000 can" in capsys.readouterr().err
