"""The networks of gyre.models are modules as torch.nn's own, and those of the programs. tests/conformance/models
compares their values with C++."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch
from gyre.errors import InvalidArgumentError
from gyre.models.networks import Network
from torch import Tensor, nn

from gyre.models import Cifar10Cnn, CosmoFlow, ResNet, Vgg16

SMALL: dict[str, tuple[Callable[..., Network], tuple[int, ...]]] = {
    "cifar10": (lambda seed=1: Cifar10Cnn(seed=seed), (2, 3, 32, 32)),
    "cosmoflow": (
        lambda seed=1: CosmoFlow(8, 2, convolutions=2, conv_size=4, kernel_size=2, fc1_size=8, fc2_size=6, seed=seed),
        (2, 2, 8, 8, 8),
    ),
    "resnet": (lambda seed=1: ResNet(14, classes=10, seed=seed), (2, 3, 64, 64)),
}
each_network = pytest.mark.parametrize(("make", "shape"), SMALL.values(), ids=SMALL)


def size_of(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def same_state(a: nn.Module, b: nn.Module) -> bool:
    others = b.state_dict()
    return all(torch.equal(tensor, others[name]) for name, tensor in a.state_dict().items())


def test_cosmoflow_is_that_of_mlperf_hpc_1_0() -> None:
    """Its documentation said so, and its kernel was version 0.7's."""
    assert size_of(CosmoFlow(seed=None)) == 8_907_556
    assert size_of(CosmoFlow(kernel_size=2, seed=None)) == 5_597_604
    convolution = CosmoFlow(seed=None).get_submodule("conv1")
    assert isinstance(convolution, nn.Conv3d)
    assert convolution.kernel_size == (3, 3, 3)


def test_the_networks_have_the_published_sizes() -> None:
    assert size_of(ResNet(seed=None)) == 25_557_032
    assert size_of(Cifar10Cnn(seed=None)) == 1_250_858
    with torch.device("meta"):
        assert size_of(Vgg16()) == 138_357_544


@each_network
def test_a_seed_is_the_whole_of_the_first_values(make: Callable[..., Network], shape: tuple[int, ...]) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    one = make()
    assert torch.equal(torch.rand(3), expected), "torch's generator is the caller's"
    assert same_state(one, make())
    assert not same_state(one, make(2))
    assert one.training
    assert one(torch.rand(shape)).shape[0] == shape[0]


def test_without_a_seed_all_parameters_are_zero() -> None:
    assert all(not parameter.any() for parameter in Cifar10Cnn(seed=None).parameters())


@each_network
def test_networks_are_copied_pickled_saved_and_loaded(make: Callable[..., Network], shape: tuple[int, ...]) -> None:
    network = make(3).eval()
    inputs = torch.rand(shape)
    expected = network(inputs)
    file = io.BytesIO()
    torch.save(network.state_dict(), file)
    file.seek(0)
    loaded = make(None).eval()
    loaded.load_state_dict(torch.load(file))
    for other in (copy.deepcopy(network), pickle.loads(pickle.dumps(network)), loaded):
        assert type(other) is type(network)
        assert torch.equal(other(inputs), expected)


@each_network
def test_networks_are_scripted_traced_and_exported(make: Callable[..., Network], shape: tuple[int, ...]) -> None:
    network = make(3).eval()
    inputs = torch.rand(shape)
    expected = network(inputs)
    torch.testing.assert_close(torch.jit.script(network)(inputs), expected)
    torch.testing.assert_close(torch.jit.trace(network, inputs)(inputs), expected)
    torch.testing.assert_close(torch.export.export(network, (inputs,)).module()(inputs), expected)


@each_network
def test_parameters_can_be_replaced(make: Callable[..., Network], shape: tuple[int, ...]) -> None:
    """What torch.func, FSDP and others do, and a binding of C++ modules cannot."""
    network = make(3).eval()
    inputs = torch.rand(shape)
    zeros = {name: torch.zeros_like(parameter) for name, parameter in network.named_parameters()}
    answers: Tensor = torch.func.functional_call(network, zeros, (inputs,))
    assert not answers.any()
    assert network(inputs).any()


@pytest.mark.parametrize("make", [make for make, _ in SMALL.values()], ids=SMALL)
def test_devices_and_types_are_those_of_torch(make: Callable[..., Network]) -> None:
    network = make(3)
    with torch.device("meta"):
        on_meta = make(3)
    assert all(tensor.is_meta for tensor in on_meta.state_dict().values())
    torch.set_default_dtype(torch.float64)
    try:
        doubled = make(3)
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(parameter.dtype == torch.float64 for parameter in doubled.parameters())
    assert same_state(network.to(torch.float64), doubled)


def test_evaluation_drops_nothing_out_and_training_does() -> None:
    for network, shape in ((Cifar10Cnn(), (2, 3, 32, 32)), (CosmoFlow(32, conv_size=2), (2, 4, 32, 32, 32))):
        inputs = torch.rand(shape)
        assert not torch.equal(network(inputs), network(inputs))
        network.eval()
        assert torch.equal(network(inputs), network(inputs))


def test_layers_have_torchvisions_names_and_a_slice_is_a_sequence() -> None:
    network = ResNet(14, classes=10).eval()
    stage = network.get_submodule("layer2.0")
    assert [name for name, _ in stage.named_children()][-2:] == ["bn3", "downsample"]
    features = network[:-1]
    assert type(features) is nn.Sequential
    assert features(torch.rand(2, 3, 64, 64)).shape == (2, 2048)
    assert isinstance(network[0], nn.Conv2d)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ResNet(34), "there is no ResNet-34"),
        (lambda: ResNet(version="v2"), "there is no ResNet v2"),
        (lambda: CosmoFlow(48), "multiple of 32"),
        (lambda: CosmoFlow(dropout=1.0), "below 1"),
        (lambda: Cifar10Cnn(9), "the size of the images is 9"),
    ],
)
def test_what_is_no_network_is_refused(make: Callable[[], Network], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        make()
