"""How much tests of many cases try: little in an everyday run, more with `./dev test --long`."""

from __future__ import annotations

import os
import random


def is_long() -> bool:
    return bool(os.environ.get("GYRE_TEST_LONG"))


def rounds(everyday: int, long: int) -> int:
    return long if is_long() else everyday


def first_seed() -> int:
    """Another one each day, so that no two days try the same cases; GYRE_TEST_SEED repeats a day's."""
    return int(os.environ.get("GYRE_TEST_SEED", "0"))


def seeded_random() -> random.Random:
    """Prints its seed, which pytest shows when the test fails."""
    print(f"GYRE_TEST_SEED={first_seed()}")
    return random.Random(first_seed())
