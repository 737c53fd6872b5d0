"""The operations of gyre.torch between processes: right values for every type, shape and number of ranks."""

import functools
import itertools
import random
from collections.abc import Callable

import gyre.torch as hvd
import pytest
import torch
from checks import each, run_each
from expectations import fails_with
from gyre.errors import Error, InvalidArgumentError, MismatchError, UnsupportedError
from torch import nn

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
TYPES = [*INTEGERS, *FLOATS, torch.bool]
OPERATIONS = [hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product]
SHAPES = [(), (0,), (1,), (3, 0, 2), (7,), (2, 3, 5), (1031,)]


def made(dtype: torch.dtype, shape: tuple[int, ...], rank: int, seed: int = 0) -> torch.Tensor:
    """What `rank` contributes; every rank can work out everybody's. Small values, so that no sum of bytes overflows."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    if dtype.is_floating_point:
        return (torch.rand(shape, generator=generator, dtype=torch.float64) * 4 - 2).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 4, shape, generator=generator).to(dtype)


def expected(dtype: torch.dtype, tensors: list[torch.Tensor], op: object) -> torch.Tensor:
    wide = torch.float64 if dtype.is_floating_point else torch.int64
    values = [tensor.to(wide) for tensor in tensors]
    if op == hvd.Min:
        result = functools.reduce(torch.minimum, values)
    elif op == hvd.Max:
        result = functools.reduce(torch.maximum, values)
    elif op == hvd.Product:
        result = functools.reduce(torch.mul, values)
    else:
        result = functools.reduce(torch.add, values)
        if op == hvd.Average:
            divided = result / len(values)
            result = divided if dtype.is_floating_point else divided.trunc().to(wide)
    return result.to(torch.bool).to(dtype) if dtype == torch.bool else result.to(dtype)


def check(result: torch.Tensor, wanted: torch.Tensor) -> None:
    assert result.shape == wanted.shape
    assert result.dtype == wanted.dtype
    if wanted.dtype.is_floating_point:
        # Of 16-bit types the last bit may differ: they are summed in float32 here, in float64 above.
        torch.testing.assert_close(result, wanted, rtol=2 * torch.finfo(wanted.dtype).eps, atol=1e-6)
    else:
        assert torch.equal(result, wanted)


def allreduce_of_every_type() -> None:
    rank, size = hvd.rank(), hvd.size()
    pending = []
    for seed, (dtype, op, shape) in enumerate(itertools.product(TYPES, OPERATIONS, SHAPES)):
        if dtype == torch.bool and op == hvd.Average:
            continue
        wanted = expected(dtype, [made(dtype, shape, r, seed) for r in range(size)], op)
        own = made(dtype, shape, rank, seed)
        before = own.clone()
        pending.append((hvd.allreduce_async(own, name=f"matrix.{seed}", op=op), wanted))
        check(hvd.allreduce(own, op=op), wanted)
        assert torch.equal(own, before), "the plain form leaves its argument alone"
        assert hvd.allreduce_(own, op=op) is own
        check(own, wanted)
    for handle, wanted in pending:
        check(hvd.synchronize(handle), wanted)
        assert hvd.poll(handle)
    fails_with(InvalidArgumentError, lambda: hvd.allreduce(torch.zeros(3, dtype=torch.bool)))


def allreduce_of_unusual_memory() -> None:
    """Views, transposed and expanded tensors, channels_last: what the engine sees must be the elements in order."""
    rank, size = hvd.rank(), hvd.size()
    bases = [made(torch.float32, (6, 8), r, 5) for r in range(size)]
    for view in (lambda t: t.t(), lambda t: t[1:5:2, ::3], lambda t: t.flatten()[3:40], lambda t: t[::2].t()):
        wanted = expected(torch.float32, [view(base) for base in bases], hvd.Sum)
        check(hvd.allreduce(view(bases[rank]), op=hvd.Sum), wanted)
        base = bases[rank].clone()
        target = view(base)
        assert hvd.allreduce_(target, op=hvd.Sum) is target
        check(view(base), wanted)
    image = made(torch.float32, (2, 3, 4, 5), rank, 6).to(memory_format=torch.channels_last)
    images = [made(torch.float32, (2, 3, 4, 5), r, 6) for r in range(size)]
    check(hvd.allreduce_(image), expected(torch.float32, images, hvd.Average))
    expanded = torch.tensor([float(rank)]).expand(4)
    check(hvd.allreduce(expanded, op=hvd.Max), torch.full((4,), float(size - 1)))


def scaling_compression_and_old_spelling() -> None:
    rank, size = hvd.rank(), hvd.size()
    own = torch.arange(5, dtype=torch.float32) + rank
    total = expected(torch.float32, [torch.arange(5, dtype=torch.float32) + r for r in range(size)], hvd.Sum)
    check(hvd.allreduce(own, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0), total * 1.5)
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        result = hvd.allreduce(own, op=hvd.Sum, compression=compression)
        assert result.dtype == torch.float32
        torch.testing.assert_close(result, total, rtol=1e-2, atol=0)
        whole = torch.arange(4)
        assert hvd.allreduce(whole, op=hvd.Max, compression=compression).dtype == torch.int64
    with pytest.warns(DeprecationWarning, match="op=Average"):
        check(hvd.allreduce(own, average=False), total)
    fails_with(ValueError, lambda: hvd.allreduce(own, average=True, op=hvd.Sum))


def grouped() -> None:
    rank, size = hvd.rank(), hvd.size()
    kinds = [torch.float32, torch.int64, torch.float16, torch.float32]
    own = [made(dtype, (index + 1, 3), rank, index) for index, dtype in enumerate(kinds)]
    wanted = [
        expected(dtype, [made(dtype, (index + 1, 3), r, index) for r in range(size)], hvd.Sum)
        for index, dtype in enumerate(kinds)
    ]
    handle = hvd.grouped_allreduce_async(own, name="g", op=hvd.Sum)
    for results in (hvd.grouped_allreduce(own, op=hvd.Sum), handle.wait()):
        for result, right in zip(results, wanted, strict=True):
            check(result, right)
    results = hvd.grouped_allreduce_(own, op=hvd.Sum)
    assert all(result is tensor for result, tensor in zip(results, own, strict=True))
    for tensor, right in zip(own, wanted, strict=True):
        check(tensor, right)
    assert hvd.grouped_allreduce([]) == []


def broadcast_from_every_root() -> None:
    rank, size = hvd.rank(), hvd.size()
    for root, dtype, shape in itertools.product(range(size), TYPES, [(), (0, 2), (17,), (4, 3)]):
        own, wanted = made(dtype, shape, rank, root), made(dtype, shape, root, root)
        before = own.clone()
        check(hvd.broadcast(own, root), wanted)
        assert torch.equal(own, before)
        assert hvd.broadcast_(own, root) is own
        check(own, wanted)
    transposed = made(torch.float32, (3, 4), rank).t()
    hvd.broadcast_(transposed, size - 1)
    check(transposed, made(torch.float32, (3, 4), size - 1).t())


def allgather_of_ragged_tensors() -> None:
    rank, size = hvd.rank(), hvd.size()
    for dtype in TYPES:
        shapes = [(((r * 3 + 1) % 4), 2) for r in range(size)]  # One of them has no rows.
        wanted = torch.cat([made(dtype, shapes[r], r) for r in range(size)])
        check(hvd.allgather(made(dtype, shapes[rank], rank)), wanted)
    check(hvd.allgather(torch.tensor(rank)), torch.arange(size))
    check(hvd.allgather(torch.empty(0, 3)), torch.empty(0, 3))


def reducescatter_with_remainder() -> None:
    rank, size = hvd.rank(), hvd.size()
    for rows, op in itertools.product((0, 1, size, 2 * size + 1), (hvd.Sum, hvd.Average, hvd.Max)):
        everybody = [made(torch.float32, (rows, 3), r, rows) for r in range(size)]
        whole = expected(torch.float32, everybody, op)
        counts = [rows // size + (1 if r < rows % size else 0) for r in range(size)]
        check(hvd.reducescatter(everybody[rank], op=op), whole.split(counts)[rank])
    fails_with(InvalidArgumentError, lambda: hvd.reducescatter(torch.tensor(1.0)))


def alltoall_with_and_without_splits() -> None:
    rank, size = hvd.rank(), hvd.size()
    # Rank s sends r + s rows to rank r, each telling where it is from and for.
    rows = [[f"{rank}{r}"] * (r + rank) for r in range(size)]
    flat = torch.tensor([[int(text)] for piece in rows for text in piece], dtype=torch.int32).reshape(-1, 1)
    splits = torch.tensor([r + rank for r in range(size)])
    result, received = hvd.alltoall(flat, splits)
    wanted = [[int(f"{s}{rank}")] for s in range(size) for _ in range(rank + s)]
    check(result, torch.tensor(wanted, dtype=torch.int32).reshape(-1, 1))
    check(received, torch.tensor([rank + s for s in range(size)]))
    even = torch.arange(2 * size) + 100 * rank
    arrived = hvd.alltoall(even)
    check(arrived, torch.cat([torch.tensor([2 * rank, 2 * rank + 1]) + 100 * s for s in range(size)]))
    fails_with(ValueError, lambda: hvd.alltoall(torch.arange(3), [1] * (size + 1)))
    fails_with(ValueError, lambda: hvd.alltoall(torch.arange(3), [4] * size))
    fails_with(ValueError, lambda: hvd.alltoall(torch.arange(3), torch.ones(size)))


def random_order_on_every_rank() -> None:
    """Named operations may come in any order; each rank shuffles differently."""
    rank, size = hvd.rank(), hvd.size()
    seed = 20260101
    print(f"seed {seed}")
    for round_ in range(3):
        numbers = list(range(60))
        random.Random(seed + 100 * round_ + rank).shuffle(numbers)
        handles = {}
        for number in numbers:
            tensor = torch.full((number * 37 % 50,), float(number + rank))
            if number % 3 == 0:
                handles[number] = hvd.broadcast_async(tensor, number % size, name=f"random.{number}")
            elif number % 3 == 1:
                handles[number] = hvd.allreduce_async_(tensor, name=f"random.{number}", op=hvd.Sum)
            else:
                handles[number] = hvd.allgather_async(tensor, name=f"random.{number}")
        random.Random(seed - rank).shuffle(numbers)
        for number in numbers:
            count = number * 37 % 50
            wanted = {
                0: lambda n, c: torch.full((c,), float(n + n % size)),
                1: lambda n, c: torch.full((c,), float(sum(n + r for r in range(size)))),
                2: lambda n, c: torch.cat([torch.full((c,), float(n + r)) for r in range(size)]),
            }[number % 3](number, count)
            check(handles[number].wait(), wanted)
    hvd.barrier()


def gradients_through_operations() -> None:
    """With Horovod's factors, which scripts have tuned their learning rates to."""
    rank, size = hvd.rank(), hvd.size()
    weight = torch.arange(4.0) + rank
    total = sum(torch.arange(4.0) + r for r in range(size))
    factors = {"prescale_factor": 0.5, "postscale_factor": 3.0}

    for op, divisor in ((hvd.Sum, 1), (hvd.Average, size)):
        tensor = torch.ones(4, requires_grad=True)
        (hvd.allreduce(tensor, op=op, **factors) * weight).sum().backward()
        check(tensor.grad, total * 1.5 / divisor)

    tensor = torch.ones(4, requires_grad=True)
    (hvd.broadcast(tensor, size - 1) * weight).sum().backward()
    check(tensor.grad, total / size if rank == size - 1 else torch.zeros(4))

    tensor = torch.ones(rank + 1, requires_grad=True)
    gathered = hvd.allgather(tensor)
    (gathered * (torch.arange(float(len(gathered))) + rank)).sum().backward()
    first = rank * (rank + 1) // 2
    wanted = sum(torch.arange(float(len(gathered))) + r for r in range(size))[first : first + rank + 1]
    check(tensor.grad, wanted / size)

    for op, factor in ((hvd.Sum, size), (hvd.Average, 1)):
        tensor = torch.ones(size, requires_grad=True)
        (hvd.reducescatter(tensor, op=op, **factors) * (rank + 1)).sum().backward()
        check(tensor.grad, (torch.arange(float(size)) + 1) * 1.5 * factor)

    tensor = torch.ones(2, requires_grad=True)
    largest = hvd.allreduce(tensor, op=hvd.Max)
    check(largest.detach(), torch.ones(2))
    fails_with(UnsupportedError, largest.sum().backward)
    for call in (hvd.alltoall, hvd.reducescatter):
        fails_with(ValueError, functools.partial(call, torch.tensor(1.0, requires_grad=True)))


def gradients_return_where_rows_came_from() -> None:
    """Also where ranks have different numbers of rows and none of them says how they are split."""
    rank, size = hvd.rank(), hvd.size()
    rows = size * (rank + 1)  # To every rank rank + 1 of them.
    wanted = (torch.arange(float(size)) + 1).repeat_interleave(rank + 1)
    for splits in (None, [rank + 1] * size):
        tensor = torch.ones(rows, requires_grad=True)
        result = hvd.alltoall(tensor, splits, name="back")
        ((result if splits is None else result[0]) * (rank + 1)).sum().backward()
        check(tensor.grad, wanted)


def gradients_through_compression() -> None:
    """Autograd sees what a compressor does, whatever it does, as in Horovod."""
    rank, size = hvd.rank(), hvd.size()
    for operation, scales in (
        (lambda own, how: hvd.allreduce(own, compression=how), [(size + 1) / 2] * size),
        (lambda own, how: hvd.grouped_allreduce([own], compression=how)[0], [(size + 1) / 2] * size),
        (lambda own, how: hvd.reducescatter(own, compression=how), range(1, size + 1)),
        (lambda own, how: hvd.grouped_reducescatter([own], compression=how)[0], range(1, size + 1)),
    ):
        for compression, value, slope in ((hvd.Compression.fp16, 3.0, 1.0), (Squared, 9.0, 6.0)):
            tensor = torch.full((size,), 3.0, requires_grad=True)
            result = operation(tensor, compression)
            check(result.detach(), torch.full((len(result),), value))
            (result * (rank + 1)).sum().backward()
            check(tensor.grad, slope * torch.tensor(list(scales), dtype=torch.float32))


class Squared(hvd.Compressor):
    """Its slope is not its factor."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, object]:
        return tensor**2, None

    @staticmethod
    def decompress(tensor: torch.Tensor, context: object) -> torch.Tensor:  # noqa: ARG004
        return tensor


def gradients_of_gradients() -> None:
    """Of the sum, over ranks, of weight · result³; against a process that has all ranks' tensors. The last number is
    what Horovod's convention multiplies each gradient through the operation by."""
    rank, size = hvd.rank(), hvd.size()
    ranks = range(size)
    for operation, of_all, factor in (
        (hvd.allreduce, lambda all_: [sum(all_) / size for _ in ranks], 1),
        (lambda own: hvd.grouped_allreduce([own], name="again", op=hvd.Sum)[0], lambda all_: [sum(all_)] * size, 1),
        (lambda own: hvd.broadcast(own, size - 1), lambda all_: [all_[-1] + 0 * sum(all_) for _ in ranks], 1 / size),
        (hvd.allgather, lambda all_: [torch.cat(all_) for _ in ranks], 1 / size),
        (lambda own: hvd.reducescatter(own, op=hvd.Sum), lambda all_: list(sum(all_).split(2)), size),
        (hvd.alltoall, lambda all_: [torch.cat([one[2 * r : 2 * r + 2] for one in all_]) for r in ranks], 1),
    ):
        inputs = [torch.arange(1.0, 2 * size + 1) + r for r in ranks]
        alone = [one.clone().requires_grad_() for one in inputs]
        loss = sum((result**3 * (r + 1)).sum() for r, result in enumerate(of_all(alone)))
        slopes = torch.autograd.grad(loss, alone, create_graph=True)
        curvatures = torch.autograd.grad(sum((slope * (r + 2)).sum() for r, slope in enumerate(slopes)), alone)
        own = inputs[rank].clone().requires_grad_()
        (slope,) = torch.autograd.grad((operation(own) ** 3 * (rank + 1)).sum(), [own], create_graph=True)
        torch.testing.assert_close(slope, slopes[rank] * factor)
        (curvature,) = torch.autograd.grad((slope * (rank + 2)).sum(), [own])
        # Backward of backward: of averages averages again, of reducescatter's gathering an average.
        torch.testing.assert_close(curvature, curvatures[rank] * (factor if factor > 1 else factor**2))


def gradients_on_some_ranks_alone() -> None:
    """The ranks meet in the same operation, whoever needs a gradient."""
    size = hvd.size()
    tensor = torch.ones(size, requires_grad=hvd.rank() == 0)
    for name in (None, "some"):
        for op in (hvd.Sum, hvd.Average, hvd.Min, hvd.Adasum):
            hvd.allreduce(tensor, op=op, name=name)
            hvd.grouped_allreduce([tensor], op=op, name=name)
        hvd.allgather(tensor, name=name)
        hvd.grouped_allgather([tensor], name=name)
        hvd.reducescatter(tensor, name=name)
        hvd.grouped_reducescatter([tensor], name=name)
        hvd.broadcast(tensor, size - 1, name=name)
        hvd.alltoall(tensor, name=name)
        hvd.alltoall(tensor, [1] * size, name=name)
    check(hvd.allreduce(torch.ones(1), op=hvd.Sum), torch.tensor([float(size)]))


def tensors_that_cannot_be_exchanged() -> None:
    """Each is refused on this rank alone, before any other rank hears of it."""
    sparse = torch.eye(3).to_sparse()
    assert "to_dense" in fails_with(UnsupportedError, lambda: hvd.broadcast(sparse, 0, name="s"))
    assert "complex64" in fails_with(ValueError, lambda: hvd.allreduce(torch.zeros(2, dtype=torch.complex64)))
    assert "device 'meta'" in fails_with(Error, lambda: hvd.broadcast(torch.zeros(2, device="meta"), 0))
    fails_with(TypeError, lambda: hvd.allreduce([1.0, 2.0]))
    fails_with(TypeError, lambda: hvd.allreduce(None, op=hvd.Adasum))
    fails_with(TypeError, lambda: hvd.grouped_allgather([torch.ones(1, requires_grad=True), 3]))
    leaf = torch.zeros(2, requires_grad=True)
    assert "no_grad" in fails_with(RuntimeError, lambda: hvd.allreduce_(2 * leaf))
    with torch.no_grad():
        check(hvd.allreduce_(2 * leaf), torch.zeros(2))
    fails_with(ValueError, lambda: hvd.allreduce(torch.zeros(2), op="sum"))
    fails_with(ValueError, lambda: hvd.broadcast(torch.zeros(2), hvd.size()))


def parameters_in_place() -> None:
    rank, size = hvd.rank(), hvd.size()
    parameter = nn.Parameter(torch.full((3, 2), float(rank)).t())
    assert hvd.broadcast_(parameter, size - 1) is parameter
    check(parameter.detach(), torch.full((2, 3), size - 1.0))
    assert hvd.synchronize(hvd.allreduce_async_(parameter, op=hvd.Sum)) is parameter
    hvd.grouped_allreduce_([parameter])
    check(parameter.detach(), torch.full((2, 3), size * (size - 1.0)))
    assert parameter.is_leaf
    assert parameter.requires_grad
    loss = (parameter**2).sum()
    hvd.allreduce_(parameter)
    fails_with(RuntimeError, loss.backward)


def in_place_marks_the_tensor_as_changed() -> None:
    """Otherwise autograd would use values that are no longer there, without a word."""
    inputs, weight = torch.ones(3), torch.ones(3, requires_grad=True)
    product = inputs * weight
    hvd.allreduce_(inputs, op=hvd.Sum)
    fails_with(RuntimeError, lambda: product.sum().backward())


EVERYTHING = [
    allreduce_of_every_type,
    allreduce_of_unusual_memory,
    scaling_compression_and_old_spelling,
    grouped,
    broadcast_from_every_root,
    allgather_of_ragged_tensors,
    reducescatter_with_remainder,
    alltoall_with_and_without_splits,
    random_order_on_every_rank,
    gradients_through_operations,
    gradients_return_where_rows_came_from,
    gradients_through_compression,
    gradients_of_gradients,
    gradients_on_some_ranks_alone,
    parameters_in_place,
    tensors_that_cannot_be_exchanged,
    in_place_marks_the_tensor_as_changed,
]


def body_everything() -> None:
    hvd.init()
    run_each(EVERYTHING)


@pytest.mark.parametrize("size", [1, 2, 4])
@each(EVERYTHING)
def test_operations_give_the_right_values(run_checks, size, check):
    run_checks(size, body_everything, check)


@each(EVERYTHING)
def test_operations_give_the_right_values_without_fusion(run_checks, check):
    run_checks(3, body_everything, check, environment={"GYRE_FUSION_BYTES": "0"})


def body_mismatches() -> None:
    """Every rank must get the error, and the job must go on afterwards."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    first = rank == 0

    def both_sides(call: Callable[[], object], name: str, *words: str) -> None:
        message = fails_with(MismatchError, call)
        assert name in message, message
        for word in (*words, "0", "1"):
            assert word in message, (word, message)

    both_sides(lambda: hvd.allreduce(torch.zeros(2 + rank), name="shape"), "shape", "[2]", "[3]")
    dtype = torch.float32 if first else torch.int64
    both_sides(lambda: hvd.allreduce(torch.zeros(3, dtype=dtype), name="type", op=hvd.Sum), "type", "float32", "int64")
    op = hvd.Sum if first else hvd.Max
    both_sides(lambda: hvd.allreduce(torch.zeros(3), name="operation", op=op), "operation", "sum", "max")
    both_sides(lambda: hvd.allreduce_(torch.zeros(2 if first else 3), name="place"), "place", "[2]", "[3]")
    later = hvd.allreduce_async(torch.zeros(2 if first else 3), name="later")
    both_sides(later.wait, "later", "[2]", "[3]")
    both_sides(lambda: hvd.grouped_allreduce([torch.zeros(2), torch.zeros(2 + first)], name="group"), "group", "[3]")
    for name in ("of.tensors", "of.tensors", None):  # Again by the same name: nothing of it is left.
        few = [torch.zeros(2)] * (2 if first else 4)
        both_sides(lambda few=few, name=name: hvd.grouped_allreduce(few, name=name), name or "noname", "of 2", "of 4")
    check(hvd.grouped_allreduce([torch.ones(2)] * 3, name="of.tensors")[2], torch.ones(2))
    many = [torch.zeros(2 + first), *[torch.zeros(2)] * 40]
    for _ in range(20):  # Whoever learns of the first member's failure may go on with all members' names at once.
        both_sides(lambda: hvd.grouped_allreduce(many, name="of.many"), "of.many", "[2]", "[3]")
    both_sides(lambda: hvd.broadcast(torch.zeros(3), rank, name="root"), "root")
    both_sides(lambda: hvd.broadcast(torch.zeros(3 + first), 0, name="sent"), "sent", "[3]", "[4]")
    both_sides(lambda: hvd.broadcast(torch.zeros(3, dtype=dtype), 0, name="kind"), "kind", "float32", "int64")
    both_sides(lambda: hvd.allgather(torch.zeros(2, 2 + rank), name="rows"), "rows", "[2, 2]", "[2, 3]")
    both_sides(lambda: hvd.allgather(torch.zeros(2, dtype=dtype), name="rows"), "rows", "float32", "int64")
    dealt = torch.zeros(size, 2 + first)
    both_sides(lambda: hvd.alltoall(dealt, name="dealt"), "dealt", "2]", "3]")
    both_sides(lambda: hvd.reducescatter(torch.zeros(size + first), name="shares"), "shares", "shape")
    both_sides(lambda: hvd.reducescatter(torch.zeros(size), name="shares", op=op), "shares", "sum", "max")
    check(hvd.allreduce(torch.ones(3), op=hvd.Sum), torch.full((3,), float(size)))


def body_duplicate_names() -> None:
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    kinds: list[Callable[[str], hvd.Handle]] = [
        lambda name: hvd.allreduce_async(torch.ones(3), name=name, op=hvd.Sum),
        lambda name: hvd.allreduce_async_(torch.ones(3), name=name, op=hvd.Sum),
        lambda name: hvd.grouped_allreduce_async([torch.ones(3)], name=name, op=hvd.Sum),
        lambda name: hvd.broadcast_async(torch.ones(3), 0, name=name),
        lambda name: hvd.allgather_async(torch.ones(3), name=name),
        lambda name: hvd.alltoall_async(torch.ones(size), name=name),
        lambda name: hvd.reducescatter_async(torch.ones(size), name=name),
    ]
    for number, kind in enumerate(kinds):
        if rank == 0:
            # The others have not announced it yet, so that the first is in flight for certain.
            first = kind("same")
            message = fails_with(ValueError, functools.partial(kind, "same"))
            assert "same" in message
            assert "in flight" in message
            hvd.barrier(f"tried.{number}")
        else:
            hvd.barrier(f"tried.{number}")
            first = kind("same")
        first.wait()
        kind("same").wait()
    check(hvd.allreduce(torch.ones(3), name="same", op=hvd.Sum), torch.full((3,), float(size)))


def body_errors() -> None:
    body_mismatches()
    body_duplicate_names()


@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_rank_sees_both_sides_of_a_mismatch_and_the_job_goes_on(run_ranks, size):
    run_ranks(size, body_errors)
