"""The command line of `gyre score`."""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor

import gyre.torch as ranks
from gyre._command_line import Parser
from gyre.core import _core
from gyre.data import Loader, floats, image, ints, raw
from gyre.data._fields import Field
from gyre.errors import CorruptDataError, Error, InvalidArgumentError, MismatchError
from gyre.models.class_names import ClassNames, StatedNames, names_beside, quantity, read_names, shown
from gyre.models.saved import Description, SavedModel, load_model

_EPILOG = """\
M is a checkpoint, a run's folder, or the output of `gyre export`; D is data in any form that the training programs
accept: a folder of class folders of images, TFRecord or tar files, CIFAR-10's files, or their --data-dir, of which the
validation or test set is scored. Classes are compared by name. If only the model or only the data has names, and the
other side numbers, --class-names says which is which; CIFAR-10's batches.meta is read where it is there. With
--no-labels D can also be an image, a folder of images at any depth, or -: a list of files on standard input, a line
each or as `find -print0` writes it. Samples keep the order of their files, whatever the number of ranks.

Examples:
  gyre score --model /tmp/resnet --data photos/validation --out predictions.csv
  gyre run -n 4 -- gyre score --model resnet50/model.pt2 --data 'imagenet/validation-*'
  find inbox -name '*.jpg' | gyre score --model /tmp/resnet --data - --no-labels --out inbox.csv

Exit code: 0; 1 if something cannot be read or written, or the data has none of the model's classes; 2 for an invalid
option."""

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
    whole.add_argument("--data", required=True, metavar="D", help="a folder, a file, a pattern, or - for a list")
    whole.add_argument(
        "--out",
        metavar="FILE",
        help="write a line for each sample into this CSV file (with --no-labels otherwise to standard output)",
    )
    whole.add_argument("--batch-size", type=int, default=64, metavar="N", help="per rank and step (default: 64)")
    whole.add_argument(
        "--class-names",
        metavar="NAMES",
        help="the names of the classes 0, 1, …, of a model or of data that has only their numbers: a file with a name "
        "per line, or names separated by commas",
    )
    whole.add_argument("--no-labels", action="store_true", help="predict only: the data has no labels")
    return whole


def files_of(data: str, labels: bool) -> str | list[str]:
    """The list on rank 0's standard input for "-": lines, or what `find -print0` writes. Of a training program's
    --data-dir what it evaluates with, if that has labels."""
    if data != "-":
        evaluated = _core.DataFiles(0).find_evaluated(os.fsencode(data)) if labels else []
        if len(evaluated) == 1:
            return os.fsdecode(evaluated[0])
        return [os.fsdecode(file) for file in evaluated] or data
    lines: list[bytes] = []
    if ranks.rank() == 0:
        text = sys.stdin.buffer.read()
        lines = [line for line in (text.split(b"\0") if b"\0" in text else text.splitlines()) if line.strip()]
    lines = ranks.broadcast_object(lines, name="score.files")
    if not lines:
        hint = "; `gyre run --stdin 0` passes it to rank 0" if ranks.size() > 1 else ""
        raise InvalidArgumentError(f"the list of files on standard input is empty{hint}")
    return [os.fsdecode(line) for line in lines]


def format_of(files: str | list[str], labels: bool) -> str:
    """Without labels folders of images have no classes, but images at any depth."""
    if labels:
        return "auto"
    if isinstance(files, list):
        return "images" if any(os.path.isdir(file) for file in files) else "auto"
    whole = os.path.isdir(files) and _core.DataFiles(0).find(os.fsencode(files)) == [os.fsencode(files)]
    return "images" if whole else "auto"


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
            resize=description.resize,
            mean=description.mean,
            std=description.std,
            dtype=description.pixels,
            key=_IMAGENET_IMAGE if imagenet else "image",
        )
    }
    if not labels:
        return fields
    return {**fields, "label": ints(key=_IMAGENET_LABEL, offset=-1) if imagenet else ints(key="label")}


def open_data(files: str | list[str], arguments: argparse.Namespace, description: Description) -> Loader:
    """ImageNet's TFRecord files have names of their own for the features."""
    labels = not arguments.no_labels

    def opened(imagenet: bool, labels: bool) -> Loader:
        return Loader(
            files,
            fields_of(description, imagenet, labels),
            batch_size=arguments.batch_size,
            shuffle=False,
            format=format_of(files, labels),
            classes=description.classes,
        )

    try:
        return opened(imagenet=False, labels=labels)
    except Error as error:
        if description.input == "image":
            with contextlib.suppress(Error):
                return opened(imagenet=True, labels=labels)
        if labels and _can_be_opened(lambda: opened(imagenet=False, labels=False)):
            raise InvalidArgumentError(f"{error}; to predict without labels, add --no-labels") from error
        raise


def _can_be_opened(attempt: Callable[[], Loader]) -> bool:
    try:
        attempt()
    except Error:
        return False
    return True


def _normalised(pixels: Tensor, description: Description) -> Tensor:
    mean, std = (torch.tensor(of_channels).view(-1, 1, 1) for of_channels in (description.mean, description.std))
    return (pixels / 255 - mean) / std


def input_of(batch: Any, description: Description) -> Tensor:
    values: Tensor = batch["input"]
    if description.input == "image":
        return _normalised(values, description) if description.pixels == "uint8" else values
    volumes = values.permute(0, 4, 1, 2, 3)
    return volumes if description.transform == "log1p" else volumes / volumes.mean((1, 2, 3, 4), keepdim=True)


class Classes:
    """For a classifier: the columns of a line, and the sums."""

    def __init__(self, labels: bool, names: ClassNames) -> None:
        self._labels = labels
        self._names = names
        self._correct = 0
        self._counted = 0
        self._samples = 0
        self._unknown: set[str] = set()

    def header(self) -> list[str]:
        if self._labels:
            return ["sample", "label", "predicted", "probability", "file", "class", "predicted_class"]
        return ["sample", "predicted", "probability", "file", "predicted_class"]

    def lines(self, answers: Tensor, labels: Tensor | None, names: Sequence[str]) -> Iterator[list[object]]:
        probabilities, predicted = answers.softmax(1).max(1)
        for i, name in enumerate(names):
            answer = int(predicted[i])
            own: list[object] = []
            own_name: list[object] = []
            if labels is not None:
                label = self._names.class_of(int(labels[i]))
                known = self._names.is_known(label)
                self._samples += 1
                self._counted += known
                self._correct += label == answer
                if not known and not self._names.is_counted(label):
                    self._unknown.add(self._names.name(label))
                own, own_name = [label if known else ""], [self._names.name(label)]
            yield [*own, answer, f"{float(probabilities[i]):.6g}", name, *own_name, self._names.name(answer)]

    def summary(self) -> str:
        """MISMATCH if no label is one of the model's."""
        if not self._counted:
            raise MismatchError(
                f"no label of the data is a class of the model ({self._names.numbers}): {self._shown_unknown()}"
            )
        of = f" of the {quantity(self._counted, 'image')} with a class of the model"
        return f"accuracy {self._correct / self._counted:.4f}{of if self._counted < self._samples else ''}"

    def remarks(self) -> list[str]:
        if not self._labels:
            return []
        unknown = [f"labels that the model does not have, and not counted: {self._shown_unknown()}"]
        return [*self._names.remarks, *(unknown if self._unknown else [])]

    def _shown_unknown(self) -> str:
        return shown(sorted(self._unknown, key=lambda name: (len(name), name) if name.isdigit() else (0, name)))


class Values:
    """The same for a regression network."""

    def __init__(self, labels: bool, targets: int) -> None:
        self._labels = labels
        self._targets = targets
        self._error = 0.0
        self._samples = 0

    def header(self) -> list[str]:
        numbers = range(1, self._targets + 1)
        return ["sample", *(f"y{i}" for i in numbers if self._labels), *(f"predicted{i}" for i in numbers), "file"]

    def lines(self, answers: Tensor, labels: Tensor | None, names: Sequence[str]) -> Iterator[list[object]]:
        self._samples += len(answers)
        if labels is not None:
            self._error += float((answers - labels).abs().mean(1).sum())
        for i, name in enumerate(names):
            own = [] if labels is None else labels[i].tolist()
            yield [*(f"{value:.6g}" for value in (*own, *answers[i].tolist())), name]

    def summary(self) -> str:
        return f"mean absolute error {self._error / self._samples:.4f}"

    def remarks(self) -> list[str]:
        return []


def gathered(values: Tensor, counted: Sequence[int]) -> Tensor:
    """All ranks' rows that count, in rank order."""
    whole = ranks.allgather(values.contiguous(), name="score") if ranks.size() > 1 else values
    size = len(values)
    return torch.cat([whole[rank * size : rank * size + count] for rank, count in enumerate(counted)])


def check_finite(answers: Tensor, model: Path, loader: Loader, first: int) -> None:
    """CORRUPT_DATA on all ranks, which have the same answers, with the first sample whose answer is not finite.
    `first`: the number of the first answer's sample."""
    broken = (~answers.isfinite()).flatten(1).any(1).nonzero()
    if len(broken) == 0:
        return
    name = loader.name_of(first + int(broken[0]))
    raise CorruptDataError(
        f"{model} has no prediction for {name}: the network's answer is not finite. Its weights may be finite and yet "
        "too large to compute with (its training diverged), or the sample is broken"
    )


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
        check_finite(answers, model.path, loader, done)
        labels = gathered(batch["label"], counted) if "label" in batch else None
        if ranks.rank() == 0:
            names = [loader.name_of(done + i) for i in range(here)]
            for number, line in enumerate(table.lines(answers, labels, names)):
                writer.writerow([done + number, *line])
        done += here
    return done


class _NoWriter:
    def writerow(self, row: object) -> None:
        """No output was requested."""


def stated_names(arguments: argparse.Namespace, description: Description) -> StatedNames | None:
    """Of --class-names. INVALID_ARGUMENT if they cannot be those of this model."""
    if arguments.class_names is None:
        return None
    if description.input == "volume":
        raise InvalidArgumentError("--class-names is for networks that classify; this one predicts numbers")
    stated = read_names(arguments.class_names)
    count = int(description.arguments["classes"])
    if not description.classes and len(stated.names) != count:
        raise InvalidArgumentError(f"--class-names has {len(stated.names)} names, and the model {count} classes")
    return stated


def run(arguments: argparse.Namespace) -> str:
    """The text that rank 0 prints at the end; empty on the others."""
    model = load_model(arguments.model)
    labels = not arguments.no_labels
    is_volume = model.description.input == "volume"
    stated = stated_names(arguments, model.description)
    description = model.description
    if stated and not description.classes:
        description = replace(description, classes=stated.names)
    files = files_of(arguments.data, labels)
    loader = open_data(files, arguments, description)
    if stated and model.description.classes and loader.classes:
        raise InvalidArgumentError("leave out --class-names: both the model and the data name their classes")
    table: Classes | Values
    if is_volume:
        table = Values(labels, int(description.arguments["targets"]))
    else:
        table = Classes(labels, ClassNames(description, loader, stated or names_beside(files), labels))
    started = time.monotonic()
    if ranks.rank() > 0:
        score(model, loader, table, _NoWriter())
        return ""
    if arguments.out:
        done = write_scores(model, loader, table, Path(arguments.out))
    else:
        done = score(model, loader, table, _NoWriter() if labels else _lines_of(sys.stdout, table))
    words = [f"{quantity(done, 'volume' if is_volume else 'image')} in {time.monotonic() - started:.1f} s"]
    if labels:
        words.append(table.summary())
    first = f"{model.path}: {', '.join(words)}" + (f"; each in {arguments.out}" if arguments.out else "")
    left_out = [f"left out: {loader.left_out}"] if loader.left_out else []
    chosen = files[0] if isinstance(files, list) else files
    inside = [f"scored of {arguments.data}: {chosen}"] if arguments.data not in ("-", chosen) else []
    return "\n".join([first, *inside, *left_out, *table.remarks()])


def _lines_of(file: TextIO, table: Classes | Values) -> Any:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table.header())
    return writer


def write_scores(model: SavedModel, loader: Loader, table: Classes | Values, out: Path) -> int:
    """The file appears once it is complete."""
    unfinished = out.with_name(f"{out.name}.{secrets.token_hex(8)}.part")
    try:
        # The names of files are bytes, and may be none of any text.
        with unfinished.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            done = score(model, loader, table, _lines_of(file, table))
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
            # Standard output may be the table.
            print(said, file=sys.stderr if arguments.no_labels and not arguments.out else sys.stdout)
        ranks.shutdown()
    except (Error, OSError) as error:
        print(f"gyre score: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
