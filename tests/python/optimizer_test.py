"""DistributedOptimizer between processes: the same bits on every rank, and as one process that plays all of them."""

import copy
import hashlib
import warnings
from collections.abc import Callable, Iterable

import gyre.torch as hvd
import pytest
import torch
from checks import each, run_each
from gyre.errors import InvalidArgumentError, MismatchError
from torch import nn
from torch.nn import functional

FEATURES, CLASSES, BATCH = 12, 5, 8


def model(seed: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 300), nn.Tanh(), nn.Linear(300, CLASSES))


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(BATCH, FEATURES, generator=generator)
    return inputs, torch.randint(0, CLASSES, (BATCH,), generator=generator)


def loss_of(network: nn.Module, step: int, rank: int) -> torch.Tensor:
    inputs, labels = batch(step, rank)
    return functional.cross_entropy(network(inputs), labels)


def fingerprint(tensors: Iterable[torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def state_tensors(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)]


def check_replicas(network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    own = fingerprint([*network.parameters(), *state_tensors(optimizer)])
    assert hvd.allgather_object(own) == [own] * hvd.size()


def virtual_step(network: nn.Module, optimizer: torch.optim.Optimizer, step: int, size: int) -> None:
    """What `size` ranks do, in one process: ((g0 + g1) + g2) + …, then divided by size."""
    parts = []
    for rank in range(size):
        network.zero_grad()
        loss_of(network, step, rank).backward()
        parts.append([parameter.grad.clone() for parameter in network.parameters()])
    for index, parameter in enumerate(network.parameters()):
        total = parts[0][index]
        for part in parts[1:]:
            total = total + part[index]
        parameter.grad = total / size
    optimizer.step()


OPTIMIZERS: list[Callable[[Iterable[torch.Tensor]], torch.optim.Optimizer]] = [
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True),
    lambda p: torch.optim.RMSprop(p, lr=1e-3, alpha=0.9, eps=1e-7),
]


def replicas_equal_virtual_ranks() -> None:
    rank, size = hvd.rank(), hvd.size()
    for make in OPTIMIZERS:
        for set_to_none in (True, False):
            network, twin = model(), model()
            optimizer = hvd.DistributedOptimizer(make(network.parameters()), network.named_parameters())
            alone = make(twin.parameters())
            assert isinstance(optimizer, type(alone))
            for step in range(5):
                optimizer.zero_grad(set_to_none=set_to_none)
                loss_of(network, step, rank).backward()
                optimizer.step()
                virtual_step(twin, alone, step, size)
                check_replicas(network, optimizer)
                assert fingerprint(network.parameters()) == fingerprint(twin.parameters()), (step, make, set_to_none)
            assert fingerprint(state_tensors(optimizer)) == fingerprint(state_tensors(alone))


def gradients_live_in_the_arena() -> None:
    """After the exchange `grad` is the arena's memory; with set_to_none=False it stays, so that nothing is copied."""
    network = model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(network.parameters(), lr=0.1))
    addresses = []
    for step in range(3):
        optimizer.zero_grad(set_to_none=False)
        loss_of(network, step, hvd.rank()).backward()
        optimizer.step()
        addresses.append([parameter.grad.data_ptr() for parameter in network.parameters()])
    assert addresses[0] == addresses[1] == addresses[2]


def parameters_without_gradient() -> None:
    """Used on some ranks, on none, frozen, and thawed later."""
    rank, size = hvd.rank(), hvd.size()
    everywhere, somewhere, nowhere, frozen = (nn.Parameter(torch.ones(3)) for _ in range(4))
    frozen.requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([everywhere, somewhere, nowhere, frozen], lr=1.0))
    for _ in range(2):
        optimizer.zero_grad()
        loss = everywhere.sum() * (rank + 1)
        if rank == size - 1:
            loss = loss + 6 * somewhere.sum()
        loss.backward()
        optimizer.synchronize()
        torch.testing.assert_close(everywhere.grad, torch.full((3,), (size + 1) / 2))
        torch.testing.assert_close(somewhere.grad, torch.full((3,), 6.0 / size))
        assert torch.equal(nowhere.grad, torch.zeros(3))
        assert frozen.grad is None
        with optimizer.skip_synchronize():
            optimizer.step()
    # A rank that computes nothing at all still takes part.
    optimizer.zero_grad()
    if rank == 0:
        (everywhere.sum() * size).backward()
    optimizer.step()
    torch.testing.assert_close(everywhere.grad, torch.ones(3))
    frozen.requires_grad_(True)
    for _ in range(2):
        optimizer.zero_grad()
        (frozen.sum() * rank + everywhere.sum()).backward()
        optimizer.step()
        torch.testing.assert_close(frozen.grad, torch.full((3,), (size - 1) / 2))
    everywhere.requires_grad_(False)
    optimizer.zero_grad()
    frozen.sum().backward()
    optimizer.step()
    assert everywhere.grad is None


def accumulation() -> None:
    rank, size = hvd.rank(), hvd.size()
    for set_to_none in (True, False):
        network, twin = model(), model()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(network.parameters(), lr=0.1), network.named_parameters(), backward_passes_per_step=2
        )
        alone = torch.optim.SGD(twin.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad(set_to_none)
            for half in range(2):
                loss_of(network, 2 * step + half, rank).backward()
            optimizer.step()
            check_replicas(network, optimizer)
            alone.zero_grad()
            for half in range(2):
                for r in range(size):
                    (loss_of(twin, 2 * step + half, r) / size).backward()
            alone.step()
        for own, right in zip(network.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(own, right, rtol=1e-4, atol=1e-6)
        loss_of(network, 9, rank).backward()
        loss_of(network, 9, rank).backward()
        with pytest.raises(InvalidArgumentError, match="backward_passes_per_step=2"):
            loss_of(network, 9, rank).backward()
        # The third pass has written into a gradient that was reduced already: the step must not be taken.
        with pytest.raises(InvalidArgumentError, match="was changed between"):
            optimizer.step()
        # One pass of two, then step(): what is there is exchanged.
        optimizer.zero_grad()
        loss_of(network, 10, rank).backward()
        optimizer.step()
        check_replicas(network, optimizer)


def clipping_and_warnings() -> None:
    rank = hvd.rank()
    network = model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(network.parameters(), lr=0.1), network.named_parameters())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(2):
            optimizer.zero_grad()
            loss_of(network, step, rank).backward()
            optimizer.synchronize()
            before = torch.nn.utils.clip_grad_norm_(network.parameters(), 0.01)
            with optimizer.skip_synchronize():
                optimizer.step()
            after = torch.nn.utils.get_total_norm([p.grad for p in network.parameters()])
            assert before > 0.011
            assert after < 0.0101
            check_replicas(network, optimizer)
        assert caught == []
        for set_to_none in (True, False):
            optimizer.zero_grad(set_to_none)
            loss_of(network, 0, rank).backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 0.01)
            optimizer.step()
            after = torch.nn.utils.get_total_norm([p.grad for p in network.parameters()])
            assert after < 0.0101, "backward() has ended the exchange"
            check_replicas(network, optimizer)
        assert caught == []
        for step in range(2):
            optimizer.zero_grad()
            loss_of(network, step, rank).backward()
            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 0.01)
            optimizer.step()
            after = torch.nn.utils.get_total_norm([p.grad for p in network.parameters()])
            assert after < 0.0101, "step() must not exchange the clipped gradients again"
            check_replicas(network, optimizer)
        assert len(caught) == 2
        assert all("optimizer.step() called without optimizer.skip_synchronize()" in str(w.message) for w in caught)
        assert caught[0].filename == __file__, "the warning stands where step() was called"


def compression_and_factors() -> None:
    rank, size = hvd.rank(), hvd.size()

    class Halves(hvd.Compressor):
        """One that is not built in: travels as float64, halved."""

        @staticmethod
        def compress(tensor):
            return tensor.double() * 0.5, tensor.dtype

        @staticmethod
        def decompress(tensor, context):
            return (tensor * 2).to(context)

    def trained(**options: object) -> list[torch.Tensor]:
        network = model()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(network.parameters(), lr=0.1), **options)
        for step in range(3):
            optimizer.zero_grad(set_to_none=step != 1)
            loss_of(network, step, rank).backward()
            optimizer.step()
            check_replicas(network, optimizer)
        assert all(parameter.grad.dtype == torch.float32 for parameter in network.parameters())
        return [parameter.detach() for parameter in network.parameters()]

    plain = trained()
    for options, tolerance in (
        ({"compression": hvd.Compression.fp16}, 0.0),  # On one host nothing travels, and nothing is rounded.
        ({"compression": hvd.Compression.bf16, "error_feedback": True}, 0.0),
        ({"compression": Halves}, 1e-6),
        ({"gradient_predivide_factor": 2.0}, 1e-6),
    ):
        for own, right in zip(trained(**options), plain, strict=True):
            torch.testing.assert_close(own, right, rtol=tolerance, atol=tolerance)
    weight = nn.Parameter(torch.zeros(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), op=hvd.Sum)
    weight.sum().backward()
    optimizer.step()
    assert torch.equal(weight.grad, torch.full((2,), float(size)))


def mixed_types_and_layouts() -> None:
    """float64, bfloat16, channels_last, 0-dimensional and empty parameters in one plan."""
    rank, size = hvd.rank(), hvd.size()
    parameters = [
        nn.Parameter(torch.ones(3, dtype=torch.float64)),
        nn.Parameter(torch.ones(5, dtype=torch.bfloat16)),
        nn.Parameter(torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last)),
        nn.Parameter(torch.tensor(1.0)),
        nn.Parameter(torch.ones(0, 4)),
    ]
    weights = [torch.rand(p.shape, generator=torch.Generator().manual_seed(3)).to(p.dtype) for p in parameters]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0, foreach=False))
    for set_to_none in (True, False):
        optimizer.zero_grad(set_to_none)
        sum((p * w).sum().double() * (rank + 1) for p, w in zip(parameters, weights, strict=True)).backward()
        optimizer.step()
        for parameter, weight in zip(parameters, weights, strict=True):
            assert parameter.grad.stride() == parameter.stride()
            assert parameter.grad.dtype == parameter.dtype
            torch.testing.assert_close(parameter.grad, weight * (size + 1) / 2, rtol=1e-2, atol=0)


class LazilyNegated(torch.autograd.Function):
    """Its gradient's memory holds the opposite of its values: PyTorch negates such tensors where they are read."""

    @staticmethod
    def forward(_context, parameter):
        return parameter.sum()

    @staticmethod
    def backward(_context, _gradient):
        return torch._neg_view(torch.full((4,), -2.0 * (hvd.rank() + 1)))


def lazily_negated_gradients() -> None:
    parameter = nn.Parameter(torch.zeros(4))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0, foreach=False))
    for _ in range(3):
        optimizer.zero_grad()
        LazilyNegated.apply(parameter).backward()
        optimizer.step()
        assert torch.equal(parameter.grad, torch.full((4,), float(hvd.size() + 1)))


def closures_and_schedulers() -> None:
    rank = hvd.rank()
    network = model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.LBFGS(network.parameters(), lr=0.5, max_iter=6, line_search_fn="strong_wolfe")
    )

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(network, 0, rank)
        loss.backward()
        return loss

    first = float(optimizer.step(closure))
    last = float(optimizer.step(closure))
    assert last < first
    check_replicas(network, optimizer)
    assert hvd.allgather_object([first, last]) == [[first, last]] * hvd.size()

    network = model()
    base = torch.optim.SGD(network.parameters(), lr=1.0)
    early = torch.optim.lr_scheduler.ExponentialLR(base, 0.9)  # Made before: must not get around the exchange.
    optimizer = hvd.DistributedOptimizer(base, network.named_parameters())
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("pre"))
    optimizer.register_step_post_hook(lambda *_: calls.append("post"))
    loss_of(network, 0, rank).backward()
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.5
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        early.step()
    assert caught == []
    assert optimizer.param_groups[0]["lr"] == 0.45
    assert calls == ["pre", "post"]
    check_replicas(network, optimizer)


def pass_through_of_state() -> None:
    rank = hvd.rank()
    network = model()
    base = torch.optim.Adam(network.parameters(), lr=0.1)
    loss_of(network, 0, 0).backward()
    base.step()
    network.zero_grad()
    optimizer = hvd.DistributedOptimizer(base, network.named_parameters())
    saved = copy.deepcopy(optimizer.state_dict())
    assert saved["state"][0]["step"] == 1
    loss_of(network, 1, rank).backward()
    optimizer.step()
    optimizer.load_state_dict(saved)
    assert optimizer.state_dict()["state"][0]["step"] == 1
    extra = nn.Parameter(torch.ones(2))
    optimizer.add_param_group({"params": [extra], "lr": 1.0})
    for _ in range(2):
        optimizer.zero_grad()
        (loss_of(network, 2, rank) + extra.sum() * rank).backward()
        optimizer.step()
        torch.testing.assert_close(extra.grad, torch.full((2,), (hvd.size() - 1) / 2))
        check_replicas(network, optimizer)
    assert "Adam" in repr(optimizer)


def wrong_arguments() -> None:
    network = model()
    names = list(network.named_parameters())
    base = torch.optim.SGD(network.parameters(), lr=0.1)
    wrong: list[tuple[dict[str, object], str]] = [
        ({"named_parameters": [*names, names[0]]}, "must be unique"),
        ({"named_parameters": names[:-1]}, "name all"),
        ({"named_parameters": list(network.parameters())}, "pairs"),
        ({"op": hvd.Max}, "op=Average, Sum or Adasum"),
        ({"op": hvd.Sum, "gradient_predivide_factor": 2.0}, "Average only"),
        ({"backward_passes_per_step": 0}, "at least 1"),
        ({"error_feedback": True}, "can be used with compression"),
    ]
    for options, words in wrong:
        with pytest.raises(ValueError, match=words):
            hvd.DistributedOptimizer(base, **options)
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(hvd.DistributedOptimizer(base))
    width = 3 + hvd.rank()
    with pytest.raises(MismatchError) as caught:
        hvd.DistributedOptimizer(torch.optim.SGD([nn.Parameter(torch.zeros(width))], lr=0.1))
    assert "[3]" in str(caught.value)
    assert "[4]" in str(caught.value)


def dropped_optimizers_leave_no_hooks() -> None:
    """A notebook cell run twice wraps the same parameters again."""
    network = model()
    for _ in range(3):
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(network.parameters(), lr=0.1))
        for step in range(2):
            optimizer.zero_grad()
            loss_of(network, step, hvd.rank()).backward()
            optimizer.step()
            check_replicas(network, optimizer)


EVERYTHING = [
    replicas_equal_virtual_ranks,
    gradients_live_in_the_arena,
    parameters_without_gradient,
    accumulation,
    clipping_and_warnings,
    compression_and_factors,
    mixed_types_and_layouts,
    lazily_negated_gradients,
    closures_and_schedulers,
    pass_through_of_state,
    wrong_arguments,
    dropped_optimizers_leave_no_hooks,
]


def body_everything() -> None:
    torch.set_num_threads(1)
    hvd.init()
    run_each(EVERYTHING)


@pytest.mark.parametrize("size", [2, 3, 4])
@each(EVERYTHING)
def test_the_optimizer_keeps_replicas_equal(run_checks, size, check):
    run_checks(size, body_everything, check, timeout_s=180)


def body_alone() -> None:
    """Without a launcher: a job of one, in which the optimizer behaves as if it were not wrapped."""
    hvd.init()
    assert (hvd.rank(), hvd.local_rank(), hvd.cross_rank()) == (0, 0, 0)
    assert (hvd.size(), hvd.local_size(), hvd.cross_size()) == (1, 1, 1)
    network, twin = model(), model()
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(network.parameters()), network.named_parameters())
    alone = torch.optim.Adam(twin.parameters())
    for step in range(3):
        for net, opt in ((network, optimizer), (twin, alone)):
            opt.zero_grad()
            loss_of(net, step, 0).backward()
            opt.step()
    optimizer.synchronize()
    assert fingerprint(network.parameters()) == fingerprint(twin.parameters())
    # Horovod's Adasum is an ordinary optimizer then, with an exchange of its own to wait for and to skip.
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(network.parameters(), lr=0.1), op=hvd.Adasum)
    loss_of(network, 0, 0).backward()
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        optimizer.step()


def test_one_rank_needs_no_launcher(run_ranks):
    run_ranks(1, body_alone, launcher=False)
