"""DistributedOptimizer and the functions for state, row by row of docs/guide/horovod_behaviour.md."""

import warnings

import gyre.torch as hvd
import pytest
import torch
from checks import each, run_each
from gyre.errors import Error
from torch import nn


def fails_before_init() -> None:
    """Wrong arguments are refused on a machine where no job runs: a typo is found before the cluster is."""
    weight, bias = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))
    sgd = torch.optim.SGD([weight, bias], lr=1.0)
    wrong = [
        ({"named_parameters": [("w", weight), ("w", bias)]}, "unique"),
        ({"named_parameters": [("w", weight)]}, "name all"),
        ({"named_parameters": [weight, bias]}, "pairs"),
        ({"backward_passes_per_step": 0}, "at least 1"),
        ({"op": hvd.Sum, "gradient_predivide_factor": 2.0}, "Average only"),
        ({"groups": -1}, "number of groups"),
        ({"groups": [[weight], [weight]]}, "more than once"),
        ({"groups": [["weight"]]}, "lists of parameters"),
    ]
    for options, words in wrong:
        with pytest.raises(ValueError, match=words):
            hvd.DistributedOptimizer(sgd, **options)
    with pytest.raises(Error, match="init"):
        hvd.DistributedOptimizer(sgd)


def pair(**options: object) -> tuple[nn.Parameter, nn.Parameter, torch.optim.Optimizer]:
    first, second = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(3))
    return first, second, hvd.DistributedOptimizer(torch.optim.SGD([first, second], lr=1.0), **options)


def check(tensor: torch.Tensor | None, value: float) -> None:
    assert tensor is not None
    torch.testing.assert_close(tensor.detach(), torch.full_like(tensor, value))


def attributes_and_names() -> None:
    first, second, optimizer = pair(backward_passes_per_step=2, sparse_as_dense=True)
    assert optimizer._parameter_names == {first: "allreduce.noname.0.0", second: "allreduce.noname.0.1"}
    assert (optimizer.op, optimizer.process_set, optimizer.sparse_as_dense) == (
        hvd.Average,
        hvd.global_process_set,
        True,
    )
    assert (optimizer.backward_passes_per_step, optimizer.gradient_predivide_factor) == (2, 1.0)
    optimizer.set_backward_passes_per_step(3)
    assert optimizer.backward_passes_per_step == 3
    stranger = nn.Parameter(torch.zeros(1))
    _, _, optimizer = pair()
    named = [("z", first), ("b", second), ("a", first), ("s", stranger)]
    sgd = torch.optim.SGD([first, second], lr=1.0)
    for op in (hvd.Average, hvd.Adasum):
        optimizer = hvd.DistributedOptimizer(sgd, named, op=op)
        assert type(optimizer).__name__ == "SGD"
        assert isinstance(optimizer, torch.optim.SGD)
        assert optimizer._parameter_names == {first: "z", second: "b", stranger: "s"}
        assert optimizer.op == op


def scaling_of_gradients() -> None:
    """The sum or the mean over the ranks; passes are added up and not divided by their number."""
    size, rank = hvd.size(), hvd.rank()
    total = sum(range(1, size + 1))
    for passes in (1, 3):
        for options, factor in (
            ({}, 1.0 / size),
            ({"op": hvd.Sum}, 1.0),
            ({"gradient_predivide_factor": 4.0}, 1.0 / size),
            ({"groups": [[]]}, 1.0 / size),
            ({"num_groups": 1, "groups": 2}, 1.0 / size),
        ):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                first, second, optimizer = pair(backward_passes_per_step=passes, **options)
            for _ in range(2):
                optimizer.zero_grad()
                for _ in range(passes):
                    ((rank + 1) * (first.sum() + 2 * second.sum())).backward()
                optimizer.synchronize()
                check(first.grad, passes * total * factor)
                check(second.grad, 2 * passes * total * factor)
                with optimizer.skip_synchronize():
                    optimizer.step()


def passes_that_do_not_fit() -> None:
    """step() before all passes exchanges what is there; a pass too many, and zero_grad() too early, are assertions."""
    rank, size = hvd.rank(), hvd.size()
    first, second, optimizer = pair(backward_passes_per_step=3)
    (first.sum() * (rank + 1)).backward()
    optimizer.step()
    check(first, -(size + 1) / 2)
    check(second, 0.0)
    first, second, optimizer = pair(end_in_backward=False)
    (first.sum() + second.sum()).backward()
    with pytest.raises(AssertionError, match=r"more than backward_passes_per_step=1 times"):
        (first.sum() + second.sum()).backward()
    first, second, optimizer = pair(end_in_backward=False)
    (first.sum() + second.sum()).backward()
    with pytest.raises(AssertionError, match=r"zero_grad\(\) was called after backward\(\) but before optimizer.step"):
        optimizer.zero_grad()
    optimizer.step()
    optimizer.zero_grad()


def a_warning_for_each_step_after_synchronize() -> None:
    first, second, optimizer = pair()
    words = r"optimizer\.step\(\) called without optimizer\.skip_synchronize\(\)"
    for _ in range(2):
        (first.sum() + second.sum()).backward()
        optimizer.synchronize()
        with pytest.warns(UserWarning, match=words):
            optimizer.step()
        optimizer.zero_grad()
    check(first, -2.0)


def groups_of_other_parameters() -> None:
    """Lists may name parameters of other optimizers, and frozen ones; those in no list travel by themselves."""
    first, second, frozen, foreign = (nn.Parameter(torch.zeros(2)) for _ in range(4))
    frozen.requires_grad_(False)
    sgd = torch.optim.SGD([first, second, frozen], lr=1.0)
    optimizer = hvd.DistributedOptimizer(sgd, groups=[[foreign, first], [frozen]])
    (first.sum() * hvd.rank() + second.sum()).backward()
    optimizer.step()
    check(first, -(hvd.size() - 1) / 2)
    check(second, -1.0)


def ranks_outside_a_process_set() -> None:
    """There the optimizer is the plain local one; inside, gradients are averaged among the members."""
    size, rank = hvd.size(), hvd.rank()
    members = hvd.add_process_set([0, size - 1])
    lonely = hvd.add_process_set([size - 1])
    for op in (hvd.Average, hvd.Adasum):
        for process_set in (members, lonely):
            parameter = nn.Parameter(torch.zeros(2))
            older = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0))
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD([parameter], lr=1.0), [("p", parameter)], op=op, process_set=process_set
            )
            del older
            assert optimizer.process_set is process_set
            for _ in range(2):
                optimizer.zero_grad()
                (parameter.sum() * (rank + 1)).backward()
                if not process_set.included():  # Nothing is exchanged, so nothing forbids to start again.
                    optimizer.zero_grad()
                    (parameter.sum() * (rank + 1)).backward()
                optimizer.synchronize()
                if op == hvd.Average:
                    with optimizer.skip_synchronize():
                        optimizer.step()
                else:
                    optimizer.step()
            if op == hvd.Average:
                mean = (1 + size) / 2 if process_set is members and process_set.included() else rank + 1
                check(parameter, -2.0 * mean)
            assert hvd.allreduce(parameter.detach(), name="still in step").isfinite().all()
    for process_set in (members, lonely):
        hvd.remove_process_set(process_set)


def the_adaptive_optimizer() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([parameter], lr=1.0), op=hvd.Adasum, backward_passes_per_step=2
    )
    for _ in range(2):
        parameter.sum().backward()
    optimizer.synchronize()
    optimizer.step()
    check(parameter, -2.0)
    optimizer.set_backward_passes_per_step(1)
    assert optimizer.backward_passes_per_step == 1
    with pytest.raises(AssertionError, match="Adasum"), optimizer.skip_synchronize():
        optimizer.step()


def gradients_after_broadcasting_no_state() -> None:
    """They are zeros, of the layout that the optimizer wants; those of an optimizer with state stay as they are."""
    for make in (
        lambda p: torch.optim.SGD(p, lr=0.5),
        lambda p: torch.optim.Adam(p, lr=0.5),
        lambda p: torch.optim.SparseAdam(p, lr=0.5),
    ):
        model = nn.Sequential(nn.Embedding(4, 3, sparse=True), nn.Linear(3, 2))
        model[1].bias.requires_grad_(False)
        optimizer = make([nn.Parameter(torch.zeros(1))])
        trained = model[0] if isinstance(optimizer, torch.optim.SparseAdam) else model
        optimizer = make(trained.parameters())
        is_sgd, is_sparse_adam = isinstance(optimizer, torch.optim.SGD), isinstance(optimizer, torch.optim.SparseAdam)
        optimizer.param_groups[0]["lr"] = 0.5 + hvd.rank()
        hvd.broadcast_optimizer_state(optimizer, 0, model)
        assert optimizer.param_groups[0]["lr"] == 0.5
        embedding = model[0].weight
        assert embedding.grad.is_sparse == (is_sgd or is_sparse_adam)
        assert not embedding.grad.to_dense().any()
        assert model[1].bias.grad is None
        if not is_sparse_adam:
            check(model[1].weight.grad, 0.0)
    parameter = nn.Parameter(torch.ones(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam([parameter], lr=0.5))
    parameter.sum().backward()
    optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, 0)
    check(parameter.grad, 1.0)
    assert optimizer.state[parameter]["step"] == 1


def objects_are_copies() -> None:
    own = {"rank": hvd.rank(), "values": torch.ones(2), "list": [1]}
    gathered = hvd.allgather_object(own)
    assert [one["rank"] for one in gathered] == list(range(hvd.size()))
    gathered[hvd.rank()]["list"].append(2)
    gathered[hvd.rank()]["values"].zero_()
    assert own["list"] == [1]
    check(own["values"], 1.0)
    with pytest.raises(ValueError, match="state_dict"):
        hvd.broadcast_parameters(3, 0)


EVERYTHING = [
    attributes_and_names,
    scaling_of_gradients,
    passes_that_do_not_fit,
    a_warning_for_each_step_after_synchronize,
    groups_of_other_parameters,
    ranks_outside_a_process_set,
    the_adaptive_optimizer,
    gradients_after_broadcasting_no_state,
    objects_are_copies,
]


def body_everything() -> None:
    torch.set_num_threads(1)
    fails_before_init()
    hvd.init()
    run_each(EVERYTHING)


@each(EVERYTHING)
def test_optimizers_behave_as_horovods(run_checks, check):
    run_checks(3, body_everything, check)


def body_alone() -> None:
    torch.set_num_threads(1)
    hvd.init()
    a_warning_for_each_step_after_synchronize()
    scaling_of_gradients()


def test_a_rank_alone_steps_and_warns_as_horovod_does(run_ranks):
    run_ranks(1, body_alone)
