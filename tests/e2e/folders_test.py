"""Folders of images as people have them, from training to scores: with what desktops, notebooks and archive programs
leave in them, names in any script, links, and images of every kind that cameras and scanners write."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import unicodedata
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
    assert "22 training images, 8 validation images, 3 classes" in alone.stdout
    assert "\ntraining: the class folders; validation: 0.25 of the class folders\n" in alone.stdout
    assert "\nclasses: cat & dog, Ägypten, 日本\n" in alone.stdout
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
    for name in ("training", "test"):
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
    assert "the test set has classes that the training set lacks: nippon" in others.stderr


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
        ({"other": 0}, ("--validation-share", 0.5), "nor a folder train nor files train-*"),
        ({"train/a": 2, "Train/a": 2, "val/a": 2}, (), "has two training sets, Train and train; move one of them away"),
        ({"data/train/a": 2, "data/test/a": 2}, (), "data holds the data set, give it instead"),
        ({"photos/a": 2, "photos/b": 2}, ("--validation-share", 0.5), "photos holds the data set, give it instead"),
        ({"train/caf\u00e9": 2, "val/cafe\u0301": 2}, (), "names that look the same are different ones"),
        ({"a": 2, "b": 2, "test": 2}, ("--validation-share", 0.5), "has a folder test beside class folders (a, …)"),
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


@pytest.mark.parametrize(
    ("folders", "said"),
    [
        ({"Train": 4, "Test": 2}, "12 training images, 6 test images, 3 classes|training: Train; validation: Test\n"),
        ({"train": 4, "valid": 2}, "12 training images, 6 validation images|training: train; validation: valid\n"),
        ({"Training": 4, "VAL": 2, "Testing": 3}, "6 validation images|validation: VAL; left aside: Testing\n"),
        ({"train": 4, "validation": 2, "test": 3}, "6 validation images|validation: validation; left aside: test\n"),
    ],
)
@pytest.mark.parametrize("program", ["gyre-cifar10", "gyre-resnet50"])
def test_sets_are_found_by_their_usual_names_and_listed(
    program: str, folders: dict[str, int], said: str, tmp_path: Path
) -> None:
    for name, count in folders.items():
        fill(tmp_path / "data" / name, COLOURS, images=count)
    size = ("--image-size", 32, "--depth", 14) if program == "gyre-resnet50" else ("--image-size", SIDE)
    places = ("--data-dir", tmp_path / "data", "--output-dir", tmp_path / "run")
    done = run(program, *places, *size, "--batch-size", 6, "--epochs", 1, "--verbose", 2)
    assert done.returncode == 0, done.stderr
    for part in said.split("|"):
        assert part in done.stdout
    assert "classes: cat & dog, Ägypten, 日本\n" in done.stdout


def test_a_validation_set_that_is_the_training_set_is_reported(tmp_path: Path) -> None:
    fill(tmp_path / "data" / "train", COLOURS, images=2)
    (tmp_path / "data" / "val").symlink_to("train")
    done = train(tmp_path / "data", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "train and val are the same images (a link)" in done.stdout


def test_one_folder_under_two_class_names_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "data" / "train", COLOURS, images=2)
    (tmp_path / "data" / "train" / "egypt").symlink_to("Ägypten")
    done = train(tmp_path / "data", tmp_path / "run", "--validation-share", 0.5)
    assert done.returncode == 1
    assert "a folder of the class egypt, so its images would belong to the class Ägypten as well" in done.stderr


def test_competitions_images_without_labels_do_not_stand_in_the_way_of_a_split(tmp_path: Path) -> None:
    fill(tmp_path / "data", {"train/a": (200, 0, 0), "train/b": (0, 200, 0), "test": (9, 9, 9)}, images=4)
    done = train(tmp_path / "data", tmp_path / "run", "--validation-share", 0.25)
    assert done.returncode == 0, done.stderr
    assert "6 training images, 2 validation images, 2 classes" in done.stdout
    assert "training: train; validation: 0.25 of train; left aside: test" in done.stdout


@pytest.mark.parametrize("share", ["0", "1", "nan", "-0.1", "10%"])
def test_a_share_is_a_number_between_0_and_1(share: str, photos: Path, tmp_path: Path) -> None:
    done = train(photos, tmp_path / "run", f"--validation-share={share}")
    assert done.returncode == 2
    assert f"'{share}' is not a number above 0 and below 1" in done.stderr


def test_the_whole_folder_is_scored_with_the_names_of_files_and_classes(
    photos: Path, model: Path, tmp_path: Path
) -> None:
    done = score(model, photos, "--out", tmp_path / "scores.csv")
    assert done.returncode == 0, done.stderr
    assert accuracy_in(done.stdout) > 0.8
    assert f"left out: {LITTER}" in done.stdout
    rows = rows_of(tmp_path / "scores.csv")
    assert list(rows[0]) == ["sample", "label", "predicted", "probability", "file", "class", "predicted_class"]
    assert [row["file"] for row in rows][:2] == ["cat & dog/00.png", "cat & dog/01.png"]
    assert {"日本/cmyk.JPG", "日本/folder/linked.png", "日本/link.png"} <= {row["file"] for row in rows}
    names = sorted(COLOURS)
    for row in rows:
        assert row["file"].startswith(row["class"] + "/")
        assert names[int(row["label"])] == row["class"]
        assert names[int(row["predicted"])] == row["predicted_class"]
    correct = [row["class"] == row["predicted_class"] for row in rows]
    assert accuracy_in(done.stdout) == pytest.approx(sum(correct) / len(rows), abs=1e-4)


def test_a_folder_with_other_classes_is_compared_by_name(photos: Path, model: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for name in ("Ägypten", "日本"):  # Without the first class, by number each label is another one's.
        shutil.copytree(photos / name, data / name)
    fill(data, {"ant": (0, 0, 0)}, images=3)
    (data / "empty").mkdir()
    done = score(model, data, "--out", tmp_path / "scores.csv")
    assert done.returncode == 0, done.stderr
    assert accuracy_in(done.stdout) > 0.8
    assert "unknown to the model, and not counted: ant (3 images)" in done.stdout
    assert re.search(r": 25 images in .*, accuracy \S+ of the 22 images with a class of the model;", done.stdout)
    assert "without an image: cat & dog (1 of 3 classes)" in done.stdout
    rows = rows_of(tmp_path / "scores.csv")
    assert [(row["class"], row["label"]) for row in rows][:3] == [("ant", "")] * 3
    known = [row for row in rows if row["label"]]
    correct = sum(row["class"] == row["predicted_class"] for row in known)
    assert accuracy_in(done.stdout) == pytest.approx(correct / len(known), abs=1e-4)
    # The same letters in other bytes.
    (data / "Ägypten").rename(data / unicodedata.normalize("NFD", "Ägypten"))
    looks_the_same = score(model, data)
    assert looks_the_same.returncode == 0, looks_the_same.stderr
    assert "other bytes for the same letters (Unicode NFC and NFD); rename the folder" in looks_the_same.stdout
    shutil.rmtree(data / "日本")
    shutil.rmtree(data / unicodedata.normalize("NFD", "Ägypten"))
    nothing = score(model, data)
    assert nothing.returncode == 1
    assert (
        "the data has none of the model's classes: it has ant, and the model was trained with cat & dog, "
        in nothing.stderr
    )


def test_an_exported_model_keeps_the_names(photos: Path, model: Path, tmp_path: Path) -> None:
    assert run("gyre", "export", model, "--out", tmp_path / "exported").returncode == 0
    assert json.loads((tmp_path / "exported" / "model.json").read_text())["classes"] == sorted(COLOURS)
    data = tmp_path / "data"
    shutil.copytree(photos / "日本", data / "日本")
    for exported in (tmp_path / "exported", tmp_path / "exported" / "model.pt2"):
        done = score(exported, data)
        assert done.returncode == 0, done.stderr
        assert accuracy_in(done.stdout) > 0.8


def without_names(model: Path, folder: Path) -> Path:
    """As if it had been trained on files whose labels are numbers."""
    metadata, tensors = _core.read_checkpoint(str(max((model / "checkpoints").glob("checkpoint-*.safetensors"))))
    del metadata["classes"]
    (folder / "old.safetensors").write_bytes(_core.encode_checkpoint(metadata, tensors))
    return folder / "old.safetensors"


def test_a_model_without_names_is_not_compared_with_other_folders(photos: Path, model: Path, tmp_path: Path) -> None:
    old = without_names(model, tmp_path)
    unknown = score(old, photos)
    assert unknown.returncode == 1
    assert "State the names of the model's classes with --class-names" in unknown.stderr
    done = score(old, photos, "--class-names", ",".join(sorted(COLOURS)))
    assert done.returncode == 0, done.stderr
    assert accuracy_in(done.stdout) > 0.8
    shutil.copytree(photos / "日本", tmp_path / "data" / "日本")
    one = score(old, tmp_path / "data")
    assert one.returncode == 1
    assert "the model has 3 classes without names" in one.stderr


def test_images_without_labels_are_predicted_from_a_folder_a_list_and_one_file(model: Path, tmp_path: Path) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    for number, name in enumerate(sorted(COLOURS)):
        picture(COLOURS[name], 50).save(flat / f"{number} [new].png")
    (flat / ".DS_Store").write_bytes(bytes(10))
    (flat / "notes.txt").write_text("…")
    labelled = score(model, flat)
    assert labelled.returncode == 1
    assert "images that have no labels" in labelled.stderr
    assert "add --no-labels" in labelled.stderr
    out = tmp_path / "scores.csv"
    done = score(model, flat, "--no-labels", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "left out: 1 hidden file, 1 file that is not an image (notes.txt)" in done.stdout
    rows = rows_of(out)
    assert list(rows[0]) == ["sample", "predicted", "probability", "file", "predicted_class"]
    assert [row["file"] for row in rows] == [f"{number} [new].png" for number in range(3)]
    assert [row["predicted_class"] for row in rows] == sorted(COLOURS)
    # One image, whose name is a pattern too; its line goes to standard output.
    one = score(model, flat / "1 [new].png", "--no-labels")
    assert one.returncode == 0, one.stderr
    (row,) = csv.DictReader(io.StringIO(one.stdout))
    assert (row["file"], row["predicted_class"]) == (str(flat / "1 [new].png"), sorted(COLOURS)[1])
    assert "1 image in" in one.stderr
    # A list, in its order, on two ranks; standard input is rank 0's.
    names = "".join(f"{flat / f'{number} [new].png'}\n" for number in (2, 0, 1))
    ranks = ("gyre", "run", "-n", 2, "--stdin", 0, "--")
    options = ("--model", model, "--data", "-", "--no-labels", "--out", out)
    listed = run(*ranks, "gyre", "score", *options, text=names)
    assert listed.returncode == 0, listed.stderr
    assert [row["predicted_class"] for row in rows_of(out)] == [sorted(COLOURS)[number] for number in (2, 0, 1)]
    # As `find -print0` writes them.
    names = "".join(f"{flat / f'{number} [new].png'}\0" for number in (1, 0))
    listed = score(model, "-", "--no-labels", "--out", out, text=names)
    assert listed.returncode == 0, listed.stderr
    assert [row["predicted_class"] for row in rows_of(out)] == [sorted(COLOURS)[number] for number in (1, 0)]
    nothing = score(model, "-", "--no-labels", text="\n \n")
    assert nothing.returncode == 1
    assert "the list of files on standard input is empty" in nothing.stderr
    gone = score(model, "-", "--no-labels", text=f"{flat}/0 [new].png\n{flat}/9.png\n")
    assert gone.returncode == 1
    assert "9.png" in gone.stderr


def test_class_folders_are_any_folders_without_labels(model: Path, tmp_path: Path) -> None:
    data = tmp_path / "2026"
    fill(data / "january", {"trip": COLOURS["日本"], "empty": (0, 0, 0)}, images=2)
    for image in (data / "january" / "empty").iterdir():
        image.unlink()
    picture(COLOURS["Ägypten"], 60).save(data / "cover.png")
    done = score(model, data, "--no-labels", "--out", tmp_path / "scores.csv")
    assert done.returncode == 0, done.stderr
    assert [row["file"] for row in rows_of(tmp_path / "scores.csv")] == [
        "cover.png",
        "january/trip/00.png",
        "january/trip/01.png",
    ]


def test_names_that_are_not_utf_8_come_back_as_they_are(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "inbox"
    folder.mkdir()
    name = os.fsdecode(b"caf\xe9.png")
    picture(COLOURS["日本"], 70).save(folder / name)
    out = tmp_path / "scores.csv"
    done = score(model, folder, "--no-labels", "--out", out)
    assert done.returncode == 0, done.stderr
    assert b",caf\xe9.png," in out.read_bytes()


def test_samples_of_other_files_have_positions(model: Path, tmp_path: Path) -> None:
    for shard in range(2):
        examples = [{"image": png_of(shard * 2 + i), "label": shard} for i in range(2)]
        write_tfrecords(tmp_path / f"part-{shard}.tfrecord", examples)
    names = ",".join(sorted(COLOURS))
    done = score(model, tmp_path / "part-*", "--out", tmp_path / "scores.csv", "--class-names", names)
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path / "scores.csv")
    assert [row["file"] for row in rows] == [f"{tmp_path}/part-{i // 2}.tfrecord:{i % 2}" for i in range(4)]
    assert rows[3]["class"] == sorted(COLOURS)[1]


def test_labels_of_files_that_the_model_does_not_have_are_reported_and_not_counted(model: Path, tmp_path: Path) -> None:
    labels = [0, 1, 7, -1]
    write_tfrecords(tmp_path / "some", [{"image": png_of(i), "label": label} for i, label in enumerate(labels)])
    old = without_names(model, tmp_path)
    some = score(old, tmp_path / "some")
    assert some.returncode == 0, some.stderr
    assert re.search(r": 4 images in .*, accuracy \S+ of the 2 images with a class of the model$", some.stdout, re.M)
    assert "labels that the model does not have, and not counted: -1, 7" in some.stdout
    write_tfrecords(tmp_path / "none", [{"image": png_of(0), "label": 7}])
    none = score(old, tmp_path / "none")
    assert none.returncode == 1
    assert "no label of the data is a class of the model (0 to 2): 7" in none.stderr
