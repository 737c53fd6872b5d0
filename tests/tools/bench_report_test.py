"""docs/performance.md is only as true as what writes it: rows in, the worst of them compared with each target."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
REPORT = ROOT / "bench" / "report.py"
MARKS = ("<!-- What follows is written by ./dev bench report. -->", "<!-- Until here. -->")


def allreduce_row(size: int, ours_us: float, gloo_us: float, openmpi_us: float | None) -> dict[str, Any]:
    peers = {"gloo_us": gloo_us, **({"openmpi_us": openmpi_us} if openmpi_us else {})}
    place = {"ranks": 2, "hosts": 1, "path": "arena", "face": "cpp"}
    return {"bench": "allreduce", "bytes": size, **place, "ours_us": ours_us, "peers": peers, "bound_us": ours_us * 0.8}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [allreduce_row(65536, 10, 120, 30), allreduce_row(1 << 20, 100, 990, None)]
    rows += [{**row, "path": "tensor", "ours_us": 2 * row["ours_us"]} for row in rows]
    (tmp_path / "allreduce.json").write_text(json.dumps(rows))
    (tmp_path / "page.md").write_text(f"before\n{MARKS[0]}\nold figures\n{MARKS[1]}\nafter\n")
    return tmp_path


def report(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(REPORT), str(folder), "--page", str(folder / "page.md")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_the_page_says_what_was_reached_missed_and_not_measured(folder: Path) -> None:
    done = report(folder)
    assert done.returncode == 0, done.stderr
    page = (folder / "page.md").read_text()
    assert page.startswith(f"before\n{MARKS[0]}\n")
    assert page.endswith(f"{MARKS[1]}\nafter\n")
    assert "old figures" not in page
    assert "| allreduce in the arena, 64 KB to 1 MB, against gloo | 2 | 10x | 9.90x | **missed** |" in page
    assert "| … against Open MPI | 2 | 1.50x | 3.00x | reached |" in page
    assert "| 256 MB in the arena, of the bound | 2 | 70% | not measured | |" in page
    assert page.count("| 64 KB |") == 2


def test_a_second_report_changes_nothing(folder: Path) -> None:
    """Whoever makes the page anew from the same rows must not see a difference."""
    assert report(folder).returncode == 0
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert report(folder).returncode == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first


def test_the_plot_is_well_formed_and_has_every_line(folder: Path) -> None:
    assert report(folder).returncode == 0
    drawn = (folder / "allreduce-2-ranks.svg").read_text()
    root = ElementTree.fromstring(drawn)
    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 5
    for name in ("Gyre, in the arena", "Gyre, ordinary tensor", "torch gloo", "Open MPI", "bound"):
        assert f">{name}</text>" in drawn


def test_a_folder_without_rows_and_a_page_without_marks_are_told(folder: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "page.md").write_text((folder / "page.md").read_text())
    assert "holds no rows" in report(empty).stderr
    (folder / "page.md").write_text("no marks")
    assert "must hold each of these lines once" in report(folder).stderr
    assert (folder / "page.md").read_text() == "no marks"


def test_the_page_in_the_repository_has_the_marks() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    assert [page.count(mark) for mark in MARKS] == [1, 1]
