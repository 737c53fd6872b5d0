"""Ranks that have torch: see ranks_fixture. The device itself is loaded in the ranks, see sim_device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rank_template import RankTemplate
from ranks_fixture import RunRanks, run_checks, run_ranks, two_templates

__all__ = ["RunRanks", "run_checks", "run_ranks", "templates"]


@pytest.fixture(scope="session")
def templates() -> Iterator[list[RankTemplate]]:
    yield from two_templates()
