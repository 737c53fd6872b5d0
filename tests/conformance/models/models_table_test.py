"""Each network in C++ and in Python: the same first weights bit for bit, and answers, gradients and running statistics
that agree tensor by tensor. Both are made of one definition (docs/adr/0083); torch.nn's modules compute one of them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from gyre.core import _core
from torch import Tensor, nn

import gyre.models

ROOT = Path(__file__).resolve().parents[3]
IN_CPP = ROOT / "build/release/tests/conformance/models/gyre_network_values"
COSMOFLOW = {"size": 8, "channels": 2, "convolutions": 2, "conv_size": 4, "kernel_size": 3}
COSMOFLOW |= {"fc1_size": 10, "fc2_size": 6, "targets": 3}

Case = tuple[str, dict[str, Any], bool, tuple[int, ...]]
# The network, its arguments, whether it is in training mode, and the shape of the input. In training mode, where
# dropouts of the two draw from generators of their own, only networks without one are compared.
CASES: dict[str, Case] = {
    "cifar10": ("Cifar10Cnn", {"image_size": 32, "classes": 10}, False, (4, 3, 32, 32)),
    "cifar10 of another size": ("Cifar10Cnn", {"image_size": 19, "classes": 3}, False, (2, 3, 19, 19)),
    "cosmoflow": ("CosmoFlow", {**COSMOFLOW, "dropout": 0.5}, False, (3, 2, 8, 8, 8)),
    "cosmoflow without dropout": ("CosmoFlow", {**COSMOFLOW, "dropout": 0.0}, True, (3, 2, 8, 8, 8)),
    "cosmoflow of v0.7": ("CosmoFlow", {**COSMOFLOW, "kernel_size": 2, "dropout": 0.0}, True, (3, 2, 8, 8, 8)),
    "resnet": ("ResNet", {"depth": 14, "version": "v1.5", "classes": 10}, True, (4, 3, 64, 64)),
    "resnet v1": ("ResNet", {"depth": 26, "version": "v1", "classes": 7}, True, (4, 3, 64, 64)),
    "resnet that predicts": ("ResNet", {"depth": 14, "version": "v1.5", "classes": 10}, False, (2, 3, 64, 64)),
    "vgg16": ("Vgg16", {"image_size": 32, "classes": 4}, False, (2, 3, 32, 32)),
}


def encoded(tensors: dict[str, Tensor]) -> bytes:
    listed = [(name, "float32", list(tensor.shape), tensor.numpy().tobytes()) for name, tensor in tensors.items()]
    return _core.encode_checkpoint({}, listed)


def in_cpp(case: Case, seed: int, given: dict[str, Tensor], folder: Path) -> dict[str, dict[str, Tensor]]:
    """By kind and name."""
    network, arguments, training, _ = case
    chosen = {"network": network, "arguments": arguments, "training": training, "seed": seed}
    (folder / "given").write_bytes(encoded(given))
    command = [str(IN_CPP), json.dumps(chosen), str(folder / "given"), str(folder / "found")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Tensor]] = {}
    for whole, _, shape, data in _core.read_checkpoint(str(folder / "found"))[1]:
        kind, _, name = whole.partition("/")
        found.setdefault(kind, {})[name] = torch.frombuffer(bytearray(data), dtype=torch.float32).view(shape)
    return found


def state_of(network: nn.Module) -> dict[str, Tensor]:
    state = network.state_dict()
    return {name: tensor.clone() for name, tensor in state.items() if not name.endswith("num_batches_tracked")}


def in_python(case: Case, seed: int, given: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    name, arguments, training, _ = case
    network: nn.Module = getattr(gyre.models, name)(**arguments, seed=seed).train(training)
    first = state_of(network)
    answers = network(given["input"])
    (answers * given["weights"]).sum().backward()
    gradients = {name: parameter.grad for name, parameter in network.named_parameters() if parameter.grad is not None}
    return {"first": first, "answers": {"all": answers.detach()}, "after": state_of(network), "gradient": gradients}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_both_languages_have_the_same_network(case: Case, tmp_path: Path) -> None:
    name, arguments, _, shape = case
    generator = torch.Generator().manual_seed(3)
    outputs = arguments["targets"] if name == "CosmoFlow" else arguments["classes"]
    given = {
        "input": torch.randn(shape, generator=generator),
        "weights": torch.randn((shape[0], outputs), generator=generator),
    }
    seed = 2**40 + 5
    cpp, python = in_cpp(case, seed, given, tmp_path), in_python(case, seed, given)
    assert {kind: set(tensors) for kind, tensors in cpp.items()} == {kind: set(own) for kind, own in python.items()}
    for tensor, values in python["first"].items():
        assert torch.equal(values, cpp["first"][tensor]), tensor
    for kind in ("answers", "after", "gradient"):
        for tensor, values in python[kind].items():
            scale = float(values.abs().max())
            torch.testing.assert_close(
                values,
                cpp[kind][tensor],
                rtol=1e-4,
                atol=1e-5 * max(scale, 1e-3),
                msg=lambda text, at=tensor: f"{at}: {text}",
            )


def test_the_order_of_the_parameters_is_that_of_cpp(tmp_path: Path) -> None:
    """An optimizer's state refers to parameters by number."""
    case = CASES["resnet"]
    given = {"input": torch.zeros(case[3]), "weights": torch.zeros(case[3][0], 10)}
    cpp = in_cpp(case, 1, given, tmp_path)
    python = in_python(case, 1, given)
    assert list(cpp["gradient"]) == list(python["gradient"])
