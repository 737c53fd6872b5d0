"""What scripts written for Horovod count on, where it takes more than a right sum to see it: what stands in a timeline,
who joined last, wrong splits, barriers and training within process sets, models in parts. Each job runs many checks,
because starting one costs most."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import gyre.torch as hvd
import pytest
import torch
from checks import each, run_each
from expectations import check, fails_with
from gyre.errors import Error, UnsupportedError
from torch import nn

SIZES = [2, 3, 4]


def check_agreement(*tensors: torch.Tensor, process_set: hvd.ProcessSet = hvd.global_process_set) -> None:
    own = torch.cat([tensor.detach().flatten() for tensor in tensors])
    assert all(torch.equal(other, own) for other in hvd.allgather(own.unsqueeze(0), process_set=process_set))


def my_half() -> hvd.ProcessSet:
    """Of the sets of even and of odd ranks the one that this rank is in."""
    even = hvd.add_process_set(range(0, hvd.size(), 2))
    odd = hvd.add_process_set(range(1, hvd.size(), 2))
    return even if even.included() else odd


def remove(half: hvd.ProcessSet) -> None:
    """Both halves, in the same order on every rank."""
    first = half.process_set_id if hvd.rank() % 2 == 0 else half.process_set_id - 1
    for number in (first, first + 1):
        assert hvd.remove_process_set(hvd.process_set_by_id(number))


# --- operations ---------------------------------------------------------------------------------------------------


def averages_of_integers_lose_their_fraction() -> None:
    rank, size = hvd.rank(), hvd.size()
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        own = torch.tensor([1, -1, 3, -7, 2], dtype=dtype) + (rank == 0)
        total = size * torch.tensor([1, -1, 3, -7, 2]) + 1
        wanted = torch.div(total, size, rounding_mode="trunc").to(dtype)
        check(hvd.allreduce(own), wanted)
        check(hvd.allreduce_(own.clone(), op=hvd.Average), wanted)
        check(hvd.grouped_allreduce([own])[0], wanted)
        rows = hvd.reducescatter(own.repeat(size, 1))
        check(rows, wanted.unsqueeze(0))


def halves_are_summed() -> None:
    rank, size = hvd.rank(), hvd.size()
    own = torch.full((3,), rank + 0.5, dtype=torch.float16)
    everybody = torch.tensor([r + 0.5 for r in range(size)])
    check(hvd.allreduce(own, op=hvd.Sum), torch.full((3,), everybody.sum().item(), dtype=torch.float16))
    check(hvd.allreduce(own), torch.full((3,), everybody.mean().item(), dtype=torch.float16))
    check(hvd.allreduce(own, op=hvd.Min), torch.full((3,), 0.5, dtype=torch.float16))
    check(hvd.allgather(own[:1]), everybody.half())


def the_old_word_average() -> None:
    rank, size = hvd.rank(), hvd.size()
    own, total = torch.full((2,), rank + 1.0), torch.full((2,), size * (size + 1) / 2)
    calls: list[Callable[[bool], torch.Tensor]] = [
        lambda average: hvd.allreduce(own, average),
        lambda average: hvd.allreduce_(own.clone(), average=average),
        lambda average: hvd.synchronize(hvd.allreduce_async(own, average)),
        lambda average: hvd.synchronize(hvd.allreduce_async_(own.clone(), average=average)),
        lambda average: hvd.grouped_allreduce([own], average)[0],
        lambda average: hvd.synchronize(hvd.grouped_allreduce_async([own], average))[0],
    ]
    for call in calls:
        for average in (True, False):
            with pytest.warns(DeprecationWarning, match="op=Average"):
                check(call(average), total / size if average else total)


def values_survive_the_way_in_half_precision() -> None:
    size = hvd.size()
    for dtype in (torch.float32, torch.float64):
        exact = torch.tensor([0.0, -1.5, 2048.0, 2.0**-14, 65504.0], dtype=dtype)
        narrow, context = hvd.Compression.fp16.compress(exact)
        assert narrow.dtype == torch.float16
        check(hvd.Compression.fp16.decompress(narrow, context), exact)
        third = torch.full((4,), 1 / 3, dtype=dtype)
        check(hvd.allreduce(third, compression=hvd.Compression.fp16), third.half().to(dtype))
        check(hvd.allreduce(third, op=hvd.Max, compression=hvd.Compression.none), third)
    for other in (torch.arange(3), torch.ones(2, dtype=torch.float16)):
        narrow, context = hvd.Compression.fp16.compress(other)
        assert narrow is other
        assert hvd.Compression.fp16.decompress(narrow, context) is other
    whole = hvd.allreduce(torch.arange(3), op=hvd.Sum, compression=hvd.Compression.fp16)
    check(whole, torch.arange(3) * size)


def splits_of_an_alltoall() -> None:
    rank, size = hvd.rank(), hvd.size()
    rows = torch.arange(size * (size + 1) // 2) + 100 * rank  # Rank r is sent r + 1 of them.
    first = rank * (rank + 1) // 2
    wanted = torch.cat([torch.arange(first, first + rank + 1) + 100 * r for r in range(size)])
    numbers = list(range(1, size + 1))
    forms = [numbers, tuple(numbers), torch.tensor(numbers).numpy()]
    forms += [torch.tensor(numbers, dtype=dtype) for dtype in (torch.uint8, torch.int32, torch.int64)]
    for splits in forms:
        for dtype in (torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.float32):
            result, received = hvd.alltoall(rows.to(dtype), splits)
            check(result, wanted.to(dtype))
            wide = isinstance(splits, torch.Tensor) and splits.dtype == torch.int64
            check(received, torch.full((size,), rank + 1, dtype=torch.int64 if wide else torch.int32))
    nothing_from_rank_0 = [0] * size if rank == 0 else [1] * size
    _, received = hvd.alltoall(torch.zeros(sum(nothing_from_rank_0), 2), nothing_from_rank_0)
    assert received.tolist() == [0] + [1] * (size - 1)
    assert isinstance(hvd.alltoall(torch.zeros(size)), torch.Tensor)
    for given in (None, [1] * size):
        result, received = hvd.synchronize(hvd.alltoall_async(torch.zeros(size), given))
        check(received, torch.ones(size, dtype=torch.int32))
    good = torch.zeros(size)
    for wrong in ([1] * (size + 1), [1] * (size - 1), [2] * size, [0] * size, [-1, 2] + [1] * (size - 2)):
        fails_with(ValueError, lambda splits=wrong: hvd.alltoall(good, splits))
        fails_with(ValueError, lambda splits=wrong: hvd.alltoall(good, torch.tensor(splits, dtype=torch.int32)))
    for wrong in ([1.5] * size, torch.ones(size), torch.ones(size).numpy(), torch.ones(size, 1, dtype=torch.int32), 3):
        assert "splits" in fails_with(ValueError, lambda splits=wrong: hvd.alltoall(good, splits))
    fails_with(ValueError, lambda: hvd.alltoall(torch.zeros(size + 1)))
    fails_with(ValueError, lambda: hvd.alltoall(torch.tensor(1.0)))


def shares_of_a_reducescatter() -> None:
    rank, size = hvd.rank(), hvd.size()
    for dtype in (torch.int32, torch.int64, torch.float16, torch.float32, torch.float64):
        for remainder in range(size):
            rows = (torch.arange(2 * size + remainder, dtype=dtype) + rank).unsqueeze(1)
            whole = size * torch.arange(2 * size + remainder) + sum(range(size))
            counts = [3 if r < remainder else 2 for r in range(size)]
            check(hvd.reducescatter(rows, op=hvd.Sum), whole.split(counts)[rank].to(dtype).unsqueeze(1))
    for call in (
        lambda: hvd.reducescatter(torch.tensor(1.0)),
        lambda: hvd.reducescatter_async(torch.tensor(1.0)),
        lambda: hvd.grouped_reducescatter([torch.tensor(1.0)]),
    ):
        fails_with(ValueError, call)
    fails_with(ValueError, lambda: hvd.reducescatter(torch.ones(size), op=hvd.Adasum))
    fails_with(ValueError, lambda: hvd.grouped_reducescatter([torch.ones(size)], op=hvd.Adasum))


# --- timelines ----------------------------------------------------------------------------------------------------


def rows_of(path: Path) -> dict[str, list[str]]:
    """What happened to each tensor, by the tensor's name."""
    events = json.loads(path.read_text())
    names = {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}
    rows: dict[str, list[str]] = {name: [] for name in names.values()}
    for event in events:
        if event["ph"] == "B":
            rows[names[event["pid"]]].append(event["name"])
    return rows


def timelines_start_and_stop() -> None:
    """Calls that wait may go another way than those that do not; the file looks the same."""
    for number in range(5):
        path = Path(f"timeline{number % 4}.json")  # The last one replaces the first.
        marked = number % 2 == 0
        hvd.start_timeline(str(path), mark_cycles=marked)
        if number == 2:
            hvd.start_timeline(str(path), mark_cycles=marked)
        for size in (3, 5000):
            hvd.allreduce(torch.ones(size), name=f"waits.{size}")
            hvd.synchronize(hvd.allreduce_async(torch.ones(size), name=f"asynchronous.{size}"))
            hvd.grouped_allreduce([torch.ones(size)], name=f"group.{size}")
        hvd.broadcast(torch.ones(3), 0, name="sent")
        hvd.allgather(torch.ones(3), name="gathered")
        hvd.alltoall(torch.ones(hvd.size()), name="dealt")
        hvd.reducescatter(torch.ones(hvd.size()), name="shared")
        hvd.stop_timeline()
        hvd.stop_timeline()
        hvd.barrier()
        if hvd.rank() == 0:
            text, rows = path.read_text(), rows_of(path)
            assert "start_time_since_epoch_in_micros" in text
            assert ("CYCLE_START" in text) == marked
            for stem in ("waits", "asynchronous"):
                for size in (3, 5000):
                    assert {"NEGOTIATE_ALLREDUCE", "ALLREDUCE"} <= set(rows[f"allreduce.{stem}.{size}"]), rows
            assert "NEGOTIATE_ALLREDUCE" in rows["allreduce.group.3_1"]
            for kind, name in (("broadcast", "sent"), ("allgather", "gathered"), ("alltoall", "dealt")):
                assert {f"NEGOTIATE_{kind.upper()}", kind.upper()} <= set(rows[f"{kind}.{name}"]), rows
            assert "REDUCESCATTER" in rows["reducescatter.shared"]
        hvd.barrier()


def timelines_of_training() -> None:
    network = nn.Linear(3, 2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(network.parameters(), lr=0.1), network.named_parameters())
    path = Path("training.json")
    hvd.start_timeline(str(path))
    for _ in range(2):
        optimizer.zero_grad()
        network(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    half = my_half()
    hvd.allreduce(torch.ones(1), name="within", process_set=half)
    part = hvd.DistributedOptimizer(
        torch.optim.SGD(network.parameters(), lr=0.1), network.named_parameters(), process_set=half
    )
    network(torch.ones(1, 3)).sum().backward()
    part.step()
    hvd.stop_timeline()
    hvd.barrier()
    if hvd.rank() == 0:
        rows, part_rows = rows_of(path), f"process_set.{half.process_set_id}"
        for name in ("weight", "bias"):
            assert rows[f"allreduce.{name}"] == ["QUEUE", "ALLREDUCE"] * 2, rows
            of_half = rows.get(f"{part_rows}: allreduce.{name}", [])
            assert of_half == ["QUEUE", "ALLREDUCE"] * (half.size() > 1)
        assert {"NEGOTIATE_ALLREDUCE", "ALLREDUCE"} <= set(rows[f"{part_rows}: allreduce.within"])
        assert not any(f"process_set.{half.process_set_id + 1}" in row for row in rows), rows
        assert "cannot write" in fails_with(Error, lambda: hvd.start_timeline("no/such/folder/t.json"))
    remove(half)


# --- join ---------------------------------------------------------------------------------------------------------


def the_last_to_join_is_known_to_all() -> None:
    """Whoever it is. The others have joined when its allreduce is done, in which they take no part of their own."""
    rank, size = hvd.rank(), hvd.size()
    for last in range(size):
        if rank == last:
            check(hvd.allreduce(torch.full((2,), 6.0), op=hvd.Sum), torch.full((2,), 6.0))
            check(hvd.allreduce(torch.full((2,), 6.0)), torch.full((2,), 6.0 / size))
            for call in (lambda: hvd.allgather(torch.ones(2)), lambda: hvd.broadcast(torch.ones(2), rank)):
                assert "joined" in fails_with(RuntimeError, call)
        assert hvd.join() == last


def joining_within_a_set() -> None:
    """The numbers are the job's; the other set goes on undisturbed."""
    rank = hvd.rank()
    half = my_half()
    ranks = half.ranks
    if rank == ranks[0]:
        check(hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=half), torch.ones(1))
        check(hvd.allreduce(torch.ones(1), process_set=half), torch.ones(1) / len(ranks))
    assert hvd.join(process_set=half) == ranks[0]
    check(hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=half), torch.tensor([float(len(ranks))]))
    remove(half)


# --- process sets -------------------------------------------------------------------------------------------------


def barriers_of_a_set_wait_for_its_ranks_alone() -> None:
    rank = hvd.rank()
    half = my_half()
    for turn in range(5):
        Path(f"arrived.{turn}.{rank}").touch()
        hvd.barrier(process_set=half)
        assert all(Path(f"arrived.{turn}.{other}").exists() for other in half.ranks)
        # One half goes on alone, while the other waits for it.
        if rank % 2 == turn % 2:
            hvd.allreduce(torch.ones(1), name=f"one.half.{turn}", process_set=half)
        hvd.barrier()
    hvd.synchronize(hvd.barrier_async(process_set=half))
    remove(half)


def sets_come_and_go() -> None:
    """Added and removed by all ranks together; a set may come again, under another number."""
    rank, size = hvd.rank(), hvd.size()
    numbers = set()
    for _ in range(3):
        half = my_half()
        assert half.included()
        numbers.add(half.process_set_id)
        check(hvd.allreduce(torch.tensor([rank]), op=hvd.Sum, process_set=half), torch.tensor([sum(half.ranks)]))
        remove(half)
        assert half.process_set_id is None
        fails_with(ValueError, lambda old=half: hvd.allreduce(torch.ones(1), process_set=old))
    assert len(numbers) == 3
    assert not hvd.remove_process_set(hvd.global_process_set)
    check(hvd.allreduce(torch.ones(1), op=hvd.Sum), torch.tensor([float(size)]))


def batch_norm_within_a_set() -> None:
    rank = hvd.rank()
    half = my_half()
    parts = [torch.randn(3, 2, generator=torch.Generator().manual_seed(r)) + r for r in half.ranks]
    synced, reference = hvd.SyncBatchNorm(2, process_set=half), nn.BatchNorm1d(2)
    result, wanted = synced(parts[half.ranks.index(rank)]), reference(torch.cat(parts))
    first = 3 * half.ranks.index(rank)
    torch.testing.assert_close(result, wanted[first : first + 3], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(synced.running_mean, reference.running_mean, rtol=1e-5, atol=1e-6)
    remove(half)


def a_model_in_two_parts() -> None:
    """Each rank computes one part of the model; the ranks with the same part add its gradients among themselves. It
    ends with the weights of one process that has both parts and all data."""
    rank, size = hvd.rank(), hvd.size()
    half = my_half()
    pairs = size // 2  # Of an even rank and the odd one after it; an odd rank out has no data.
    torch.manual_seed(4)
    whole = nn.ModuleList([nn.Linear(3, 4), nn.Linear(4, 1)])
    part = nn.ModuleList([nn.Linear(3, 4), nn.Linear(4, 1)])
    part.load_state_dict(whole.state_dict())
    own = part[rank % 2]
    alone = torch.optim.SGD(whole.parameters(), lr=0.1)
    optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, own.named_parameters(), op=hvd.Sum, process_set=half)
    for step in range(3):
        data = [torch.randn(5, 3, generator=torch.Generator().manual_seed(10 * step + p)) for p in range(pairs)]
        optimizer.zero_grad()
        pair, idle = rank // 2, rank // 2 >= pairs
        middle = own(data[pair]) if rank % 2 == 0 and not idle else torch.zeros(5, 4)
        middles = hvd.allgather(middle.detach().unsqueeze(0))
        slope = torch.zeros(5, 4)
        if rank % 2 == 1:
            inputs = middles[rank - 1].clone().requires_grad_()
            (torch.tanh(own(inputs)).sum() / pairs).backward()
            slope = inputs.grad
        slopes = hvd.allgather(slope.unsqueeze(0))
        if rank % 2 == 0 and not idle:
            middle.backward(slopes[rank + 1])
        optimizer.step()
        alone.zero_grad()
        for one in data:
            (torch.tanh(whole[1](whole[0](one))).sum() / pairs).backward()
        alone.step()
    remove(half)
    for mine, right in zip(own.parameters(), whole[rank % 2].parameters(), strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-6)


def a_model_on_two_devices() -> None:
    """As far as a host without accelerators has two: parts that are moved and called one after the other, some of them
    not needed on every rank, trained by one optimizer."""
    rank, size = hvd.rank(), hvd.size()
    torch.manual_seed(5)
    parts = nn.ModuleDict({"front": nn.Linear(2, 3).to("cpu"), "back": nn.Linear(3, 1).to("cpu:0")})
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parts.parameters(), lr=0.1), parts.named_parameters())
    for step in range(3):
        optimizer.zero_grad()
        front = parts["front"](torch.full((1, 2), rank + 1.0)).to("cpu:0")
        result = parts["back"](front).sum() if step != 1 or rank > 0 else front.sum()
        result.backward()
        optimizer.step()
        users = size if step != 1 else size - 1
        check(parts["back"].bias.grad, torch.full((1,), users / size))
        check_agreement(*parts.parameters())


# --- beginnings ---------------------------------------------------------------------------------------------------


def what_init_takes() -> None:
    size = hvd.size()
    hvd.shutdown()
    hvd.shutdown()
    fails_with(ValueError, lambda: hvd.init(process_sets="static"))
    assert not hvd.is_initialized()
    hvd.init(comm=list(range(size)), process_sets="dynamic")
    assert hvd.size() == size
    hvd.shutdown()
    hvd.init([], [hvd.ProcessSet([size - 1])])
    assert hvd.process_set_by_id(1).ranks == [size - 1]
    hvd.shutdown()
    assert "process sets" in fails_with(UnsupportedError, lambda: hvd.init([0]))
    assert not hvd.is_initialized()
    hvd.init()
    check(hvd.allreduce(torch.ones(1), op=hvd.Sum), torch.tensor([float(size)]))


CHECKS = [
    averages_of_integers_lose_their_fraction,
    halves_are_summed,
    the_old_word_average,
    values_survive_the_way_in_half_precision,
    splits_of_an_alltoall,
    shares_of_a_reducescatter,
    timelines_start_and_stop,
    timelines_of_training,
    the_last_to_join_is_known_to_all,
    joining_within_a_set,
    barriers_of_a_set_wait_for_its_ranks_alone,
    sets_come_and_go,
    batch_norm_within_a_set,
    a_model_in_two_parts,
    a_model_on_two_devices,
    what_init_takes,
]


def body_checklist() -> None:
    torch.set_num_threads(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hvd.init()
    assert [str(one.message) for one in caught if "HOROVOD" in str(one.message)] == []
    run_each(CHECKS)


@pytest.mark.parametrize("size", SIZES)
@each(CHECKS)
def test_the_checklist_of_horovods_behaviour(run_checks, size, check):
    run_checks(size, body_checklist, check, environment={"HOROVOD_DYNAMIC_PROCESS_SETS": "1"})
