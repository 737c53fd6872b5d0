"""Ranks that have TensorFlow, in a Python without torch. `./dev test` runs the tests of this folder with that of
.venv/tensorflow; in any other run there are none here."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest
from rank_template import RankTemplate
from ranks_fixture import RunRanks, run_ranks, two_templates

__all__ = ["RunRanks", "run_ranks", "templates"]

if importlib.util.find_spec("tensorflow") is None:
    collect_ignore_glob = ["*_test.py"]


@pytest.fixture(scope="session")
def templates() -> Iterator[list[RankTemplate]]:
    yield from two_templates("numpy", "pytest", "keras", "tensorflow")
