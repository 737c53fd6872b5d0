"""An optimizer's exchange ends with backward(): what people do between two steps, and ranks that have no data left,
give the sums they should or an error, never something else."""

import warnings
from collections.abc import Callable

import gyre.torch as hvd
import pytest
import torch
from checks import each, run_each
from gyre.errors import CallOrderError
from torch import nn
from torch.utils.checkpoint import checkpoint


def pair(rate: float = 1.0, **options: object) -> tuple[nn.Parameter, nn.Parameter, torch.optim.Optimizer]:
    first, second = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2))
    named = [("first", first), ("second", second)]
    return first, second, hvd.DistributedOptimizer(torch.optim.SGD([first, second], lr=rate), named, **options)


def check(gradient: torch.Tensor | None, value: float) -> None:
    assert gradient is not None
    torch.testing.assert_close(gradient, torch.full_like(gradient, value))


def check_agreement(*tensors: torch.Tensor) -> None:
    own = torch.cat([tensor.detach().flatten() for tensor in tensors])
    assert all(torch.equal(other, own) for other in hvd.allgather(own.unsqueeze(0)))


def meet() -> None:
    """Any other operation: it would hang if another rank waited in backward()."""
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == hvd.size()


def mean_of_ranks() -> float:
    return (hvd.size() + 1) / 2


def clipping_where_the_exchange_ends_in_step() -> None:
    """Asked for, or because the first backward() does not bring all gradients on every rank."""
    rank = hvd.rank()
    for asked in (True, False):
        always, sometimes, optimizer = pair(end_in_backward=not asked)
        for step in range(3):
            optimizer.zero_grad()
            loss = always.sum() * (rank + 1)
            (loss + sometimes.sum() if asked or rank > 0 else loss).backward()
            meet()
            with pytest.raises(CallOrderError, match="zero_grad"):
                optimizer.zero_grad()
            if step < 2:
                optimizer.step()
        nn.utils.clip_grad_norm_([always, sometimes], 0.01)
        with pytest.raises(CallOrderError, match="synchronize"):
            optimizer.step()


def gradients_are_reduced_when_backward_returns() -> None:
    """Also where a later backward() leaves out a parameter on one rank, and where a step is left out."""
    rank, size = hvd.rank(), hvd.size()
    always, sometimes, optimizer = pair()
    for step in range(5):
        optimizer.zero_grad()
        uses = step % 2 == 0 or rank > 0
        loss = (always * (rank + 1)).sum()
        (loss + (sometimes * size).sum() if uses else loss).backward()
        meet()
        check(always.grad, mean_of_ranks())
        check(sometimes.grad, float(size if step % 2 == 0 else size - 1))
        if step == 3:
            nn.utils.clip_grad_norm_([always, sometimes], 1.0)
            continue  # As for a norm that is not finite.
        optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.zero_grad()
        (always.sum() + sometimes.sum()).backward()
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()
    check(always.grad, 1.0)


def several_losses() -> None:
    """Of different parameters: the first backward() does not bring all, so that the exchange ends in step()."""
    rank = hvd.rank()
    for retain in (False, True):
        first, second, optimizer = pair()
        for _ in range(3):
            optimizer.zero_grad()
            common = torch.full((1,), rank + 1.0)
            (first * common).sum().backward(retain_graph=retain)
            meet()
            (second * common * 2).sum().backward()
            optimizer.step()
            check(first.grad, mean_of_ranks())
            check(second.grad, 2 * mean_of_ranks())
    # One of them twice.
    first, second, optimizer = pair(backward_passes_per_step=2)
    for _ in range(2):
        optimizer.zero_grad()
        (first.sum() * (rank + 1)).backward()
        ((first * 3).sum() * (rank + 1) + second.sum()).backward()
        optimizer.step()
        check(first.grad, 4 * mean_of_ranks())
        check(second.grad, 1.0)


def accumulation_by_hand() -> None:
    """Without backward_passes_per_step it is refused, as in Horovod; nothing is lost when it is started again."""
    rank = hvd.rank()
    first, second, optimizer = pair()
    for attempt in range(3):
        optimizer.zero_grad()
        loss = (first.sum() + second.sum()) * (rank + 1)
        loss.backward(retain_graph=True)
        with pytest.raises(AssertionError, match="backward_passes_per_step"):
            loss.backward(retain_graph=attempt == 1)
        with pytest.raises(CallOrderError, match="zero_grad"):
            optimizer.step()
    optimizer.zero_grad()
    ((first.sum() + second.sum()) * (rank + 1)).backward()
    optimizer.step()
    check(first.grad, mean_of_ranks())
    check(first.detach(), 1.0 - mean_of_ranks())
    # After synchronize() the next backward() adds to what has been reduced, and is exchanged: Horovod's way.
    optimizer.zero_grad()
    for passes in (1, 2):
        (first.sum() * (rank + 1)).backward()
        optimizer.synchronize()
        check(first.grad, passes * mean_of_ranks())
    with optimizer.skip_synchronize():
        optimizer.step()


def accumulation_in_passes() -> None:
    rank = hvd.rank()
    first, second, optimizer = pair(backward_passes_per_step=2)
    for _ in range(3):
        optimizer.zero_grad()
        for _ in range(2):
            meet()
            ((first.sum() + second.sum()) * (rank + 1)).backward()
        check(first.grad, 2 * mean_of_ranks())
        nn.utils.clip_grad_norm_([first, second], 0.1)
        optimizer.step()
        check_agreement(first, second)


def scalers() -> None:
    """torch's own GradScaler, which knows nothing of the exchange, and ours: infinities on one rank stop all."""
    rank, size = hvd.rank(), hvd.size()
    for scaler in (torch.amp.GradScaler("cpu", init_scale=8.0), hvd.GradScaler(init_scale=8.0)):
        for clips in (False, True):
            for zero_grad_of_model in (False, True):
                first, second, optimizer = pair()
                for step in range(3):
                    if zero_grad_of_model:
                        first.grad = second.grad = None
                    else:
                        optimizer.zero_grad()
                    before = first.detach().clone()
                    factor = float("inf") if step == 1 and rank == size - 1 else rank + 1.0
                    scaler.scale((first.sum() + second.sum()) * factor).backward()
                    if clips:
                        scaler.unscale_(optimizer)
                        check(first.grad, float("inf") if step == 1 else mean_of_ranks())
                        nn.utils.clip_grad_norm_([first, second], 1e9)
                    scaler.step(optimizer)
                    scaler.update()
                    check(first.detach() - before, 0.0 if step == 1 else -mean_of_ranks())


def other_ways_to_differentiate() -> None:
    """torch.autograd.grad() touches no parameter's gradient; backward(inputs=…) those it is asked for."""
    rank = hvd.rank()
    first, second, optimizer = pair()
    for _ in range(2):
        optimizer.zero_grad()
        loss = ((first * first).sum() + second.sum()) * (rank + 1)
        (slope,) = torch.autograd.grad(loss, [first], create_graph=True)
        assert first.grad is None
        (loss + slope.sum()).backward()
        expected = (2 * first.detach() + 2) * mean_of_ranks()
        torch.testing.assert_close(first.grad, expected)
        optimizer.step()
    first, second, optimizer = pair()
    for _ in range(2):
        optimizer.zero_grad()
        ((first.sum() + second.sum()) * (rank + 1)).backward(inputs=[first])
        meet()
        optimizer.step()
        check(first.grad, mean_of_ranks())
        check(second.grad, 0.0)


class Failing(torch.autograd.Function):
    """Its backward fails where it is asked to."""

    @staticmethod
    def forward(context, values, fails):
        context.fails = fails
        return values.clone()

    @staticmethod
    def backward(context, gradient):
        if context.fails:
            raise ArithmeticError("as asked")
        return gradient, None


def exceptions_inside_backward() -> None:
    """On one rank: what it has computed is exchanged when it calls step() or synchronize(); the others wait for it."""
    rank = hvd.rank()
    first, second, optimizer = pair(rate=0.0)
    for step in range(4):
        optimizer.zero_grad()
        fails = rank == 0 and step in (1, 2)
        loss = Failing.apply(first, fails).sum() * (rank + 1) + second.sum() * (rank + 1)
        if fails:
            with pytest.raises(ArithmeticError, match="as asked"):
                loss.backward()
            if second.grad is not None:
                with pytest.raises(CallOrderError, match="zero_grad"):
                    optimizer.zero_grad()
        else:
            loss.backward()
        if step == 1:
            optimizer.synchronize()
            check(first.grad, mean_of_ranks() - 1.0 / hvd.size())
        else:
            optimizer.step()
        check_agreement(first.grad, second.grad)


def checkpointed_parts() -> None:
    """Reentrant checkpointing calls backward() inside of backward(): the exchange ends with the outer one."""
    rank = hvd.rank()
    for reentrant in (True, False):
        torch.manual_seed(1)
        layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
        twins = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
        twins.load_state_dict(layers.state_dict())
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layers.parameters(), lr=0.1), layers.named_parameters())
        for step in range(3):
            optimizer.zero_grad()
            twins.zero_grad()
            inputs = torch.full((2, 4), rank + 1.0 + step, requires_grad=True)
            values = layers[0](inputs)
            values = checkpoint(layers[1], values, use_reentrant=reentrant)
            values = checkpoint(layers[2], torch.tanh(values), use_reentrant=reentrant)
            layers[3](values).square().sum().backward()
            norm = nn.utils.clip_grad_norm_(layers.parameters(), 1e9)
            assert norm > 0
            twins[3](twins[2](torch.tanh(twins[1](twins[0](inputs))))).square().sum().backward()
            for own, twin in zip(layers.parameters(), twins.parameters(), strict=True):
                torch.testing.assert_close(own.grad, hvd.allreduce(twin.grad), rtol=1e-4, atol=1e-5)
            optimizer.step()
            twins.load_state_dict(layers.state_dict())


def two_optimizers_in_one_backward() -> None:
    """Their gradients may come in another order on another rank, and some may be missing."""
    rank = hvd.rank()
    one, two = pair(), pair()
    for step in range(4):
        for _, _, optimizer in (one, two):
            optimizer.zero_grad()
        order = (one, two) if (rank + step) % 2 == 0 else (two, one)
        total = torch.zeros(())
        for first, second, _ in order:
            total = total * 1.0 + first.sum() * (rank + 1)
            if step % 2 == 0 or rank == 0:
                total = total + second.sum()
        total.backward()
        for first, second, optimizer in (one, two):
            check(first.grad, mean_of_ranks())
            check(second.grad, 1.0 if step % 2 == 0 else 1.0 / hvd.size())
            optimizer.step()


def synchronized_by_the_user() -> None:
    """All the ways that scripts for Horovod have: everything inside skip_synchronize(), as frameworks do, too."""
    rank = hvd.rank()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second, optimizer = pair()
        with optimizer.skip_synchronize():
            for _ in range(3):
                optimizer.zero_grad()
                ((first.sum() + second.sum()) * (rank + 1)).backward()
                optimizer.synchronize()
                check(first.grad, mean_of_ranks())
                optimizer.step()
        for _ in range(2):  # Exchanged, looked at and left out.
            optimizer.zero_grad()
            ((first.sum() + second.sum()) * (rank + 1)).backward()
            optimizer.synchronize()
        optimizer.zero_grad()
        ((first.sum() + second.sum()) * (rank + 1)).backward()
        optimizer.step()
        check(first.grad, mean_of_ranks())


def gradients_thrown_away() -> None:
    """Unchanged ones are thrown away by mistake only: on fewer ranks than all, the next sum would mix two steps."""
    first, second, optimizer = pair()
    (first.sum() + second.sum()).backward()
    with pytest.raises(AssertionError, match="leave out a step"):
        optimizer.zero_grad()
    optimizer.step()
    for zero in (optimizer.zero_grad, lambda: None):
        first.grad = second.grad = None
        (first.sum() + second.sum()).backward()
        nn.utils.clip_grad_norm_([first, second], 0.1)
        zero()  # Left out.
        first.grad = second.grad = None
        ((first.sum() + second.sum()) * (hvd.rank() + 1)).backward()
        check(first.grad, mean_of_ranks())
        optimizer.step()
    first.grad = second.grad = None
    (first.sum() + second.sum()).backward()
    first.grad = second.grad = None
    with pytest.raises(CallOrderError, match="leave out a step"):
        (first.sum() + second.sum()).backward()


def steps_without_any_gradient() -> None:
    """A rank that has nothing to differentiate takes part when it calls step()."""
    rank = hvd.rank()
    first, second, optimizer = pair()
    for step in range(4):
        optimizer.zero_grad()
        if rank != step % hvd.size():
            (first.sum() + second.sum()).backward()
        optimizer.step()
        check(first.grad, (hvd.size() - 1) / hvd.size())


def wrapped_again() -> None:
    """The parameters belong to the newest optimizer, also where something keeps an older one alive on one rank only."""
    rank = hvd.rank()
    first, second, optimizer = pair()
    kept = []
    for _ in range(3):
        for _ in range(2):
            optimizer.zero_grad()
            ((first.sum() + second.sum()) * (rank + 1)).backward()
            check(first.grad, mean_of_ranks())
            optimizer.step()
        if rank == 0:
            kept.append(optimizer)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([first, second], lr=1.0))
    for old in kept:
        with pytest.raises(CallOrderError, match="wrapped again"):
            old.step()
        with pytest.raises(CallOrderError, match="wrapped again"):
            old.synchronize()


def wrapped_again_for_other_ranks() -> None:
    """A process set has exchanges of its own, one of a single rank none; the older one must not go on beside it."""
    rank, size = hvd.rank(), hvd.size()
    sets = [hvd.add_process_set([0]), hvd.add_process_set(range(1, size))]
    first, second, whole = pair()
    (first.sum() + second.sum()).backward()
    whole.step()
    for process_set in sets:
        if process_set.included():
            part = hvd.DistributedOptimizer(torch.optim.SGD([first, second], lr=1.0), process_set=process_set)
            for _ in range(2):
                part.zero_grad()
                ((first.sum() + second.sum()) * (rank + 1)).backward()
                check(first.grad, 1.0 if rank == 0 else sum(range(2, size + 1)) / (size - 1))
                part.step()
    with pytest.raises(CallOrderError, match="wrapped again"):
        whole.step()
    combined = hvd.DistributedOptimizer(torch.optim.SGD([first, second], lr=1.0), op=hvd.Adasum)
    combined.zero_grad()
    (first.sum() * (rank + 1)).backward()
    check(first.grad, rank + 1)
    for process_set in sets:
        hvd.remove_process_set(process_set)


def exchanges_of_all_and_of_some_in_one_backward() -> None:
    """Their first gradients come in another order on another rank; nobody may wait in one for whoever waits in the
    other."""
    rank, size = hvd.rank(), hvd.size()
    some = hvd.add_process_set(range(size - 1))
    first, second = (torch.zeros(4, requires_grad=True) for _ in range(2))
    of_all = hvd.DistributedOptimizer(torch.optim.SGD([first], lr=1.0))
    optimizers = [of_all]
    if some.included():
        optimizers.append(hvd.DistributedOptimizer(torch.optim.SGD([second], lr=1.0), process_set=some))
    for _ in range(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        in_order = [first, second] if rank % 2 else [second, first]
        sum((parameter * (rank + 1)).sum() for parameter in in_order).backward()
        check(first.grad, mean_of_ranks())
        if some.included():
            check(second.grad, sum(range(1, size)) / (size - 1))
        for optimizer in optimizers:
            optimizer.step()
    hvd.remove_process_set(some)


EVERYTHING: list[Callable[[], None]] = [
    clipping_where_the_exchange_ends_in_step,
    gradients_are_reduced_when_backward_returns,
    several_losses,
    accumulation_by_hand,
    accumulation_in_passes,
    scalers,
    other_ways_to_differentiate,
    exceptions_inside_backward,
    checkpointed_parts,
    two_optimizers_in_one_backward,
    synchronized_by_the_user,
    gradients_thrown_away,
    steps_without_any_gradient,
    wrapped_again,
    wrapped_again_for_other_ranks,
    exchanges_of_all_and_of_some_in_one_backward,
]


def body_everything() -> None:
    torch.set_num_threads(1)
    hvd.init()
    run_each(EVERYTHING)


@pytest.mark.parametrize("size", [2, 3, 4])
@each(EVERYTHING)
def test_what_people_do_between_two_steps(run_checks, size, check):
    run_checks(size, body_everything, check)


def body_skips_backward() -> None:
    """Steps end in backward() here, so that the others wait there for a rank that goes on to something else."""
    torch.set_num_threads(1)
    hvd.init()
    first, second, optimizer = pair()
    for step in (1, 2, 3):
        optimizer.zero_grad()
        if hvd.rank() != 1 or step < 3:
            (first.sum() + second.sum()).backward()  # Where the others wait.
        hvd.allreduce(torch.ones(1), name="metric")  # Before step().
        optimizer.step()


def test_a_rank_that_skips_backward_and_calls_another_operation_is_named(run_ranks):
    """There is no limit for stalls by default: the job would hang."""
    outcomes = run_ranks(3, body_skips_backward, check=False, environment={"GYRE_DEADLOCK_SECONDS": "1"})
    for outcome in outcomes:
        assert outcome.code != 0
        assert "MismatchError: deadlock: " in outcome.output
        assert "rank 1 waits for allreduce 'allreduce.metric', which needs ranks 0, 2, at " in outcome.output
        assert "# Before step().`; " in outcome.output
        assert "ranks 0, 2 wait for the end of step 3 of gradient exchange 'optimizer." in outcome.output
        assert "', which needs rank 1, at " in outcome.output
        assert "# Where the others wait.`; " in outcome.output
        assert "backward() skipped in this step" in outcome.output
