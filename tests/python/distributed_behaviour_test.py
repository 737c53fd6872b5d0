"""docs/guide/distributed_behaviour.md, case by case: what torch.distributed does over gloo, corner cases included, it
must do over Gyre, and where the table says that Gyre differs, it must differ in that way. Both run in one job.

A case is a call of torch.distributed's functions on a group; its outcome is a text: the values, or the exception.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import gyre.distributed  # noqa: F401  Makes the backend known.
import pytest
import torch
import torch.distributed as dist
from gyre.bench.ranks.groups import leave, never_take_apart
from torch.distributed import ReduceOp

KINDS = (ValueError, TypeError, RuntimeError, AssertionError, IndexError, NotImplementedError)

Case = Callable[[Any], Any]


def own(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    values = torch.arange(torch.Size(shape).numel()).reshape(shape) + 1 + dist.get_rank()
    return values % 3 == 0 if dtype == torch.bool else values.to(dtype)


def zeros(*sizes: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.zeros(size, dtype=dtype) for size in sizes]


def shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{list(value.shape)}{value.to_dense().tolist()}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    return "a Work" if isinstance(value, dist.Work) else repr(value)


def outcome(case: Case, group: Any) -> str:
    try:
        return shown(case(group))
    except Exception as error:
        kinds = " ".join(kind.__name__ for kind in KINDS if isinstance(error, kind))
        return f"raises {kinds}: {error}"


def same(ours: str, theirs: str) -> bool:
    """An exception of ours may be caught by more names than theirs."""
    if not (ours.startswith("raises ") and theirs.startswith("raises ")):
        return ours == theirs
    return set(theirs.split(":", maxsplit=1)[0].split()) <= set(ours.split(":", maxsplit=1)[0].split())


def reductions(rank: int) -> dict[str, Case]:
    types = (
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.bool,
    )
    cases: dict[str, Case] = {}

    def case(name: str, tensor: Callable[[], torch.Tensor], **options: Any) -> None:
        def run(group: Any) -> Any:
            given = tensor()
            work = dist.all_reduce(given, group=group, **options)
            return [given, work if work is None else (work.wait(), work.is_completed(), work.is_success(), work)]

        cases[f"all_reduce {name}"] = run

    for name in ("SUM", "MIN", "MAX", "PRODUCT", "AVG", "BAND"):
        for dtype in (*types, torch.complex64, torch.int16, torch.uint16):
            operation = getattr(ReduceOp, name)
            case(f"{name} {str(dtype)[6:]}", lambda dtype=dtype: own(3, dtype=dtype), op=operation)
    case("PREMUL_SUM", lambda: own(3), op=dist._make_nccl_premul_sum(0.5))  # type: ignore[attr-defined]
    case("empty", lambda: torch.zeros(0, 3))
    case("scalar", lambda: torch.tensor(1.0 + rank))
    case("transposed", lambda: own(2, 3).t())
    case("strided", lambda: own(4, 4)[::2, 1:])
    case("expanded", lambda: torch.ones(1).expand(3))
    case("async", lambda: own(3), async_op=True)
    case("parameter", lambda: torch.nn.Parameter(own(2)))
    case("no tensor", lambda: 3.0)  # type: ignore[arg-type,return-value]
    case("no operation", lambda: own(2), op="sum")
    cases["all_reduce_coalesced"] = lambda group: [
        given := [own(2), own(3)],
        dist.all_reduce_coalesced(given, group=group),
        given,
    ]

    def reduce(name: str, tensor: Callable[[], torch.Tensor], **options: Any) -> None:
        def run(group: Any) -> Any:
            given = tensor()
            return [dist.reduce(given, group=group, **options), given if rank == 1 or name == "others" else None]

        cases[f"reduce {name}"] = run

    reduce("dst", lambda: own(3), dst=1)
    reduce("group_dst", lambda: own(3), group_dst=1, op=ReduceOp.AVG)
    reduce("others", lambda: own(3), dst=1)
    reduce("both", lambda: own(3), dst=1, group_dst=1)
    reduce("outside", lambda: own(3), dst=99)
    return cases


def gathers(rank: int, size: int) -> dict[str, Case]:
    cases: dict[str, Case] = {}

    def case(name: str, function: Any, outputs: Callable[[], Any], given: Callable[[], Any], **options: Any) -> None:
        def run(group: Any) -> Any:
            made = outputs()
            work = function(made, given(), group=group, **options)
            return [made, work if work is None else (work.wait(), work)]

        cases[name] = run

    lists, flat = dist.all_gather, dist.all_gather_into_tensor
    case("all_gather", lists, lambda: zeros(*[2] * size), lambda: own(2))
    case("all_gather async", lists, lambda: zeros(*[2] * size), lambda: own(2), async_op=True)
    case("all_gather short", lists, lambda: zeros(2), lambda: own(2))
    case("all_gather wrong size", lists, lambda: zeros(*[3] * size), lambda: own(2))
    case("all_gather wrong type", lists, lambda: zeros(*[2] * size, dtype=torch.int32), lambda: own(2))
    case("all_gather strided", lists, lambda: [one[::2] for one in zeros(*[4] * size)], lambda: own(4)[::2])
    case("all_gather empty", lists, lambda: zeros(*[0] * size), lambda: own(0))
    case("all_gather uneven", lists, lambda: zeros(*range(1, size + 1)), lambda: own(rank + 1))
    case("all_gather bool", lists, lambda: zeros(*[2] * size, dtype=torch.bool), lambda: own(2, dtype=torch.bool))
    case("all_gather_into_tensor", flat, lambda: torch.zeros(2 * size), lambda: own(2))
    case("all_gather_into_tensor small", flat, lambda: torch.zeros(size), lambda: own(2))
    case("all_gather_into_tensor empty", flat, lambda: torch.zeros(0), lambda: own(0))
    case("all_gather_into_tensor wrong type", flat, lambda: torch.zeros(2 * size).int(), lambda: own(2))

    def gather(name: str, given: Callable[[], Any], outputs: Callable[[], Any], **options: Any) -> None:
        def run(group: Any) -> Any:
            made = outputs()
            return [dist.gather(given(), made, group=group, **options), made]

        cases[f"gather {name}"] = run

    gather("dst", lambda: own(2), lambda: zeros(*[2] * size) if rank == 0 else None, dst=0)
    gather("group_dst", lambda: own(2), lambda: zeros(*[2] * size) if rank == 1 else None, group_dst=1)
    gather("strided", lambda: own(4)[::2], lambda: [one[::2] for one in zeros(*[4] * size)] if not rank else None)
    gather("empty", lambda: own(0), lambda: zeros(*[0] * size) if rank == 0 else None)
    gather("without a list", lambda: own(2), lambda: None, dst=rank)
    gather("with a list elsewhere", lambda: own(2), lambda: zeros(*[2] * size), dst=(rank + 1) % size)
    return cases


def scatters(rank: int, size: int) -> dict[str, Case]:
    cases: dict[str, Case] = {}

    def case(name: str, function: Any, output: Callable[[], Any], given: Callable[[], Any], **options: Any) -> None:
        def run(group: Any) -> Any:
            made = output()
            work = function(made, given(), group=group, **options)
            return [made, work if work is None else (work.wait(), work)]

        cases[name] = run

    def rows() -> list[torch.Tensor]:
        return [own(2) + 10 * other for other in range(size)]

    case("scatter", dist.scatter, lambda: torch.zeros(2), lambda: rows() if rank == 0 else None, src=0)
    case("scatter group_src", dist.scatter, lambda: torch.zeros(2), lambda: rows() if rank == 1 else None, group_src=1)
    case("scatter without a list", dist.scatter, lambda: torch.zeros(2), lambda: None, src=rank)
    case("scatter with a list elsewhere", dist.scatter, lambda: torch.zeros(2), rows, src=(rank + 1) % size)
    lists, flat = dist.reduce_scatter, dist.reduce_scatter_tensor
    for name in ("SUM", "AVG", "MIN", "MAX", "PRODUCT"):
        operation = getattr(ReduceOp, name)
        case(f"reduce_scatter {name}", lists, lambda: torch.zeros(2), rows, op=operation)
        case(
            f"reduce_scatter uneven {name}",
            lists,
            lambda: torch.zeros(rank + 1),
            lambda: [own(other + 1) for other in range(size)],
            op=operation,
        )
    case("reduce_scatter short", lists, lambda: torch.zeros(2), lambda: rows()[1:])
    case("reduce_scatter strided", lists, lambda: torch.zeros(4)[::2], lambda: [one[::2] for one in [own(4)] * size])
    case("reduce_scatter empty", lists, lambda: torch.zeros(0), lambda: zeros(*[0] * size))
    case("reduce_scatter wrong type", lists, lambda: torch.zeros(2).int(), rows)
    case("reduce_scatter_tensor", flat, lambda: torch.zeros(2), lambda: own(2 * size), op=ReduceOp.AVG)
    case("reduce_scatter_tensor small", flat, lambda: torch.zeros(2), lambda: own(size))
    case("all_to_all", dist.all_to_all, lambda: zeros(*[2] * size), rows)
    case(
        "all_to_all uneven",
        dist.all_to_all,
        lambda: zeros(*[rank + 1] * size),
        lambda: [own(other + 1) for other in range(size)],
    )
    case("all_to_all short", dist.all_to_all, lambda: zeros(2), lambda: rows()[:1])
    single = dist.all_to_all_single
    case("all_to_all_single", single, lambda: torch.zeros(2 * size), lambda: own(2 * size), async_op=True)
    case("all_to_all_single undivided", single, lambda: torch.zeros(2 * size + 1), lambda: own(2 * size + 1))
    case("all_to_all_single strided", single, lambda: torch.zeros(4 * size)[::2], lambda: own(4 * size)[::2])
    case("all_to_all_single empty", single, lambda: torch.zeros(0), lambda: own(0))
    return cases


def others(rank: int, size: int) -> dict[str, Case]:
    """Broadcasts, messages, objects, barriers, and what a Work says."""
    following, preceding = (rank + 1) % size, (rank - 1) % size

    def ring(tensor: Callable[[], torch.Tensor], output: Callable[[], torch.Tensor], **roles: Any) -> Case:
        def run(group: Any) -> Any:
            place = output()
            sent = dist.isend(tensor(), group=group, **{key: following for key in ("dst", "group_dst") if key in roles})
            source = dist.recv(place, group=group, **{key: preceding for key in ("src", "group_src") if key in roles})
            assert sent is not None
            return [place, source, sent.wait()]

        return run

    def broadcast(tensor: Callable[[], torch.Tensor], **options: Any) -> Case:
        def run(group: Any) -> Any:
            given = tensor()
            work = dist.broadcast(given, group=group, **options)
            return [given, work if work is None else (work.wait(), work.result(), work.get_future().wait())]

        return run

    def objects(group: Any) -> Any:
        everyone: list[Any] = [None] * size
        shared: list[Any] = [1, {"a": 2}] if rank == 1 else [None, None]
        mine: list[Any] = [None]
        returned = [
            dist.all_gather_object(everyone, {"rank": rank, "text": "x" * rank}, group=group),
            dist.broadcast_object_list(shared, group_src=1, group=group),
            dist.scatter_object_list(mine, list(range(size)) if rank == 0 else None, 0, group=group),
        ]
        return [everyone, shared, mine, returned]

    return {
        "broadcast src": broadcast(lambda: own(3), src=1),
        "broadcast group_src": broadcast(lambda: own(3, 2).t(), group_src=1),
        "broadcast async": broadcast(lambda: own(3), src=0, async_op=True),
        "broadcast empty": broadcast(lambda: torch.zeros(0), src=0),
        "broadcast both": broadcast(lambda: own(3), src=0, group_src=0),
        "broadcast neither": broadcast(lambda: own(3)),
        "broadcast complex": broadcast(lambda: own(3, dtype=torch.complex64), src=0),
        "send and recv": ring(lambda: own(2), lambda: torch.zeros(2), dst=1, src=1),
        "send and recv by group ranks": ring(lambda: own(2), lambda: torch.zeros(2), group_dst=1, group_src=1),
        "recv from anybody": ring(lambda: own(2), lambda: torch.zeros(2), dst=1),
        "send to oneself": lambda group: dist.send(own(2), rank, group=group),
        "send outside": lambda group: dist.send(own(2), 99, group=group),
        "send strided": lambda group: (
            dist.send(own(4)[::2], following, group=group) if group.name() == "gloo" else None
        ),
        "objects": objects,
        "objects short": lambda group: dist.all_gather_object([None], 1, group=group),
        "objects that cannot be pickled": lambda group: dist.all_gather_object([None] * size, lambda: 1, group=group),
        "barrier": lambda group: [dist.barrier(group=group), dist.barrier(group=group, async_op=True)],
        "barrier devices": lambda group: dist.barrier(group=group, device_ids=0),
        "monitored_barrier": lambda group: dist.monitored_barrier(group, timedelta(seconds=30)),
        "ranks": lambda group: [dist.get_rank(group), dist.get_world_size(group), dist.get_process_group_ranks(group)],
    }


def outside(group_of_others: Any) -> dict[str, Case]:
    """What a rank gets that is not in the group: nothing is done, and torch's functions say so by what they return."""
    del group_of_others
    calls: dict[str, Case] = {
        "all_reduce": lambda group: [dist.all_reduce(own(2), group=group), dist.get_rank(group)],
        "async": lambda group: [dist.all_reduce(own(2), group=group, async_op=True), dist.get_world_size(group)],
        "broadcast": lambda group: dist.broadcast(own(2), 0, group=group),
        "recv": lambda group: [dist.recv(own(2), 0, group=group), dist.irecv(own(2), 0, group=group)],
        "barrier": lambda group: [dist.barrier(group), dist.monitored_barrier(group)],
        "objects": lambda group: dist.all_gather_object([None], 1, group=group),
    }
    return {f"outside: {name}": call for name, call in calls.items()}


# Where Gyre differs (the rows of the table), and what it then does. Everything else is as over gloo.
WORKS = r"^\[?\[?torch"
DIFFERS = {
    r"all_reduce (SUM|MIN|MAX|PRODUCT|AVG|BAND) int16": WORKS,
    r"all_reduce AVG (int32|int64|uint8)": WORKS,
    r"all_reduce PREMUL_SUM": WORKS,
    r"all_reduce strided": WORKS,
    r"all_reduce expanded": r"^raises RuntimeError: unsupported operation: more than one element of the written-to",
    r"reduce others": WORKS + "|None",
    r"all_gather uneven": WORKS,
    r"reduce_scatter strided": WORKS,
    r"all_to_all uneven": WORKS,
    r"all_to_all_single undivided": r"^raises ValueError.*is not a multiple of the size",
    r"all_to_all_single strided": WORKS,
    r"send strided": "^None",
}


def everything_beside_gloo() -> None:
    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    warnings.simplefilter("ignore")
    dist.init_process_group("gyre", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=size)
    gloo = dist.new_group(backend="gloo", timeout=timedelta(seconds=60))
    never_take_apart(gloo)
    cases = {**reductions(rank), **gathers(rank, size), **scatters(rank, size), **others(rank, size)}
    differing: set[str] = set()
    wrong: list[str] = []
    for name, case in cases.items():
        ours, theirs = outcome(case, dist.group.WORLD), outcome(case, gloo)
        words = next((words for pattern, words in DIFFERS.items() if re.fullmatch(pattern, name)), None)
        if not (same(ours, theirs) if words is None else re.search(words, ours)):
            wrong.append(f"{name}\nours   {ours}\ntheirs {theirs}")
        differing |= {name} if ours != theirs else set()
        dist.barrier()
    everyone: list[Any] = [None] * size
    dist.all_gather_object(everyone, differing)
    left = [pattern for pattern in DIFFERS if not any(re.fullmatch(pattern, name) for name in set().union(*everyone))]
    assert not wrong, "\n".join(wrong)
    assert not left, f"no difference any more: {left}"
    groups = [dist.new_group([0], backend=backend) for backend in ("gyre", "gloo")]
    for group in groups:
        never_take_apart(group)
    for name, case in outside(groups).items():
        ours, theirs = (outcome(case, group) for group in groups) if rank != 0 else ("", "")
        assert same(ours, theirs), f"{name}\nours   {ours}\ntheirs {theirs}"
    dist.barrier()
    leave()


def uneven_sizes_as_they_are_meant() -> None:
    """gloo has no all_gather of them."""
    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    dist.init_process_group("gyre", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=size)
    for dtype in (torch.float32, torch.int64, torch.complex64, torch.uint16):
        outputs = [torch.zeros(other, 2, dtype=dtype) for other in range(size)]
        dist.all_gather(outputs, torch.full((rank, 2), rank + 1).to(dtype))
        for other, output in enumerate(outputs):
            assert torch.equal(output, torch.full((other, 2), other + 1).to(dtype))
    own_part = torch.zeros(rank, 2, dtype=torch.complex64).t()
    work = dist.reduce_scatter(own_part, [torch.full((2, other), 1 + 2j) for other in range(size)], async_op=True)
    assert work is not None
    work.wait()
    assert torch.equal(own_part, torch.full((2, rank), size * (1 + 2j)))
    with pytest.raises(RuntimeError, match="expects"):
        dist.all_gather(
            zeros(*range(1, size + 1)) if rank else zeros(2, *range(2, size + 1)), own(rank + 1 + (rank == 0))
        )
    dist.barrier()
    dist.destroy_process_group()


def test_it_behaves_as_the_table_says_beside_gloo(run_ranks: Any) -> None:
    run_ranks(2, everything_beside_gloo)


def test_tensors_of_different_sizes(run_ranks: Any) -> None:
    run_ranks(3, uneven_sizes_as_they_are_meant)
