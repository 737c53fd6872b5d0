"""docs/guide/numbers.md as a model in NumPy, and contributions whose sums are exact in any order."""

from __future__ import annotations

import functools

import gyre.torch as hvd
import numpy as np
import torch

OPERATIONS = [hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product]
FACTORS = [1.0, 1.0, 0.5, 0.25, -2.0, 3.0]
# Units in which small multiples add up exactly: denormals, numbers of every day, the largest.
EXPONENTS = {
    torch.float16: [-24, 0, 12],
    torch.bfloat16: [-133, 0, 120],
    torch.float32: [-149, 0, 120],
    torch.float64: [-1074, 0, 1010],
}


def contributions(dtype: torch.dtype, count: int, exponent: int, product: bool, seed: int) -> list[torch.Tensor]:
    """Of all ranks, by rank."""
    made = []
    for rank in range(hvd.size()):
        generator = np.random.default_rng([seed, rank])
        multiples = generator.choice([1.0, -2.0], count) if product else generator.integers(-7, 8, count).astype(float)
        made.append(torch.from_numpy(np.ldexp(multiples, exponent)).to(dtype))
    return made


def expected(tensors: list[torch.Tensor], op: object, prescale: float, postscale: float) -> torch.Tensor:
    """One multiplication for each contribution, an exact combination, one division or multiplication, one rounding."""
    dtype = tensors[0].dtype
    number = np.float64 if dtype == torch.float64 else np.float32
    functions = {hvd.Min: np.minimum, hvd.Max: np.maximum, hvd.Product: np.multiply}
    with np.errstate(all="ignore"):
        # A contribution is rounded when it is scaled (denormals are).
        scaled = [(number(prescale) * t.to(torch.float64).numpy().astype(number)).astype(np.float64) for t in tensors]
        value = functools.reduce(functions.get(op, np.add), scaled).astype(number)
        divided_by = len(tensors) if op == hvd.Average else 1
        divisor = divided_by / postscale
        exact = divisor * postscale == divided_by and float(np.float32(divisor)) == divisor
        result = value / number(divisor) if exact else value * number(postscale / divided_by)
    return torch.from_numpy(np.asarray(result)).to(dtype)


def same_values(result: torch.Tensor, wanted: torch.Tensor) -> bool:
    return bool(((result == wanted) | (result.isnan() & wanted.isnan())).all())
