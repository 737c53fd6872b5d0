"""Users who are not root get a green run: tests that only root can run are skipped for a reason that is counted."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
AS_ANYBODY = "import os, sys, pytest; os.geteuid = lambda: 1000; sys.exit(pytest.main(sys.argv[1:]))"


def skips_of(folder: Path) -> list[str]:
    """The reasons of a run by somebody who is not root."""
    command = [sys.executable, "-c", AS_ANYBODY, "-q", "-rs", "-p", "no:cacheprovider", str(folder / "sample_test.py")]
    command += ["--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), "--confcutdir", str(ROOT / "tests")]
    command += ["-p", "conftest"]
    environment = {"PATH": os.defpath, "PYTHONPATH": f"{ROOT / 'tests'}:{ROOT / 'tests' / 'support'}"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    return sorted(line.rsplit(": ", 1)[1] for line in done.stdout.splitlines() if line.startswith("SKIPPED"))


def test_tests_for_root_are_left_out_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "sample_test.py").write_text(
        "import pytest\n"
        "@pytest.mark.needs_root\n"
        "def test_a(): pass\n"
        "@pytest.mark.needs_programs('sh', 'no-such-program')\n"
        "def test_b(): pass\n"
        "@pytest.mark.needs_programs('sh')\n"
        "def test_c(): pass\n"
    )
    reasons = skips_of(tmp_path)
    assert reasons == ["needs root", "needs root to install no-such-program"]
