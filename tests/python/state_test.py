"""State of one rank on every rank, without pickle."""

import math
import pickle

import gyre.torch as hvd
import numpy
import pytest
import torch
from checks import each, run_each
from gyre.errors import CorruptDataError, Error, InvalidArgumentError, MismatchError
from gyre.torch import _plain_data
from torch import nn
from torch.nn import functional

OPTIMIZERS = {
    "Adadelta": {},
    "Adafactor": {},
    "Adagrad": {"lr_decay": 0.1},
    "Adam": {"amsgrad": True, "betas": (0.8, 0.9)},
    "AdamW": {"lr": torch.tensor(0.01)},
    "Adamax": {},
    "ASGD": {"t0": 1},
    "LBFGS": {"history_size": 3, "max_iter": 3},
    "Muon": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {"centered": True, "momentum": 0.5},
    "Rprop": {},
    "SGD": {"momentum": 0.9, "nesterov": True},
    "SparseAdam": {},
}


def made(name: str, rank: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Each rank starts with other weights and options."""
    torch.manual_seed(rank)
    class_ = getattr(torch.optim, name)
    if name == "SparseAdam":
        network: nn.Module = nn.Embedding(5, 3, sparse=True)
    else:
        network = nn.Linear(4, 3, bias=name != "Muon")
    options = dict(OPTIMIZERS[name])
    if rank > 0 and name != "AdamW":
        options["lr"] = 0.5
    return network, class_(network.parameters(), **options)


def stepped(network: nn.Module, optimizer: torch.optim.Optimizer, count: int) -> None:
    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        if isinstance(network, nn.Embedding):
            loss = network(torch.tensor([0, 2])).square().sum()
        else:
            loss = functional.mse_loss(network(torch.arange(8.0).reshape(2, 4)), torch.ones(2, 3))
        loss.backward()
        return loss

    for _ in range(count):
        optimizer.step(closure)


def same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a.detach(), b.detach())
    if isinstance(a, numpy.ndarray):
        return isinstance(b, numpy.ndarray) and a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def every_optimizer_of_torch() -> None:
    classes = {
        name
        for name, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, torch.optim.Optimizer) and value is not torch.optim.Optimizer
    }
    assert classes == set(OPTIMIZERS), "torch has an optimizer that this test does not know"
    rank, size = hvd.rank(), hvd.size()
    root = size - 1
    for name in sorted(OPTIMIZERS):
        # The root has state that the others lack; others have state that the root lacks.
        for steps in ({root: 2}, {r: 1 for r in range(size) if r != root}, {root: 3, 0: 1}):
            network, optimizer = made(name, rank)
            stepped(network, optimizer, steps.get(rank, 0))
            reference_network, reference = made(name, root)
            stepped(reference_network, reference, steps.get(root, 0))
            hvd.broadcast_parameters(network.state_dict(), root_rank=root)
            hvd.broadcast_optimizer_state(optimizer, root_rank=root)
            assert same(network.state_dict(), reference_network.state_dict()), name
            assert same(optimizer.state_dict(), reference.state_dict()), (name, steps)
            # From here on all go the same way.
            stepped(network, optimizer, 2)
            stepped(reference_network, reference, 2)
            assert same(network.state_dict(), reference_network.state_dict()), name
            assert same(optimizer.state_dict(), reference.state_dict()), name


def wrapped_optimizer_and_tensor_identity() -> None:
    rank = hvd.rank()
    network, base = made("Adam", rank)
    stepped(network, base, 1)
    moments = [state["exp_avg"] for state in base.state.values()]
    optimizer = hvd.DistributedOptimizer(base, network.named_parameters())
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert next(state["exp_avg"] for state in optimizer.state.values()) is moments[0]
    stepped(network, optimizer, 1)


def optimizers_that_differ() -> None:
    rank = hvd.rank()
    name = "Adam" if rank == 0 else "SGD"
    with pytest.raises(MismatchError) as caught:
        hvd.broadcast_optimizer_state(made(name, rank)[1], root_rank=0)
    assert "Adam" in str(caught.value)
    assert "SGD" in str(caught.value)
    network, optimizer = made("Adam", rank)
    optimizer.param_groups[0]["custom"] = print if rank == 0 else None
    with pytest.raises(InvalidArgumentError) as refused:
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert ("builtin_function" if rank == 0 else "rank 0 cannot send") in str(refused.value)
    del network


def parameters_in_all_forms() -> None:
    rank = hvd.rank()
    torch.manual_seed(rank)
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    hvd.broadcast_parameters(network.named_parameters(), root_rank=0)
    hvd.broadcast_parameters(network.state_dict(), 0)
    hvd.broadcast_parameters([torch.nn.Parameter(torch.ones(2) * rank)], 0)
    torch.manual_seed(0)
    twin = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    assert same(network.state_dict(), twin.state_dict())
    with pytest.raises(ValueError, match="as a parameter"):
        hvd.broadcast_parameters({"a": torch.ones(1), "b": 3}, 0)
    for nothing in (3, torch.ones(2), None):
        with pytest.raises(ValueError, match=r"expected model\.state_dict"):
            hvd.broadcast_parameters(nothing, 0)
    wrong = {"a": torch.ones(2 + rank)}
    with pytest.raises(MismatchError, match=r"parameters\.a"):
        hvd.broadcast_parameters(wrong, 0)


OBJECT = {
    "none": None,
    "numbers": [1, -(2**70), 0.1, -0.0, math.inf, True, 2 + 3j],
    "text": "ä\n\0",
    "bytes": b"\x00\xff",
    (1, "key"): (torch.Size([2, 3]), torch.float16),
    3: {"tensor": torch.arange(3), "empty": torch.zeros(0, 2)},
    "arrays": [numpy.array(3.0), numpy.zeros((0, 2)), numpy.ones((2, 3), order="F"), numpy.array([[True], [False]])],
    "types of arrays": [numpy.array([1, 2], dtype) for dtype in ("uint16", "uint64", ">i4", "complex64", "U3", "S2")],
    "times": numpy.array(["2020-01-01", "NaT"], "datetime64[D]")[:1],
}


def objects() -> None:
    rank, size = hvd.rank(), hvd.size()
    assert same(hvd.broadcast_object(OBJECT if rank == 1 else None, root_rank=1), OBJECT)
    gathered = hvd.allgather_object({"rank": rank, "values": torch.arange(rank)})
    assert same(gathered, [{"rank": r, "values": torch.arange(r)} for r in range(size)])
    with pytest.raises(InvalidArgumentError):
        hvd.broadcast_object(object() if rank == 0 else 1, root_rank=0)
    assert hvd.broadcast_object(rank, root_rank=0) == 0


def what_the_root_cannot_send() -> None:
    """Whatever the reason, the other ranks, which wait for it, hear so."""
    for wrong in (torch.ones(2, device="meta"), torch.zeros(2, dtype=torch.complex64), 10**5000, numpy.array([None])):
        for allow_pickle in (False, True):
            if allow_pickle and not isinstance(wrong, int):  # These can be pickled.
                continue
            with pytest.raises((Error, ValueError)):
                hvd.broadcast_object(wrong if hvd.rank() == 1 else None, root_rank=1, allow_pickle=allow_pickle)
            with pytest.raises((Error, ValueError)):
                hvd.allgather_object(wrong if hvd.rank() == 1 else None, allow_pickle=allow_pickle)
    with pytest.raises((Error, AttributeError, pickle.PicklingError)):
        hvd.broadcast_object((lambda: None) if hvd.rank() == 1 else None, root_rank=1, allow_pickle=True)
    assert hvd.broadcast_object(hvd.rank(), root_rank=1) == 1


EVERYTHING = [
    every_optimizer_of_torch,
    wrapped_optimizer_and_tensor_identity,
    optimizers_that_differ,
    parameters_in_all_forms,
    objects,
    what_the_root_cannot_send,
]


def body_everything() -> None:
    hvd.init()
    run_each(EVERYTHING)


@pytest.mark.parametrize("size", [2, 3, 4])
@each(EVERYTHING)
def test_one_ranks_state_reaches_all(run_checks, size, check):
    run_checks(size, body_everything, check)


def test_plain_data_survives_the_way():
    encoded = _plain_data.encode(OBJECT, "object")
    value, tensors = _plain_data.decode(encoded.text)
    for tensor, sent in zip(tensors, encoded.tensors, strict=True):
        tensor.copy_(sent)
    assert same(value, OBJECT)
    assert _plain_data.decode(_plain_data.encode(numpy.bool_(True), "x").text)[0] is True
    assert math.isnan(_plain_data.decode(_plain_data.encode(math.nan, "x").text)[0])


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[1]",
        b'["list"]',
        b'["list",3]',
        b'["tensor",["float32",[-1]]]',
        b'["tensor",["float33",[1]]]',
        b'["tensor",["float32",[4611686018427387904,4611686018427387904]]]',
        b'["os.system",["true"]]',
        b'["dict",[[["list",[]],1]]]',
        b'["bytes","*"]',
        b'["float","x"]',
        b"[" * 100000,
        b'{"a":1}',
        b'["array",["|O",[1]]]',
        b'["array",["<f4",[-1]]]',
        b'["array",["<f9",[1]]]',
        b'["array",["<f8",[4611686018427387904,8]]]',
    ],
)
def test_nonsense_from_the_wire_is_refused(text):
    with pytest.raises(CorruptDataError):
        _plain_data.decode(text)


def test_what_cannot_be_sent_is_named_with_its_place():
    with pytest.raises(InvalidArgumentError, match=r"state\['a'\]\[1\].*builtins\.object"):
        _plain_data.encode({"a": [1, object()]}, "state")
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(InvalidArgumentError, match="levels deep"):
        _plain_data.encode(endless, "state")
