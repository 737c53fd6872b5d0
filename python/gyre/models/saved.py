"""Trained networks in files: the training programs' checkpoints, and the output of `gyre export`."""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gyre.core import _core
from gyre.data import IMAGENET_MEAN, IMAGENET_STD
from gyre.errors import CorruptDataError, Error, InvalidArgumentError, NotFoundError
from gyre.models.networks import Cifar10Cnn, CosmoFlow, Network, ResNet

DESCRIPTION = "model.json"
WEIGHTS = "model.safetensors"
PROGRAM = "model.pt2"
DEFINITION = "model.py"
# The metadata name of the description in exported weights and programs.
INSIDE = "gyre.json"

_CHECKPOINT = re.compile(r"checkpoint-[0-9]{8,}\.safetensors")
_WORKER = re.compile(r"worker-(?P<worker>[0-9]+)")
_COSMOFLOW = re.compile(
    r"size (?P<size>\d+) channels (?P<channels>\d+) conv (?P<convolutions>\d+)x(?P<conv_size>\d+) "
    r"kernel (?P<kernel_size>\d+) fc (?P<fc1_size>\d+) (?P<fc2_size>\d+) out (?P<targets>\d+)"
)
_TYPES = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64}
# Batch normalisation counts its batches, and nothing depends on it.
_NOT_SAVED = "num_batches_tracked"

NETWORKS: dict[str, Callable[..., Network]] = {cls.__name__: cls for cls in (Cifar10Cnn, CosmoFlow, ResNet)}


@dataclass(frozen=True)
class Description:
    """The kind of a network, and its input.

    network: its class in gyre.models, called with `arguments`.
    trained_by: the program and its version.
    input: "image" (normalised with `mean` and `std`), or "volume" (`transform`: "log1p", or "mean": divided by their
        mean).
    shape: of one input, without the batch.
    resize: pixels of an image's shorter side before its centre is cut out.
    pixels: "uint8" if the values of a resized image are rounded to whole numbers (of 0 to 255) before they are
        normalised, "float32" if not.
    classes: their names by label, if the training data had them (class folders).
    """

    network: str
    arguments: dict[str, int | float | str]
    trained_by: str
    input: str
    shape: tuple[int, ...]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    transform: str = ""
    resize: int = 0
    pixels: str = ""
    classes: tuple[str, ...] = ()

    def words(self) -> str:
        values = ", ".join(f"{name} {value}" for name, value in self.arguments.items())
        return f"{self.network} ({values})"

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str) -> Description:
        try:
            fields: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in json.loads(text).items()
            }
            # Older files do not say how images are resized.
            made = cls(**{**_resizing(fields["network"], fields["shape"][-1]), **fields})
            if made.network not in NETWORKS or made.input not in ("image", "volume"):
                raise ValueError(f"network {made.network!r}, input {made.input!r}")
        except (TypeError, ValueError, AttributeError, LookupError) as error:
            raise CorruptDataError(f"{where} does not describe a network of this version: {error}") from error
        return made

    def make(self, where: Path) -> nn.Module:
        """The network, without weights. CORRUPT_DATA, with `where`, if there is none with these arguments."""
        try:
            return NETWORKS[self.network](**self.arguments, seed=None)
        except (TypeError, ValueError, LookupError, ArithmeticError, RuntimeError) as error:
            raise CorruptDataError(f"{where}: there is no {self.network} with {self.arguments}: {error!r}") from error


@dataclass(frozen=True)
class SavedModel:
    """network: with its weights, ready to predict. description: its kind and input."""

    network: Callable[[Tensor], Tensor]
    description: Description
    path: Path


def load_model(path: str | os.PathLike[str]) -> SavedModel:
    """The network in `path`: a checkpoint, a run's folder (its newest checkpoint), a folder or a .pt2 file of
    `gyre export`. Errors: NOT_FOUND, CORRUPT_DATA (with the file), INVALID_ARGUMENT if it is none of these."""
    place = Path(path)
    if place.suffix == ".pt2":
        return _load_program(place)
    if (place / DESCRIPTION).is_file():
        text = (place / DESCRIPTION).read_text(encoding="utf-8", errors="replace")
        description = Description.from_json(text, str(place / DESCRIPTION))
        return SavedModel(_with_weights(description, place / WEIGHTS), description, place)
    checkpoint = newest_checkpoint(place)
    description = describe(_core.read_checkpoint(str(checkpoint))[0], checkpoint)
    return SavedModel(_with_weights(description, checkpoint), description, checkpoint)


def newest_checkpoint(place: Path) -> Path:
    """`place` itself, or the newest checkpoint in it or in its folder checkpoints."""
    if place.is_file():
        return place
    if not place.exists():
        raise NotFoundError(f"{place} does not exist")
    for folder in (place, place / "checkpoints"):
        found = sorted(file for file in folder.glob("checkpoint-*.safetensors") if _CHECKPOINT.fullmatch(file.name))
        if found:
            return max(found, key=lambda file: int(file.stem.rpartition("-")[2]))
    raise NotFoundError(f"{place} contains neither a checkpoint nor output of `gyre export`")


def describe(metadata: Mapping[str, str], where: Path) -> Description:
    """What a checkpoint, or a file of exported weights, holds."""
    if INSIDE in metadata:
        return Description.from_json(metadata[INSIDE], str(where))
    trained_by = metadata.get("program", "")
    describer = _DESCRIBERS.get(trained_by.partition(" ")[0])
    if describer is None:
        raise InvalidArgumentError(
            f"{where} was not written by one of {', '.join(_DESCRIBERS)}; only their networks are known here"
        )
    try:
        return replace(describer(metadata, trained_by), classes=_classes_in(metadata))
    except (KeyError, ValueError, AttributeError) as error:
        raise CorruptDataError(f"{where} does not say which network it holds: {error}") from error


def _classes_in(metadata: Mapping[str, str]) -> tuple[str, ...]:
    names = json.loads(metadata.get("classes", "[]"))
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"classes {metadata['classes']!r}")
    return tuple(names)


def _resizing(network: str, side: int) -> dict[str, Any]:
    """How the program that trains `network` makes images of `side` pixels for its evaluation."""
    if network == "Cifar10Cnn":  # Which is CIFAR-10's own files' form, too.
        return {"resize": side, "pixels": "uint8"}
    return {"resize": round(side * 8 / 7), "pixels": "float32"} if network == "ResNet" else {}


def _describe_cifar10(metadata: Mapping[str, str], trained_by: str) -> Description:
    none, all_of_it = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    # Checkpoints of version 0.1 do not say what it could not change.
    side = int(metadata.get("--image-size", "32"))
    arguments: dict[str, int | float | str] = {"image_size": side, "classes": int(metadata.get("--classes", "10"))}
    return Description(
        "Cifar10Cnn",
        arguments,
        trained_by,
        "image",
        (3, side, side),
        mean=none,
        std=all_of_it,
        **_resizing("Cifar10Cnn", side),
    )


def _describe_resnet50(metadata: Mapping[str, str], trained_by: str) -> Description:
    side = int(metadata["--image-size"])
    arguments: dict[str, int | float | str] = {
        "depth": int(metadata["--depth"]),
        "version": metadata["--resnet-version"],
        "classes": int(metadata["--classes"]),
    }
    return Description(
        "ResNet",
        arguments,
        trained_by,
        "image",
        (3, side, side),
        mean=tuple(IMAGENET_MEAN),
        std=tuple(IMAGENET_STD),
        **_resizing("ResNet", side),
    )


def _describe_cosmoflow(metadata: Mapping[str, str], trained_by: str) -> Description:
    found = _COSMOFLOW.fullmatch(metadata["network"])
    if found is None:
        raise ValueError(f"network {metadata['network']!r}")
    arguments: dict[str, int | float | str] = {name: int(value) for name, value in found.groupdict().items()}
    arguments["dropout"] = float(metadata["--dropout"])
    side = int(found["size"])
    transform = "log1p" if metadata["--apply-log"] == "true" else "mean"
    shape = (int(found["channels"]), side, side, side)
    return Description("CosmoFlow", arguments, trained_by, "volume", shape, transform=transform)


_DESCRIBERS = {
    "gyre-cifar10": _describe_cifar10,
    "gyre-resnet50": _describe_resnet50,
    "gyre-cosmoflow": _describe_cosmoflow,
}


def _with_weights(description: Description, path: Path) -> nn.Module:
    network = description.make(path)
    saved = {name: (kind, shape, data) for name, kind, shape, data in _core.read_checkpoint(str(path))[1]}
    if not saved.keys() & network.state_dict().keys():
        raise _without_network(path, description)
    weights = {}
    for name, tensor in network.state_dict().items():
        if name not in saved:
            if name.endswith(_NOT_SAVED):
                continue
            raise CorruptDataError(f"{path} has no tensor '{name}', which {description.network} needs")
        kind, shape, data = saved[name]
        if _TYPES.get(kind) != tensor.dtype or shape != list(tensor.shape):
            raise CorruptDataError(
                f"{path}: '{name}' is {kind} {shape}; {description.network} needs {tensor.dtype} {list(tensor.shape)}"
            )
        # frombuffer() does not accept an empty buffer, and no tensor here is empty.
        weights[name] = torch.frombuffer(bytearray(data), dtype=tensor.dtype).view(tensor.shape)
        if not weights[name].isfinite().all():
            raise CorruptDataError(f"{path}: '{name}' has values that are not finite: its training diverged")
    network.load_state_dict(weights, strict=False)
    return network.eval()


def _without_network(path: Path, description: Description) -> Error:
    """With parameter servers each worker's own optimizer is in a folder worker-N beside the job's checkpoints."""
    of_worker = _WORKER.fullmatch(path.absolute().parent.name)
    if of_worker is None:
        return CorruptDataError(f"{path} has none of the tensors of {description.network}")
    whole = path.absolute().parent.parent
    return InvalidArgumentError(
        f"{path} is the optimizer of worker {of_worker['worker']} alone, for --resume: the network is in {whole}"
    )


def _load_program(path: Path) -> SavedModel:
    if not path.is_file():
        raise NotFoundError(f"{path} does not exist")
    inside: dict[str, Any] = {INSIDE: ""}
    try:
        # torch.export logs a traceback of its own if the file is not one.
        if not zipfile.is_zipfile(path):
            raise ValueError("it is not an archive, or cut short")
        program = torch.export.load(path, extra_files=inside)
    except Exception as error:  # Any error of torch about a file that it did not write.
        raise CorruptDataError(f"{path} is not a torch.export program: {error}") from error
    if not inside[INSIDE]:
        raise InvalidArgumentError(f"{path} was not written by `gyre export`: it does not say what its input is")
    return SavedModel(program.module(), Description.from_json(inside[INSIDE], str(path)), path)
