"""The names of classes, a model's and a data set's, for `gyre score`."""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gyre.core import _core
from gyre.data import Loader
from gyre.errors import InvalidArgumentError, MismatchError
from gyre.models.saved import Description


@dataclass(frozen=True)
class StatedNames:
    """names: of the labels 0, 1, …. source: where they are from, in messages."""

    names: tuple[str, ...]
    source: str


def read_names(text: str) -> StatedNames:
    """The value of --class-names. INVALID_ARGUMENT for an unreadable file, and for names that are not distinct."""
    if Path(text).is_file():
        return _checked(_lines_of(Path(text)), text)
    if "," not in text:
        raise InvalidArgumentError(f"--class-names: {text} is neither a file nor a list of names separated by commas")
    return _checked([name.strip() for name in text.split(",")], "--class-names")


def names_beside(files: str | Sequence[str]) -> StatedNames | None:
    """Those that CIFAR-10's archives have for their numbers, in the folder of its files."""
    places = [files] if isinstance(files, str) else files
    folders = {place if os.path.isdir(place) else os.path.dirname(place) for place in places}
    if len(folders) > 1 or any(os.path.splitext(place)[1] not in ("", ".bin") for place in places):
        return None
    folder = folders.pop() or os.curdir
    names = _core.DataFiles(0).cifar10_class_names(os.fsencode(folder))
    source = f"CIFAR-10's batches.meta in {folder}"
    return _checked([name.decode("utf-8", "surrogateescape") for name in names], source) if names else None


def _lines_of(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError as error:
        raise InvalidArgumentError(f"{path} cannot be read: {error.strerror}") from error
    return [line.strip() for line in lines if line.strip()]


def _checked(names: Sequence[str], source: str) -> StatedNames:
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice or not all(names) or not names:
        raise InvalidArgumentError(
            f"{source} has {f'the class {twice[0]} twice' if twice else 'a class without a name'}: each number needs a "
            "name of its own"
        )
    return StatedNames(tuple(names), source)


class ClassNames:
    """The names of the classes, the model's and the data's, which are compared by name; by number only where neither
    side has names."""

    def __init__(self, description: Description, loader: Loader, stated: StatedNames | None, labels: bool) -> None:
        """`stated`: of the data's numbers, if it has only these. MISMATCH if the data has none of the model's classes,
        or they cannot be compared."""
        self._count = int(description.arguments["classes"])
        self._names = list(description.classes)
        self._there = loader.samples_per_class
        self._remarks: list[str] = []
        # By the data's number, the class in self._names; None: the data counts as self._names does.
        self._class_of: list[int] | None = None
        if not labels:
            return
        if loader.classes and not self._names:
            raise MismatchError(
                f"the model has {self._count} classes without names, because it was not trained on class folders, and "
                f"the data has {len(loader.classes)} folders ({shown(loader.classes)}): it cannot be known which is "
                "which. State the names of the model's classes with --class-names"
            )
        if self._names and not loader.classes:
            self._name_numbers(stated)
        self._names += loader.classes[len(self._names) :]
        if self._there and description.classes:
            self._compare()

    def _name_numbers(self, stated: StatedNames | None) -> None:
        if stated is None:
            raise MismatchError(
                f"the model's classes have names ({shown(self._names)}), and the data's labels are numbers: it cannot "
                "be known which is which. State the names of the numbers with --class-names"
            )
        self._class_of = []
        for name in stated.names:
            if name not in self._names:
                self._names.append(name)
            self._class_of.append(self._names.index(name))
        if min(self._class_of) >= self._count:
            raise MismatchError(
                f"the data has none of the model's classes: by {stated.source} it has {shown(stated.names)}, and the "
                f"model was trained with {shown(self._names[: self._count])}"
            )
        self._remarks.append(f"the data's labels have the names of {stated.source}: {shown(stated.names)}")

    def _compare(self) -> None:
        known = list(zip(self._names, self._there, strict=True))
        missing = [name for name, images in known[: self._count] if images == 0]
        unknown = known[self._count :]
        if len(missing) == self._count:
            raise MismatchError(
                f"the data has none of the model's classes: it has {shown([name for name, _ in unknown])}, and the "
                f"model was trained with {shown(self._names[: self._count])}"
            )
        if unknown:
            described = shown([f"{name} ({quantity(images, 'image')})" for name, images in unknown])
            self._remarks.append(f"unknown to the model, and not counted: {described}")
        by_letters = {unicodedata.normalize("NFC", name): name for name in missing}
        for name, _ in unknown:
            if unicodedata.normalize("NFC", name) in by_letters:
                self._remarks.append(
                    f"the folder {name} and the model's class of that name have other bytes for the same letters "
                    "(Unicode NFC and NFD); rename the folder, so that its images count"
                )
        if missing:
            self._remarks.append(f"without an image: {shown(missing)} ({len(missing)} of {self._count} classes)")

    @property
    def remarks(self) -> list[str]:
        return self._remarks

    def class_of(self, label: int) -> int:
        """MISMATCH for a number of the data that has no name, where the others have."""
        if self._class_of is None:
            return label
        if not 0 <= label < len(self._class_of):
            raise MismatchError(
                f"the data has the label {label}, and there are names for 0 to {len(self._class_of) - 1} only: state a "
                "name for each number with --class-names"
            )
        return self._class_of[label]

    def is_known(self, label: int) -> bool:
        return 0 <= label < self._count

    def is_counted(self, label: int) -> bool:
        """Whether a remark says how many images the class has."""
        return bool(self._there) and 0 <= label < len(self._names)

    @property
    def numbers(self) -> str:
        return f"0 to {self._count - 1}"

    def name(self, label: int) -> str:
        """The number where there is no name."""
        return self._names[label] if 0 <= label < len(self._names) else str(label)


def quantity(count: int, one: str) -> str:
    return f"{count} {one}" + ("" if count == 1 else "s")


def shown(names: Sequence[str]) -> str:
    most = 5
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")
