"""Folders of images as people have them, from training to scores: with what desktops, notebooks and archive programs
leave in them, names in any script, links, and images of every kind that cameras and scanners write."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from gyre.core import _core
from PIL import Image as Pillow
from safetensors import safe_open

from gyre.data import write_tfrecords

SIDE = 12
# Each class is a colour, so that one epoch or two tell them apart.
COLOURS = {"Ägypten": (230, 200, 40), "cat & dog": (20, 30, 220), "日本": (240, 20, 20)}
IMAGES = 8  # Of each class.
LITTER = "3 hidden files, 2 hidden folders, 2 files that are not images (labels.csv, …)"


def run(*command: object, text: str | None = None) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    assert shutil.which(words[0]), f"{words[0]} is not on PATH: run ./dev build, or put build/release/bin there"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(words, capture_output=True, text=True, timeout=240, check=False, env=environment, input=text)


def train(
    data: Path, model: Path, *options: object, ranks: int = 1, epochs: int = 1, batch: int = 4
) -> subprocess.CompletedProcess[str]:
    launcher = ["gyre", "run", "-n", ranks, "--"] if ranks > 1 else []
    places = ("--data-dir", data, "--model-dir", model, "--image-size", SIDE)
    recipe = ("--batch-size", batch, "--epochs", epochs, "--lr", 0.001, "--verbose", 2)
    return run(*launcher, "gyre-cifar10", *places, *recipe, *options)


def picture(colour: tuple[int, int, int], number: int) -> Pillow.Image:
    noise = np.random.default_rng(number).integers(-15, 15, (SIDE, SIDE, 3))
    return Pillow.fromarray(np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8))


def png_of(number: int) -> bytes:
    memory = io.BytesIO()
    picture((200, 100, 50), number).save(memory, "PNG")
    return memory.getvalue()


def fill(folder: Path, colours: dict[str, tuple[int, int, int]], images: int = IMAGES) -> None:
    for name, colour in colours.items():
        (folder / name).mkdir(parents=True)
        for number in range(images):
            picture(colour, number).save(folder / name / f"{number:02}.png")


def litter(folder: Path) -> None:
    """What nobody has put there on purpose: LITTER."""
    (folder / ".DS_Store").write_bytes(b"\0\0\0\1Bud1" + bytes(100))
    (folder / "labels.csv").write_text("00.png,cat\n")
    (folder / ".ipynb_checkpoints").mkdir()
    picture((0, 0, 0), 1).save(folder / ".ipynb_checkpoints" / "00-checkpoint.png")
    (folder / "__MACOSX").mkdir()
    first = next(path for path in sorted(folder.iterdir()) if path.name in COLOURS)
    (first / "._00.png").write_bytes(b"\0\5\x16\7" + bytes(100))
    (first / ".DS_Store").write_bytes(bytes(100))
    (first / "Thumbs.db").write_bytes(bytes(100))


def every_kind(folder: Path, elsewhere: Path) -> int:
    """Adds images of every kind, and links; returns how many."""
    colour = COLOURS["日本"]
    plain = picture(colour, 1)
    plain.convert("CMYK").save(folder / "cmyk.JPG", quality=95)
    exif = Pillow.Exif()
    exif[0x0112] = 6
    plain.save(folder / "turned.jpeg", quality=95, exif=exif)
    plain.quantize(16).save(folder / "palette.png", transparency=1)
    Pillow.fromarray(np.full((SIDE, SIDE), 40000, np.uint16)).save(folder / "grey of 16 bits.png")
    elsewhere.mkdir()
    plain.save(elsewhere / "linked.png")
    (folder / "link.png").symlink_to(elsewhere / "linked.png")
    (folder / "folder").symlink_to(elsewhere)
    return 6


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "my photos"
    fill(folder, COLOURS)
    litter(folder)
    assert every_kind(folder / "日本", folder.parent / "elsewhere") == 6
    return folder


@pytest.fixture(scope="module")
def model(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained until it tells the colours apart."""
    folder = tmp_path_factory.mktemp("model")
    done = train(photos, folder, "--validation-share", 0.25, epochs=12, batch=2)
    assert done.returncode == 0, done.stderr
    return folder


def score(model: Path, data: object, *options: object, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return run("gyre", "score", "--model", model, "--data", data, *options, text=text)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        return list(csv.DictReader(file))


def accuracy_in(output: str) -> float:
    return float(output.partition("accuracy ")[2].split()[0].rstrip(";"))


def metadata_of(model: Path) -> dict[str, str]:
    newest = max((model / "checkpoints").glob("checkpoint-*.safetensors"))
    with safe_open(newest, "pt") as file:
        found: dict[str, str] = file.metadata()
    return found


def test_a_folder_of_classes_trains_with_a_part_held_out(photos: Path, tmp_path: Path) -> None:
    alone = train(photos, tmp_path / "alone", "--validation-share", 0.25)
    assert alone.returncode == 0, alone.stderr
    # A quarter of 8, 8 and 14.
    assert "22 training images, 8 test images, 3 classes" in alone.stdout
    assert alone.stdout.count("left out") == 1
    assert f"left out of {photos}: {LITTER}" in alone.stdout
    assert json.loads(metadata_of(tmp_path / "alone")["classes"]) == sorted(COLOURS)
    together = train(photos, tmp_path / "together", "--validation-share", 0.25, ranks=2, batch=2)
    assert together.returncode == 0, together.stderr
    assert together.stdout.count("left out") == 1
    # The same images, on any number of ranks.
    assert metadata_of(tmp_path / "together")["files"] == metadata_of(tmp_path / "alone")["files"]
    other = train(photos, tmp_path / "other", "--validation-share", 0.25, "--seed", 2)
    assert other.returncode == 0, other.stderr
    assert metadata_of(tmp_path / "other")["files"] != metadata_of(tmp_path / "alone")["files"]


def test_a_split_that_changes_is_not_resumed(photos: Path, tmp_path: Path) -> None:
    assert train(photos, tmp_path / "run", "--validation-share", 0.25).returncode == 0
    changed = train(photos, tmp_path / "run", "--validation-share", 0.5, "--resume", epochs=2)
    assert changed.returncode == 1
    assert "the digest of the training files' names was" in changed.stderr
    same = train(photos, tmp_path / "run", "--validation-share", 0.25, "--resume", epochs=2)
    assert same.returncode == 0, same.stderr


def test_resnet_splits_the_same_folder(photos: Path, tmp_path: Path) -> None:
    places = ("--data-dir", photos, "--model-dir", tmp_path / "run", "--image-size", 32, "--depth", 14)
    done = run("gyre-resnet50", *places, "--validation-share", 0.25, "--batch-size", 11, "--epochs", 1, "--verbose", 2)
    assert done.returncode == 0, done.stderr
    assert "22 training images, 8 validation images, 3 classes" in done.stdout


def test_hidden_files_in_the_folders_of_both_sets_change_nothing(tmp_path: Path) -> None:
    for name in ("train", "test"):
        fill(tmp_path / "data" / name, COLOURS, images=2)
    clean = train(tmp_path / "data", tmp_path / "clean")
    assert clean.returncode == 0, clean.stderr
    assert "left out" not in clean.stdout
    for name in ("train", "test"):
        litter(tmp_path / "data" / name)
    littered = train(tmp_path / "data", tmp_path / "littered")
    assert littered.returncode == 0, littered.stderr
    for name in ("training", "validation"):
        assert f"left out of the {name} set: {LITTER}" in littered.stdout
    assert metadata_of(tmp_path / "littered")["files"] == metadata_of(tmp_path / "clean")["files"]


def test_a_test_set_may_lack_classes_but_have_no_others(tmp_path: Path) -> None:
    fill(tmp_path / "data" / "train", COLOURS, images=2)
    (tmp_path / "data" / "test" / "Ägypten").mkdir(parents=True)
    fill(tmp_path / "data" / "test", {"日本": COLOURS["日本"]}, images=2)
    fewer = train(tmp_path / "data", tmp_path / "fewer")
    assert fewer.returncode == 0, fewer.stderr
    assert "without a validation image: cat & dog, Ägypten (2 of 3 classes)" in fewer.stdout
    fill(tmp_path / "data" / "test", {"nippon": COLOURS["日本"]}, images=2)
    others = train(tmp_path / "data", tmp_path / "others")
    assert others.returncode == 1
    assert "the validation set has classes that the training set lacks: nippon" in others.stderr


@pytest.mark.parametrize(
    ("folders", "options", "message"),
    [
        ({"train/a": 2, "train/b": 0}, ("--validation-share", 0.5), "train/b holds no .jpg, .jpeg or .png file"),
        ({"train/a": 4}, ("--validation-share", 0.5), "all training images are of one class (a)"),
        ({"train/a": 1, "train/b": 1}, ("--validation-share", 0.5), "nothing can be held out of 2 images"),
        ({"train/a": 2, "train/b": 2}, (), "To train with a part of train and validate with the rest, add --val"),
        ({"a": 2, "b": 2}, (), "To train with a part of its folders (a, b) and validate with the rest, add --val"),
        ({"train": 3}, ("--validation-share", 0.5), "train have no labels: a training or validation set has a folder"),
        ({"train/a": 2, "train/b": 2, "test": 3}, (), "test have no labels"),
        ({"train/a": 2, "train/b": 2, "val/a": 2}, ("--validation-share", 0.5), "has a validation set"),
        ({"other": 0}, ("--validation-share", 0.5), "nor a folder train or files train-*"),
    ],
)
def test_folders_that_are_no_data_set_get_one_sentence(
    folders: dict[str, int], options: tuple[object, ...], message: str, tmp_path: Path
) -> None:
    for name, count in folders.items():
        fill(tmp_path / "data", {name: (100, 100, 100)}, images=count)
    done = train(tmp_path / "data", tmp_path / "run", *options)
    assert done.returncode == 1, done.stdout
    assert message in done.stderr


def test_competitions_images_without_labels_do_not_stand_in_the_way_of_a_split(tmp_path: Path) -> None:
    fill(tmp_path / "data", {"train/a": (200, 0, 0), "train/b": (0, 200, 0), "test": (9, 9, 9)}, images=4)
    done = train(tmp_path / "data", tmp_path / "run", "--validation-share", 0.25)
    assert done.returncode == 0, done.stderr
    assert "6 training images, 2 test images, 2 classes" in done.stdout


@pytest.mark.parametrize("share", ["0", "1", "nan", "-0.1", "10%"])
def test_a_share_is_a_number_between_0_and_1(share: str, photos: Path, tmp_path: Path) -> None:
    done = train(photos, tmp_path / "run", f"--validation-share={share}")
    assert done.returncode == 2
    assert f"'{share}' is not a number above 0 and below 1" in done.stderr
