"""`./dev bench tensorflow_step` trains with each exchange, checks what it leaves, and prints all figures of one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "bench" / "tensorflow_step.py"), *arguments]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'python'}:{ROOT / 'tools'}", "TMPDIR": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)


def test_it_has_all_figures_and_the_report_shows_them(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (tmp_path / "rows").mkdir()
    file = tmp_path / "rows" / "tensorflow_step.json"
    done = run(scratch, "--model", "cifar10", "--seconds", "0.01", "--repeats", "1", "--json", str(file))
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(file.read_text())
    assert [(row["what"], row["ranks"], row["gradients"]) for row in rows] == [
        ("exchange", 2, 12),
        ("ops alone", 1, 12),
    ]
    assert [set(row["peers"]) for row in rows] == [{"strategy_us", "gyre_torch_us"}, {"contributing_us"}]
    for row in rows:
        assert row["rounds"] >= 3
        assert row["alone_us"] > 0
        assert row["peers"].keys() == row["peers_alone_us"].keys() == row["peers_processor_us"].keys()
    for name in ("MultiWorkerMirroredStrategy", "gyre.torch", "Gyre's contributions"):
        assert name in done.stdout
    assert list(scratch.iterdir()) == []

    page = tmp_path / "page.md"
    marks = ("<!-- What follows is written by ./dev bench report. -->", "<!-- Until here. -->")
    page.write_text("\n".join(marks))
    report = [sys.executable, str(ROOT / "bench" / "report.py"), str(file.parent), "--page", str(page)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    subprocess.run(report, check=True, env=environment, timeout=60)
    assert "| exchange | 2 | 12 | MultiWorkerMirroredStrategy |" in page.read_text()
    assert (
        "| what gyre.keras adds to a step, against MultiWorkerMirroredStrategy's all_reduce | 2 | 5.00x |"
        in page.read_text()
    )


def test_what_cannot_be_measured_is_one_line(tmp_path: Path) -> None:
    alone = run(tmp_path, "--ranks", "1")
    assert (alone.returncode, alone.stderr.splitlines()[-1]) == (
        2,
        "./dev bench tensorflow_step: error: 1 ranks do not exchange anything",
    )
    unknown = run(tmp_path, "--model", "resnet51")
    assert unknown.returncode == 1
    assert unknown.stderr.startswith("./dev bench tensorflow_step: ")
    missing = run(tmp_path, "--tensorflow", "/no/python")
    assert missing.stderr.splitlines()[-1].endswith("there is no /no/python; `./dev setup` makes it")
