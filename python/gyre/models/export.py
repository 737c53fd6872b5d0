"""The command line of `gyre export`."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gyre._command_line import Parser
from gyre.core import _core
from gyre.errors import CorruptDataError, Error, InvalidArgumentError
from gyre.models.layers import OWN
from gyre.models.networks import Layer, Network
from gyre.models.saved import (
    DEFINITION,
    DESCRIPTION,
    INSIDE,
    PROGRAM,
    WEIGHTS,
    Description,
    SavedModel,
    load_model,
)

_EPILOG = """\
MODEL is a checkpoint of gyre-cifar10, gyre-resnet50 or gyre-cosmoflow, or a run's folder, whose newest one is used.
These files are written to DIR:

  model.safetensors  the weights
  model.py           the network's definition, which needs only PyTorch (and safetensors to load the weights)
  model.pt2          the same as a torch.export program, for batches of any size
  model.json         the kind of network, and how its input is preprocessed

Example:
  gyre export /tmp/resnet --out resnet50

Exit code: 0; 1 if MODEL cannot be read or DIR cannot be written; 2 for an invalid option."""

_DEFINITION = '''\
"""{name},
as `gyre export` wrote it. This file needs only PyTorch, and safetensors to load the weights."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

{classes}
def make() -> nn.Module:
    """The network, untrained."""
    return {network}


def load(folder: str) -> nn.Module:
    """The network with the weights beside this file, ready to predict."""
    from safetensors.torch import load_file

    network = make()
    network.load_state_dict(load_file(Path(folder) / "{weights}"))
    return network.eval()
'''


def parser() -> Parser:
    whole = Parser(
        prog="gyre export",
        description="Writes a trained network for others to use.",
        epilog=_EPILOG,
        raw=True,
    )
    whole.add_argument("model", metavar="MODEL", help="a checkpoint, or the folder of a run")
    whole.add_argument("--out", required=True, metavar="DIR", help="folder to write to; created if needed")
    return whole


def definition_of(network: Network, description: Description) -> str:
    """The source of the network, and a function that loads it."""
    own = [kind for kind in OWN.values() if any(isinstance(module, kind) for module in network.modules())]
    return _DEFINITION.format(
        name=description.words(),
        classes="".join(f"\n{inspect.getsource(kind)}\n" for kind in own),
        network=_source_of(network.definition, "Sequential", "    "),
        weights=WEIGHTS,
    )


def _source_of(inner: Sequence[Layer], kind: str, indentation: str) -> str:
    """An expression that makes the module."""
    lines = [f"{_class(kind)}(OrderedDict(["]
    for name, inner_kind, arguments, own in inner:
        if own:
            made = _source_of(own, inner_kind, indentation + "    ")
        else:
            made = f"{_class(inner_kind)}({', '.join(f'{key}={_literal(value)}' for key, value in arguments.items())})"
        lines.append(f"{indentation}    ({_literal(name)}, {made}),")
    return "\n".join([*lines, f"{indentation}]))"])


def _literal(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _class(kind: str) -> str:
    return kind if kind in OWN else f"nn.{kind}"


def program_of(network: nn.Module, description: Description) -> torch.export.ExportedProgram:
    # A batch of one would be treated as a fixed size.
    example = torch.zeros(2, *description.shape)
    return torch.export.export(network, (example,), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))


def check_computes(network: nn.Module, description: Description, path: Path) -> None:
    """CORRUPT_DATA if the weights are too large to compute with: each of them may be finite."""
    example = torch.rand(2, *description.shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        answers = network(example)
    if not bool(answers.isfinite().all()):
        raise CorruptDataError(
            f"{path}: the network's answer to random input is not finite: its weights are too large to compute with, "
            "because its training diverged"
        )


def _bytes_of(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().numpy().tobytes()


def export(model: SavedModel, folder: Path) -> None:
    """Writes the four files. Errors: INVALID_ARGUMENT if `folder` already holds a network; CORRUPT_DATA if the network
    computes nothing finite; OSError."""
    if not isinstance(model.network, Network):
        raise InvalidArgumentError(
            f"{model.path} is already an exported program; export the run or checkpoint that it was made from"
        )
    if (folder / DESCRIPTION).exists():
        raise InvalidArgumentError(f"{folder} already holds an exported network; choose another folder")
    description = model.description
    check_computes(model.network, description, model.path)
    folder.mkdir(parents=True, exist_ok=True)
    state = model.network.state_dict()
    tensors = [
        (name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), _bytes_of(tensor))
        for name, tensor in state.items()
    ]
    inside = {INSIDE: description.to_json()}
    (folder / WEIGHTS).write_bytes(_core.encode_checkpoint(inside, tensors))
    (folder / DEFINITION).write_text(definition_of(model.network, description), encoding="utf-8")
    torch.export.save(program_of(model.network, description), folder / PROGRAM, extra_files=inside)
    # Written last: if it exists, the other files are complete.
    (folder / DESCRIPTION).write_text(description.to_json(), encoding="utf-8")


def main(words_given: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(words_given)
    try:
        model = load_model(arguments.model)
        export(model, Path(arguments.out))
    except (Error, OSError) as error:
        print(f"gyre export: {error}", file=sys.stderr)
        return 1
    print(f"{arguments.out}: {model.description.words()} from {model.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
