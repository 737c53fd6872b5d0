"""The command line of `gyre score`."""

from __future__ import annotations

import argparse
import csv
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import gyre.torch as ranks
from gyre._command_line import Parser
from gyre.data import Loader, floats, image, ints, raw
from gyre.data._fields import Field
from gyre.errors import Error, InvalidArgumentError
from gyre.models.saved import Description, SavedModel, load_model

_EPILOG = """\
M is a checkpoint, a run's folder, or the output of `gyre export`; D is data in any form that the training programs
accept: a folder of class folders of images, TFRecord or tar files, CIFAR-10's files. Samples keep the order of their
files, whatever the number of ranks.

Examples:
  gyre score --model /tmp/resnet --data imagenet/validation --out predictions.csv
  gyre run -n 4 -- gyre score --model resnet50/model.pt2 --data 'imagenet/validation-*'

Exit code: 0; 1 if something cannot be read or written; 2 for an invalid option."""

_IMAGENET_IMAGE = "image/encoded"
_IMAGENET_LABEL = "image/class/label"


def parser() -> Parser:
    whole = Parser(
        prog="gyre score",
        description="Predicts with a trained network, on one rank or many, and reports its accuracy or error.",
        epilog=_EPILOG,
        raw=True,
    )
    whole.add_argument("--model", required=True, metavar="M", help="the trained network")
    whole.add_argument("--data", required=True, metavar="D", help="a folder, a file, or a pattern of files")
    whole.add_argument("--out", metavar="FILE", help="write a line for each sample into this CSV file")
    whole.add_argument("--batch-size", type=int, default=64, metavar="N", help="per rank and step (default: 64)")
    whole.add_argument("--no-labels", action="store_true", help="predict only: the data has no labels")
    return whole


def files_of(data: str) -> str | list[str]:
    """A folder of files means these files; a folder of folders is an image folder."""
    place = Path(data)
    if not place.is_dir():
        return data
    files = sorted(str(file) for file in place.iterdir() if file.is_file())
    return files if files and not any(entry.is_dir() for entry in place.iterdir()) else data


def fields_of(description: Description, imagenet: bool, labels: bool) -> dict[str, Field]:
    if description.input == "volume":
        channels, *sides = description.shape
        transform = "log1p" if description.transform == "log1p" else ""
        fields = {"input": raw("int16", (*sides, channels), dtype="float32", transform=transform, key="x")}
        return {**fields, "label": floats(int(description.arguments["targets"]), key="y")} if labels else fields
    side = description.shape[-1]
    fields = {
        "input": image(
            side,
            augment=False,
            resize=side if "Cifar" in description.network else round(side * 8 / 7),
            mean=description.mean,
            std=description.std,
            key=_IMAGENET_IMAGE if imagenet else "image",
        )
    }
    if not labels:
        return fields
    return {**fields, "label": ints(key=_IMAGENET_LABEL, offset=-1) if imagenet else ints(key="label")}


def open_data(arguments: argparse.Namespace, description: Description) -> Loader:
    """ImageNet's TFRecord files have names of their own for the features."""
    files = files_of(arguments.data)

    def opened(imagenet: bool) -> Loader:
        fields = fields_of(description, imagenet, not arguments.no_labels)
        return Loader(files, fields, batch_size=arguments.batch_size, shuffle=False)

    try:
        return opened(imagenet=False)
    except Error:
        if description.input != "image":
            raise
        try:
            return opened(imagenet=True)
        except Error:
            pass
        raise


def input_of(batch: Any, description: Description) -> Tensor:
    values: Tensor = batch["input"]
    if description.input == "image":
        return values
    volumes = values.permute(0, 4, 1, 2, 3)
    return volumes if description.transform == "log1p" else volumes / volumes.mean((1, 2, 3, 4), keepdim=True)


class Classes:
    """For a classifier: the columns of a line, and the sums."""

    def __init__(self, labels: bool) -> None:
        self._labels = labels
        self._correct = 0
        self._samples = 0

    def header(self) -> list[str]:
        return ["sample", *(["label"] if self._labels else []), "predicted", "probability"]

    def lines(self, answers: Tensor, labels: Tensor | None) -> Iterator[list[object]]:
        probabilities, predicted = answers.softmax(1).max(1)
        self._samples += len(predicted)
        if labels is not None:
            self._correct += int(predicted.eq(labels).sum())
        for i in range(len(predicted)):
            own = [] if labels is None else [int(labels[i])]
            yield [*own, int(predicted[i]), f"{float(probabilities[i]):.6g}"]

    def summary(self) -> str:
        return f"accuracy {self._correct / self._samples:.4f}"


class Values:
    """The same for a regression network."""

    def __init__(self, labels: bool, targets: int) -> None:
        self._labels = labels
        self._targets = targets
        self._error = 0.0
        self._samples = 0

    def header(self) -> list[str]:
        numbers = range(1, self._targets + 1)
        return ["sample", *(f"y{i}" for i in numbers if self._labels), *(f"predicted{i}" for i in numbers)]

    def lines(self, answers: Tensor, labels: Tensor | None) -> Iterator[list[object]]:
        self._samples += len(answers)
        if labels is not None:
            self._error += float((answers - labels).abs().mean(1).sum())
        for i in range(len(answers)):
            own = [] if labels is None else labels[i].tolist()
            yield [f"{value:.6g}" for value in (*own, *answers[i].tolist())]

    def summary(self) -> str:
        return f"mean absolute error {self._error / self._samples:.4f}"


def gathered(values: Tensor, counted: Sequence[int]) -> Tensor:
    """All ranks' rows that count, in rank order."""
    whole = ranks.allgather(values.contiguous(), name="score") if ranks.size() > 1 else values
    size = len(values)
    return torch.cat([whole[rank * size : rank * size + count] for rank, count in enumerate(counted)])


def score(model: SavedModel, loader: Loader, table: Classes | Values, writer: Any) -> int:
    """Predicts all samples; returns their number. Rank 0 writes."""
    size, batch_size = ranks.size(), loader.batch_size
    done = 0
    for batch in loader:
        with torch.no_grad():
            answers = model.network(input_of(batch, model.description))
        here = batch.counted_globally
        counted = [max(0, min(batch_size, here - rank * batch_size)) for rank in range(size)]
        answers = gathered(answers, counted)
        labels = gathered(batch["label"], counted) if "label" in batch else None
        if ranks.rank() == 0:
            for number, line in enumerate(table.lines(answers, labels)):
                writer.writerow([done + number, *line])
        done += here
    return done


class _NoWriter:
    def writerow(self, row: object) -> None:
        """No output was requested."""


def run(arguments: argparse.Namespace) -> str:
    """The text that rank 0 prints at the end; empty on the others."""
    model = load_model(arguments.model)
    loader = open_data(arguments, model.description)
    labels = not arguments.no_labels
    is_volume = model.description.input == "volume"
    table = Values(labels, int(model.description.arguments["targets"])) if is_volume else Classes(labels)
    started = time.monotonic()
    if ranks.rank() > 0:
        score(model, loader, table, _NoWriter())
        return ""
    if arguments.out:
        done = write_scores(model, loader, table, Path(arguments.out))
    else:
        done = score(model, loader, table, _NoWriter())
    words = [f"{done} {'volumes' if is_volume else 'images'} in {time.monotonic() - started:.1f} s"]
    if labels:
        words.append(table.summary())
    return f"{model.path}: {', '.join(words)}" + (f"; each in {arguments.out}" if arguments.out else "")


def write_scores(model: SavedModel, loader: Loader, table: Classes | Values, out: Path) -> int:
    """The file appears once it is complete."""
    unfinished = out.with_name(f"{out.name}.{secrets.token_hex(8)}.part")
    try:
        with unfinished.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(table.header())
            done = score(model, loader, table, writer)
        unfinished.replace(out)
    except OSError as error:
        raise InvalidArgumentError(f"{out} cannot be written: {error.strerror}") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return done


def main(words_given: Sequence[str] | None = None) -> int:
    whole = parser()
    arguments = whole.parse_args(words_given)
    if arguments.batch_size < 1:
        whole.error(f"--batch-size is {arguments.batch_size}; at least 1 is needed")
    try:
        ranks.init()
        said = run(arguments)
        if said:
            print(said)
        ranks.shutdown()
    except (Error, OSError) as error:
        print(f"gyre score: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
