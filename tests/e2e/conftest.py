"""What tests of whole programs share: data to train with."""

from __future__ import annotations

from pathlib import Path

import pytest
from few_digits import few_digits


@pytest.fixture(scope="session")
def digits() -> dict[str, bytes]:
    return few_digits()


@pytest.fixture
def data(tmp_path: Path, digits: dict[str, bytes]) -> Path:
    for name, content in digits.items():
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "data"
