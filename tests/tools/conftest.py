"""A small repository to plant violations in."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Plant = Callable[[str, str], None]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """An empty git repository."""
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", str(tmp_path)], check=True)
    return tmp_path


@pytest.fixture
def plant(repository: Path) -> Plant:
    """plant(PATH, TEXT) writes a file into the repository."""

    def write(path: str, text: str) -> None:
        file = repository / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    return write


@pytest.fixture
def commit(repository: Path) -> Callable[[], None]:
    """Commits everything in the repository."""

    def run() -> None:
        who = ["-c", "user.name=a test", "-c", "user.email=test@localhost"]
        subprocess.run(["git", "-C", str(repository), "add", "-A"], check=True)
        subprocess.run(["git", "-C", str(repository), *who, "commit", "--quiet", "-m", "a state"], check=True)

    return run
