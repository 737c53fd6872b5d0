"""`gyre export` and `gyre score` on what the training programs wrote: PyTorch's layers must predict what the C++
network predicted, on one rank and on several, from a checkpoint and from every file that is exported."""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
from gyre.core import _core
from gyre.datasets import cifar10
from gyre.errors import InvalidArgumentError
from gyre.models.class_names import names_beside, read_names
from gyre.models.score import input_of, open_data
from PIL import Image as Pillow
from safetensors.torch import load_file

from gyre.models import load_model

IMAGES = 34  # No multiple of any batch below.
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def run(*command: object) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    assert shutil.which(words[0]), f"{words[0]} is not on PATH: run ./dev build, or put build/release/bin there"
    return subprocess.run(words, capture_output=True, text=True, timeout=240, check=False, env=ENVIRONMENT)


def make(*arguments: object) -> None:
    done = run(sys.executable, "-m", "gyre.datasets", *arguments)
    assert done.returncode == 0, done.stderr


def trained(*command: object) -> str:
    done = run(*command, "--verbose", 2)
    assert done.returncode == 0, done.stderr
    return done.stdout


def last(name: str, output: str) -> float:
    return float(re.findall(rf"{name} ([0-9.]+)", output)[-1])


TEXTS = {"file", "class", "predicted_class"}


def rows(path: Path) -> list[list[float]]:
    """The columns of numbers."""
    with path.open(newline="", encoding="utf-8") as file:
        return [[float(value) for name, value in row.items() if name not in TEXTS] for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder, and what the training printed."""
    folder = tmp_path_factory.mktemp("resnet")
    for layout in ("tfrecord", "folder"):
        size = ("--size", 48, "--classes", 4, "--train", 32, "--validation", IMAGES)
        make("imagenet", "--out", folder / layout, "--layout", layout, *size)
    network = ("--depth", 14, "--image-size", 32, "--batch-size", 16, "--epochs", 1, "--warmup-epochs", 0)
    data = ("--data-dir", folder / "folder", "--output-dir", folder / "run")
    return folder, trained("gyre-resnet50", *data, *network)


def test_a_checkpoint_scores_as_its_program_did(resnet: tuple[Path, str], tmp_path: Path) -> None:
    folder, output = resnet
    out = tmp_path / "scores.csv"
    done = run("gyre", "score", "--model", folder / "run", "--data", folder / "folder" / "validation", "--out", out)
    assert done.returncode == 0, done.stderr
    assert f"{IMAGES} images" in done.stdout
    assert last("accuracy", done.stdout) == last("test accuracy", output)
    assert out.read_text().splitlines()[0] == "sample,label,predicted,probability,file,class,predicted_class"
    assert [row[0] for row in rows(out)] == list(range(IMAGES))
    assert list(tmp_path.iterdir()) == [out]


def test_ranks_share_the_data_and_rank_0_writes_it_in_order(resnet: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = resnet
    names = ",".join(sorted(path.name for path in (folder / "folder" / "validation").iterdir()))
    data = folder / "tfrecord" / "validation-*"
    score = ("gyre", "score", "--model", folder / "run", "--data", data, "--class-names", names)
    alone = run(*score, "--out", tmp_path / "alone.csv")
    assert alone.returncode == 0, alone.stderr
    together = run("gyre", "run", "-n", 3, "--", *score, "--batch-size", 5, "--out", tmp_path / "together.csv")
    assert together.returncode == 0, together.stderr
    assert together.stdout.count("accuracy") == 1
    torch.testing.assert_close(
        torch.tensor(rows(tmp_path / "together.csv")), torch.tensor(rows(tmp_path / "alone.csv")), rtol=1e-4, atol=1e-5
    )


def test_every_exported_file_predicts_the_same(resnet: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = resnet
    out = tmp_path / "exported"
    done = run("gyre", "export", folder / "run", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "ResNet (depth 14, version v1.5, classes 4)" in done.stdout
    assert {file.name for file in out.iterdir()} == {"model.json", "model.pt2", "model.py", "model.safetensors"}
    assert json.loads((out / "model.json").read_text())["shape"] == [3, 32, 32]
    assert load_file(out / "model.safetensors")["fc.weight"].shape == (4, 2048)
    images = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    expected = load_model(folder / "run").network(images)
    for exported in (out, out / "model.pt2", out / "model.safetensors"):
        torch.testing.assert_close(load_model(exported).network(images), expected)
    # The definition, in a Python that knows nothing of Gyre.
    torch.save(images, tmp_path / "images.pt")
    script = "import model, torch; print(model.load('.')(torch.load('../images.pt')).tolist())"
    alone = subprocess.run(
        [sys.executable, "-c", script], cwd=out, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin"}
    )
    torch.testing.assert_close(torch.tensor(json.loads(alone.stdout)), expected.detach(), rtol=1e-4, atol=1e-5)
    again = run("gyre", "export", folder / "run", "--out", out)
    assert again.returncode == 1
    assert "already holds an exported network" in again.stderr


def test_volumes_score_as_gyre_cosmoflow_did(tmp_path: Path) -> None:
    make("cosmo", "--out", tmp_path / "data", "--size", 32, "--train", 4, "--validation", 6)
    network = ("--conv-size", 2, "--fc1-size", 16, "--fc2-size", 8, "--batch-size", 2, "--epochs", 1)
    output = trained("gyre-cosmoflow", "--data-dir", tmp_path / "data", "--output-dir", tmp_path / "run", *network)
    out = tmp_path / "scores.csv"
    data = tmp_path / "data" / "validation"
    done = run("gyre", "score", "--model", tmp_path / "run", "--data", data, "--batch-size", 4, "--out", out)
    assert done.returncode == 0, done.stderr
    assert last("mean absolute error", done.stdout) == pytest.approx(last("test mae", output), abs=1e-4)
    assert out.read_text().splitlines()[0].split(",") == ["sample", *(f"y{i}" for i in range(1, 5)), *PREDICTED, "file"]


PREDICTED = [f"predicted{i}" for i in range(1, 5)]


def test_cifar10_scores_as_gyre_cifar10_did(data: Path, tmp_path: Path) -> None:
    output = trained("gyre-cifar10", "--data-dir", data, "--output-dir", tmp_path / "run", "--epochs", 1)
    tests = list(data.rglob("test_batch*"))
    done = run("gyre", "score", "--model", tmp_path / "run", "--data", tests[0])
    assert done.returncode == 0, done.stderr
    assert last("accuracy", done.stdout) == last("test accuracy", output)


def test_images_are_resized_as_gyre_cifar10_resized_them(tmp_path: Path) -> None:
    """By the loss of its evaluation: of dark images that are not rounded to 8 bits, it is another by 4e-4."""
    generator = numpy.random.default_rng(1)
    for part, count in (("train", 16), ("validation", 60)):
        for number in range(count):
            height, width = generator.integers(30, 60, 2)
            patches = generator.integers(0, 60, (3, 3, 3)) + 20 * (number % 2)
            values = numpy.kron(patches, numpy.ones((20, 20, 1)))[:height, :width]
            values += generator.integers(0, 2, values.shape)
            file = tmp_path / "images" / part / "ab"[number % 2] / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Pillow.fromarray(values.astype(numpy.uint8)).save(file)
    folder = ("--data-dir", tmp_path / "images", "--output-dir", tmp_path / "run")
    output = trained("gyre-cifar10", *folder, "--image-size", 16, "--batch-size", 4, "--epochs", 20, "--lr", 0.002)
    arguments = argparse.Namespace(no_labels=False, batch_size=60)
    model = load_model(tmp_path / "run")
    (batch,) = open_data(str(tmp_path / "images" / "validation"), arguments, model.description)
    loss = torch.nn.functional.cross_entropy(model.network(input_of(batch, model.description)), batch["label"])
    assert loss.item() == pytest.approx(last("test loss", output), abs=1e-4)


def test_a_model_with_names_scores_numbers_by_their_names_and_never_by_number(data: Path, tmp_path: Path) -> None:
    """Of classes in another order most images counted as wrong, without a word."""
    output = trained("gyre-cifar10", "--data-dir", data, "--output-dir", tmp_path / "run", "--epochs", 1)
    expected = last("test accuracy", output)
    digits = [f"digit {number}" for number in range(10)]
    (data / "cifar-10-batches-bin" / "batches.meta.txt").write_text("\n".join(digits) + "\n\n")
    # The same network, as if it had been trained on class folders of these names in another order: 9 comes first.
    metadata, tensors = _core.read_checkpoint(str(max((tmp_path / "run" / "checkpoints").glob("checkpoint-*"))))
    metadata["classes"] = json.dumps(digits[::-1])
    turned = [(n, k, s, _turned(v) if s[:1] == [10] else v) for n, k, s, v in tensors]
    (tmp_path / "named.safetensors").write_bytes(_core.encode_checkpoint(metadata, turned))
    test_batch = data / "cifar-10-batches-bin" / "test_batch.bin"
    score = ("gyre", "score", "--model", tmp_path / "named.safetensors", "--data")
    for place in (test_batch, data, data / "cifar-10-batches-bin"):
        done = run(*score, place, "--out", tmp_path / "scores.csv")
        assert done.returncode == 0, done.stderr
        assert last("accuracy", done.stdout) == expected
        assert "the data's labels have the names of" in done.stdout
        assert ("scored of" in done.stdout) == (place != test_batch)
    line = next(csv.DictReader((tmp_path / "scores.csv").open()))
    assert line["class"] == digits[9 - int(line["label"])]
    alone = tmp_path / "alone" / "test_batch.bin"
    alone.parent.mkdir()
    alone.write_bytes(test_batch.read_bytes())
    refused = run(*score, alone)
    assert refused.returncode == 1
    assert "the data's labels are numbers: it cannot be known which is which. State the names" in refused.stderr
    stated = run(*score, alone, "--class-names", ",".join(digits))
    assert last("accuracy", stated.stdout) == expected, stated.stderr
    few = run(*score, alone, "--class-names", ",".join(digits[:3]))
    assert "there are names for 0 to 2 only" in few.stderr
    others = run(*score, alone, "--class-names", "cat,dog")
    assert "the data has none of the model's classes: by --class-names it has cat, dog" in others.stderr


def _turned(values: bytes) -> bytes:
    return torch.frombuffer(bytearray(values), dtype=torch.float32).view(10, -1).flip(0).contiguous().numpy().tobytes()


def test_names_of_classes_in_cifar10s_pickle_are_read_and_twice_the_same_is_refused(tmp_path: Path) -> None:
    (tmp_path / "batches.meta").write_bytes(cifar10.python_meta(("cat", "dog"), 10))
    names = names_beside([str(tmp_path / "test_batch")])
    assert names is not None
    assert names.names == ("cat", "dog")
    assert names_beside(str(tmp_path / "validation.tar")) is None
    with pytest.raises(InvalidArgumentError, match="has the class cat twice"):
        read_names("cat,dog,cat")
    with pytest.raises(InvalidArgumentError, match="neither a file nor a list"):
        read_names("cat")


def test_a_workers_optimizer_is_not_taken_for_a_network(data: Path, tmp_path: Path) -> None:
    program = ("gyre-cifar10", "--data-dir", data, "--output-dir", tmp_path / "run", "--consistency", "local:2")
    trained("gyre", "run", "-n", 2, "--", *program, "--epochs", 1)
    folder = tmp_path / "run" / "checkpoints" / "worker-1"
    for words in (("score", "--data", data, "--model"), ("export", "--out", tmp_path / "out")):
        done = run("gyre", *words, folder)
        assert done.returncode == 1
        assert "is the optimizer of worker 1 alone, for --resume: the network is in" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("score", "--model", "nowhere", "--data", "."), 1, "nowhere does not exist"),
        (
            ("score", "--model", "empty", "--data", "."),
            1,
            "empty contains neither a checkpoint nor output of `gyre export`",
        ),
        (("score", "--model", "cut.safetensors", "--data", "."), 1, "cut.safetensors: the checkpoint is cut short"),
        (("export", "diverged.safetensors", "--out", "x"), 1, "'fc.bias' has values that are not finite"),
        (("export", "large.safetensors", "--out", "x"), 1, "the network's answer to random input is not finite"),
        (
            ("score", "--model", "large.safetensors", "--data", "folder/validation", "--out", "x.csv"),
            1,
            "large.safetensors has no prediction for ",
        ),
        (("score", "--model", "text.pt2", "--data", "."), 1, "text.pt2 is not a torch.export program"),
        (("score", "--model", "other", "--data", "."), 1, "there is no ResNet with {'depth': 51}"),
        (("score", "--model", "bytes", "--data", "."), 1, "model.json does not describe a network"),
        (("score", "--model", "run", "--data", "nowhere"), 1, "'nowhere'"),
        (("score", "--model", "run", "--data", "folder/validation", "--out", "no/x.csv"), 1, "no/x.csv cannot be writ"),
        (("score", "--model", "run", "--data", ".", "--batch-size", "0"), 2, "--batch-size is 0; at least 1 is needed"),
        (("score", "--modle", "run"), 2, "--model"),
        (("export", "run"), 2, "--out"),
    ],
)
def test_mistakes_get_one_sentence(
    resnet: tuple[Path, str], arguments: tuple[str, ...], code: int, message: str
) -> None:
    folder, _ = resnet
    (folder / "empty").mkdir(exist_ok=True)
    (folder / "text.pt2").write_text("not a program")
    shape = {"trained_by": "", "input": "image", "shape": [3, 32, 32]}
    other = json.dumps({"network": "ResNet", "arguments": {"depth": 51}, **shape})
    for name, content in (("other", other.encode()), ("bytes", b"\xff\xfe{")):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "model.json").write_bytes(content)
    checkpoint = next((folder / "run" / "checkpoints").iterdir())
    (folder / "cut.safetensors").write_bytes(checkpoint.read_bytes()[:100_000])
    metadata, tensors = _core.read_checkpoint(str(checkpoint))
    broken = [(n, k, s, b"\xff" * len(v) if n == "fc.bias" else v) for n, k, s, v in tensors]
    (folder / "diverged.safetensors").write_bytes(_core.encode_checkpoint(metadata, broken))
    # Each weight is finite, and no answer is.
    large = [(n, k, s, _times(v, 1e30) if n.endswith("weight") else v) for n, k, s, v in tensors]
    (folder / "large.safetensors").write_bytes(_core.encode_checkpoint(metadata, large))
    done = subprocess.run(
        ["gyre", *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False, env=ENVIRONMENT
    )
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "x").exists()
    assert not (folder / "x.csv").exists()


def _times(values: bytes, factor: float) -> bytes:
    return (torch.frombuffer(bytearray(values), dtype=torch.float32) * factor).numpy().tobytes()
