"""The command line of `gyre export`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from gyre._command_line import Parser
from gyre.core import _core
from gyre.errors import Error, InvalidArgumentError
from gyre.models.saved import (
    DEFINITION,
    DESCRIPTION,
    INSIDE,
    NETWORKS,
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

_LOAD = '''

def load(folder: str) -> {network}:
    """The network with the weights beside this file, ready to predict."""
    from pathlib import Path

    from safetensors.torch import load_file

    network = {network}({arguments})
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


def definition_of(description: Description) -> str:
    """The source of the network, and a function that loads it."""
    network = NETWORKS[description.network]
    source = inspect.getsource(sys.modules[network.__module__])
    arguments = ", ".join(f"{name}={value!r}" for name, value in description.arguments.items())
    return source + _LOAD.format(network=description.network, arguments=arguments, weights=WEIGHTS)


def program_of(network: nn.Module, description: Description) -> torch.export.ExportedProgram:
    # A batch of one would be treated as a fixed size.
    example = torch.zeros(2, *description.shape)
    return torch.export.export(network, (example,), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))


def _bytes_of(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().numpy().tobytes()


def export(model: SavedModel, folder: Path) -> None:
    """Writes the four files. Errors: INVALID_ARGUMENT if `folder` already holds a network; OSError."""
    if not isinstance(model.network, nn.Module):
        raise InvalidArgumentError(
            f"{model.path} is already an exported program; export the run or checkpoint that it was made from"
        )
    if (folder / DESCRIPTION).exists():
        raise InvalidArgumentError(f"{folder} already holds an exported network; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    description = model.description
    state = model.network.state_dict()
    tensors = [
        (name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), _bytes_of(tensor))
        for name, tensor in state.items()
    ]
    inside = {INSIDE: description.to_json()}
    (folder / WEIGHTS).write_bytes(_core.encode_checkpoint(inside, tensors))
    (folder / DEFINITION).write_text(definition_of(description), encoding="utf-8")
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
    description = model.description
    values = ", ".join(f"{name} {value}" for name, value in description.arguments.items())
    print(f"{arguments.out}: {description.network}{f' ({values})' if values else ''} from {model.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
