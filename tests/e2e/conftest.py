"""What tests of whole programs share: data to train with, a job server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from few_digits import few_digits
from job_server import JobServer


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


@pytest.fixture
def job_server(gyre: Path, tmp_path: Path, evidence: list[Path]) -> Iterator[JobServer]:
    """One that has not been started."""
    server = JobServer(gyre, tmp_path)
    evidence.append(server.log)
    yield server
    server.close()


@pytest.fixture
def server(job_server: JobServer) -> JobServer:
    job_server.start()
    return job_server
