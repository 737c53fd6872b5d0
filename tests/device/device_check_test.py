"""The script that tries Gyre on GPUs is run where one is at hand, by people who cannot repair it: every row must work,
here on the simulated device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_row_of_the_device_check_works(tmp_path: Path) -> None:
    environment = os.environ | {
        "PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT / "python"),
        "OMP_NUM_THREADS": "1",
    }
    ended = subprocess.run(
        [ROOT / "tools" / "device_check.sh", "--simulated"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    rows = [line for line in ended.stdout.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 9, ended.stdout
    assert not any("failed" in row or "open" in row for row in rows), ended.stdout
    assert "this shows nothing about GPUs" in ended.stdout
