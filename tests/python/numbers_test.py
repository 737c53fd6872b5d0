"""docs/guide/numbers.md promises where numbers are scaled and rounded: compared with NumPy on inputs whose sums are
exact in any order. Some ranks flush denormals, which must change nothing."""

import contextlib
import ctypes
import functools
import math
import operator
import os
import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import gyre.torch as hvd
import pytest
import torch
import torch.distributed as dist
from gyre.torch import adaptive_sum
from number_model import EXPONENTS, FACTORS, OPERATIONS, contributions, expected, same_values
from torch import nn


def random_operations() -> None:
    hvd.init()
    seed = 20261124
    chooser = random.Random(seed)
    for number in range(60):
        dtype = chooser.choice(list(EXPONENTS))
        op = chooser.choice(OPERATIONS)
        prescale, postscale = chooser.choice(FACTORS), chooser.choice(FACTORS)
        count = chooser.choice([1, 7, 200, 1031, 70_000])
        synchronous, scatters = chooser.random() < 0.5, chooser.random() < 0.25
        product = op == hvd.Product
        exponent = 0 if product else chooser.choice(EXPONENTS[dtype])
        tensors = contributions(dtype, count, exponent, product, seed + number)
        wanted = expected(tensors, op, prescale, postscale)
        own = tensors[hvd.rank()]
        torch.set_flush_denormal(hvd.rank() % 2 == 1)
        options = {"op": op, "prescale_factor": prescale, "postscale_factor": postscale, "name": f"n{number}"}
        if scatters:
            result = hvd.reducescatter(own, **options)
            rows = [count // hvd.size() + (rank < count % hvd.size()) for rank in range(hvd.size())]
            wanted = wanted.split(rows)[hvd.rank()]
        elif synchronous:
            result = hvd.allreduce(own, **options)
        else:
            result = hvd.synchronize(hvd.allreduce_async(own, **options))
        torch.set_flush_denormal(False)
        assert same_values(result, wanted), (seed, number, dtype, options, count, exponent, result, wanted)


def test_operations_have_the_promised_values_and_keep_denormals(run_ranks: Callable[..., object]) -> None:
    for size in (2, 3):
        run_ranks(size, random_operations)


def prescales() -> None:
    hvd.init()
    large = torch.full([5], 3e38)
    assert torch.equal(hvd.allreduce(large, op=hvd.Sum, prescale_factor=0.25), torch.full([5], 1.5e38))
    sparse = torch.sparse_coo_tensor(torch.tensor([[1, 3]]), torch.full([2], 3e38), [5], check_invariants=True)
    total = hvd.allreduce(sparse, op=hvd.Sum, prescale_factor=0.25).to_dense()
    assert torch.equal(total, torch.tensor([0.0, 1.5e38, 0.0, 1.5e38, 0.0]))


def test_a_prescale_is_applied_before_the_sum(run_ranks: Callable[..., object]) -> None:
    run_ranks(2, prescales)


def divides_gradients() -> None:
    hvd.init()
    for factor, finite in ((1.0, False), (2.0, True), (4.0, True)):
        weight = nn.Parameter(torch.zeros(4))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([weight], lr=1.0), [(f"w{factor}", weight)], gradient_predivide_factor=factor
        )
        (weight * 3e38).sum().backward()
        optimizer.synchronize()
        gradient = weight.grad
        assert gradient is not None
        assert bool(torch.isfinite(gradient).all()) == finite
        assert not finite or torch.equal(gradient, torch.full([4], 3e38))


def test_gradient_predivide_factor_keeps_large_gradients_finite(run_ranks: Callable[..., object]) -> None:
    run_ranks(2, divides_gradients)


def averages_equal_values() -> None:
    hvd.init()
    values = torch.arange(1, 200, dtype=torch.float32)
    assert torch.equal(hvd.allreduce(values), values)


def test_an_average_of_equal_values_is_that_value(run_ranks: Callable[..., object]) -> None:
    run_ranks(3, averages_equal_values)


def scatters_raggedly() -> None:
    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    dist.init_process_group("gyre", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=size)
    # 256 + 1 is 256 in bfloat16; three ones together are not lost.
    value = 256.0 if rank == 0 else 1.0
    parts = [torch.full([share + 1], value, dtype=torch.bfloat16) for share in range(size)]
    output = torch.empty(rank + 1, dtype=torch.bfloat16)
    dist.reduce_scatter(output, parts)
    assert output.tolist() == [260.0] * (rank + 1)  # 259, to nearest even.


def test_a_ragged_reduce_scatter_of_16_bits_is_rounded_once(run_ranks: Callable[..., object]) -> None:
    run_ranks(4, scatters_raggedly)


# As they are given, and what they mean: a fraction, or None, which is computed in double.
INTEGER_FACTORS: list[tuple[float, Fraction | None]] = [
    *((factor, Fraction(factor)) for factor in (1.0, 1.0, -1.0, 0.0, 2.0, -3.0, 2.0**32, 0.5, -0.25, 1.5)),
    (1 / 3, Fraction(1, 3)),
    (-1 / 49, Fraction(-1, 49)),
    (0.9, None),
    (-1.7, None),
]


def scaled(value: int, factor: tuple[float, Fraction | None], ranks: int = 1) -> int:
    given, fraction = factor
    return math.trunc(value * fraction / ranks if fraction is not None else float(value) * (given / ranks))


def expected_integer(values: Sequence[int], op: object, prescale: Any, postscale: Any, dtype: torch.dtype) -> int:
    functions = {hvd.Min: min, hvd.Max: max, hvd.Product: operator.mul}
    limits = torch.iinfo(dtype)
    total = functools.reduce(functions.get(op, operator.add), (scaled(value, prescale) for value in values))
    if op != hvd.Average and prescale[0] == 1 and postscale[0] == 1:
        return (total - limits.min) % 2**limits.bits + limits.min
    return min(max(scaled(total, postscale, len(values) if op == hvd.Average else 1), limits.min), limits.max)


def integers_of(dtype: torch.dtype, count: int, size: int, chooser: random.Random) -> list[list[int]]:
    """By rank."""
    limits = torch.iinfo(dtype)
    draw = [
        lambda: chooser.randint(limits.min, limits.max),
        lambda: chooser.choice([limits.min, limits.max]),
        lambda: max(chooser.randint(-5, 5), limits.min),
        lambda: limits.max // 2 + chooser.randint(0, 3),
    ]
    return [[chooser.choice(draw)() for _ in range(count)] for _ in range(size)]


def random_integers() -> None:
    hvd.init()
    seed = 20261125
    chooser = random.Random(seed)
    dtypes = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
    for number in range(80):
        dtype, op = chooser.choice(dtypes), chooser.choice(OPERATIONS)
        prescale, postscale = chooser.choice(INTEGER_FACTORS), chooser.choice(INTEGER_FACTORS)
        form = chooser.choice(["synchronous", "asynchronous", "grouped", "scattered"])
        values = integers_of(dtype, chooser.choice([1, 7, 64, 3000]), hvd.size(), chooser)
        wanted = [expected_integer(column, op, prescale, postscale, dtype) for column in zip(*values, strict=True)]
        own = torch.tensor(values[hvd.rank()], dtype=dtype)
        options = {"op": op, "prescale_factor": prescale[0], "postscale_factor": postscale[0], "name": f"i{number}"}
        if form == "scattered":
            result = hvd.reducescatter(own, **options)
            rows = [len(own) // hvd.size() + (rank < len(own) % hvd.size()) for rank in range(hvd.size())]
            begin = sum(rows[: hvd.rank()])
            wanted = wanted[begin : begin + rows[hvd.rank()]]
        elif form == "synchronous":
            result = hvd.allreduce(own, **options)
        elif form == "grouped":
            result = hvd.grouped_allreduce([own, own], **options)[1]
        else:
            result = hvd.synchronize(hvd.allreduce_async(own, **options))
        assert result.tolist() == wanted, (seed, number, form, dtype, options, values, result, wanted)


def test_scaled_integers_are_exact_or_the_nearest_value_and_never_wrap(run_ranks: Callable[..., object]) -> None:
    for size in (1, 2, 3):
        run_ranks(size, random_integers)


def refused_factors() -> None:
    hvd.init()
    for factor in (math.inf, math.nan, 2.0**33, 2.0**-60):
        for name in ("prescale_factor", "postscale_factor"):
            for dtype in (torch.int64, torch.uint8):
                with pytest.raises(ValueError, match="cannot be multiplied by"):
                    hvd.allreduce(torch.ones(3, dtype=dtype), op=hvd.Sum, **{name: factor})
    assert hvd.allreduce(torch.ones(3, dtype=torch.int64), op=hvd.Sum).tolist() == [hvd.size()] * 3


def test_factors_that_leave_no_integer_exact_are_refused(run_ranks: Callable[..., object]) -> None:
    run_ranks(2, refused_factors)


def premultiplies_integers() -> None:
    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    dist.init_process_group("gyre", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=size)
    large = 2**53 + 1
    for factor, values, wanted in (
        (3.0, torch.tensor([large, -large]), [3 * large * size, -3 * large * size]),
        (0.5, torch.tensor([large, -large]), [large // 2 * size, -(large // 2) * size]),
        (2.0, torch.tensor([100, -100], dtype=torch.int8), [127, -128]),
        (0.9, torch.tensor([255, 10], dtype=torch.uint8), [255, 9 * size]),
    ):
        operation = dist._make_nccl_premul_sum(factor)
        reduced = values.clone()
        dist.all_reduce(reduced, operation)
        assert reduced.tolist() == wanted, (factor, reduced)
        for counts in ([1] * size, list(range(1, size + 1))):
            output = torch.empty(counts[rank], dtype=values.dtype)
            dist.reduce_scatter(output, [values[:1].repeat(count) for count in counts], operation)
            assert output.tolist() == wanted[:1] * counts[rank], (factor, counts, output)


def test_premultiplied_sums_of_integers_do_not_wrap(run_ranks: Callable[..., object]) -> None:
    run_ranks(3, premultiplies_integers)


FE_TONEAREST, FE_UPWARD = 0, 0x800  # On x86-64.


@contextlib.contextmanager
def odd_state(rank: int) -> Iterator[None]:
    """Ranks differ: some flush denormals, some round upward."""
    libm = ctypes.CDLL("libm.so.6")
    torch.set_flush_denormal(rank % 2 == 1)
    libm.fesetround(FE_UPWARD if rank % 3 == 2 else FE_TONEAREST)
    try:
        yield
    finally:
        libm.fesetround(FE_TONEAREST)
        torch.set_flush_denormal(False)


def delicate(dtype: torch.dtype, count: int, seed: int) -> torch.Tensor:
    """Denormals, and numbers whose sums are rounded."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(count, generator=generator, dtype=torch.float64) / 3
    return torch.where(torch.rand(count, generator=generator) < 0.5, values, values * torch.finfo(dtype).tiny).to(dtype)


def sums_made_by_each_rank() -> None:
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    seed = 20261127
    for number, dtype in enumerate([torch.float32, torch.float64, torch.float16, torch.bfloat16]):
        everybody = [delicate(dtype, 60, seed + 10 * number + r) for r in range(size)]
        wide = dtype if dtype == torch.float64 else torch.float32
        total = functools.reduce(torch.add, [values.to(wide) * 0.75 for values in everybody])
        wanted = (total / size).to(dtype)
        indices = torch.stack([torch.arange(60) // 10, torch.arange(60) % 10])
        sparse = torch.sparse_coo_tensor(indices, everybody[rank], [6, 10], check_invariants=True)
        # An index twice: its values are added before they are sent.
        twice = torch.sparse_coo_tensor([[1, 0, 1]], everybody[rank][:3], [2], check_invariants=True)
        pairs = [(values[0].to(wide) + values[2].to(wide)).to(dtype) for values in everybody]
        with odd_state(rank):
            averaged = hvd.allreduce(sparse, op=hvd.Average, prescale_factor=0.75, name=f"sparse{number}")
            added = hvd.allreduce(twice, op=hvd.Sum, name=f"twice{number}")
            adaptive = hvd.allreduce(everybody[rank], op=hvd.Adasum, prescale_factor=0.7, name=f"ada{number}")
        assert torch.equal(averaged.to_dense().view(-1), wanted), (seed, dtype, averaged.to_dense().view(-1) - wanted)
        assert added.to_dense()[1] == functools.reduce(torch.add, [pair.to(wide) for pair in pairs]).to(dtype)
        assert torch.equal(adaptive, adaptive_sum.combine(everybody, 0.7, 1.0, dtype)), (seed, dtype)


def test_sums_that_each_rank_makes_alone_keep_denormals_and_round_to_nearest(run_ranks: Callable[..., object]) -> None:
    run_ranks(4, sums_made_by_each_rank)


def sparse_integers() -> None:
    hvd.init()
    size = hvd.size()
    large = 2**53 + 1
    for dtype, value, options, wanted in (
        (torch.int64, large, {"op": hvd.Average, "postscale_factor": -1.0}, -large),
        (torch.int64, large, {"op": hvd.Sum, "prescale_factor": 3.0}, 3 * large * size),
        (torch.uint8, 255, {"op": hvd.Sum, "prescale_factor": 0.9}, 255),
        (torch.int8, 100, {"op": hvd.Average}, 100),
    ):
        own = torch.sparse_coo_tensor([[1]], torch.tensor([value], dtype=dtype), [3], check_invariants=True)
        assert hvd.allreduce(own, **options).to_dense().tolist() == [0, wanted, 0], (dtype, options)
    flags = torch.sparse_coo_tensor([[hvd.rank()]], torch.tensor([True]), [size], check_invariants=True)
    assert hvd.allreduce(flags, op=hvd.Sum).to_dense().tolist() == [True] * size
    with pytest.raises(ValueError, match="cannot be scaled or averaged"):
        hvd.allreduce(flags, op=hvd.Average)


def test_sparse_integers_are_scaled_as_dense_ones(run_ranks: Callable[..., object]) -> None:
    run_ranks(3, sparse_integers)
