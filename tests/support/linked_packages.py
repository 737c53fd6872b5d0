"""A venv that has torch without copying it: distributions of the tests' own Python, linked into it."""

from __future__ import annotations

import importlib.metadata
import re
import venv
from pathlib import Path


def closure(name: str, seen: set[str]) -> set[str]:
    """The distribution and all that it requires here."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in seen:
        return seen
    try:
        requirements = importlib.metadata.distribution(name).requires or []
    except importlib.metadata.PackageNotFoundError:
        return seen
    seen.add(key)
    for requirement in requirements:
        if "extra ==" not in requirement:
            match = re.match(r"[A-Za-z0-9_.\-]+", requirement)
            if match is not None:
                closure(match[0], seen)
    return seen


def link_distribution(name: str, target: Path) -> None:
    distribution = importlib.metadata.distribution(name)
    for file in distribution.files or []:
        top = file.parts[0]
        source = Path(str(distribution.locate_file(top)))
        if top not in ("..", "__pycache__") and not (target / top).exists():
            (target / top).symlink_to(source)


def make_venv(folder: Path, *names: str) -> Path:
    """A venv with these distributions and what they require, and no pip. Returns its site-packages."""
    venv.create(folder)
    packages = next(folder.glob("lib/python*/site-packages"))
    wanted: set[str] = set()
    for name in names:
        closure(name, wanted)
    for name in sorted(wanted):
        link_distribution(name, packages)
    return packages
