"""What works where torch is not installed: this folder's Python has none."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from gyre.data import write_tfrecords

PACKAGE = Path(__file__).parents[2] / "python"
PROMISED = ("data", "jobs", "launch", "doctor", "completion", "horovod", "workers")


def environment(gyre: Path) -> dict[str, str]:
    return {
        "PYTHONPATH": str(PACKAGE),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{gyre.parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": os.environ.get("HOME", "/"),
    }


def test_the_modules_that_promise_it_are_imported_without_torch() -> None:
    assert importlib.util.find_spec("torch") is None
    for name in PROMISED:
        assert importlib.import_module(f"gyre.{name}") is not None
    with pytest.raises(ModuleNotFoundError, match="torch"):
        importlib.import_module("gyre.torch")


LOADER = """
import gyre.keras as hvd
import numpy
from gyre.data import Loader, floats, ints

hvd.init()
loader = Loader("numbers.tfrecord", {"x": floats(2), "y": ints()}, batch_size=2, shuffle=False)
seen = []
for batch in loader:
    assert isinstance(batch["x"], numpy.ndarray) and batch["x"].dtype == numpy.float32
    seen += batch["y"].ravel().tolist()
print(hvd.rank(), loader.rank, loader.world_size, sorted(seen), flush=True)
"""


def test_the_loader_gives_numpy_arrays_to_the_ranks(start_job, gyre, tmp_path) -> None:
    samples = ({"x": numpy.array([i, i + 1], numpy.float32), "y": numpy.array([i])} for i in range(8))
    write_tfrecords(tmp_path / "numbers.tfrecord", samples)
    (tmp_path / "load.py").write_text(LOADER)
    job = start_job("-n", "2", "--", sys.executable, "load.py", env=environment(gyre), timeout=240)
    assert job.wait() == 0, job.stderr
    lines = sorted(line.partition("] ")[2] for line in job.stdout.splitlines())
    assert [line.split("[")[0].split() for line in lines] == [["0", "0", "2"], ["1", "1", "2"]]
    seen = [number for line in lines for number in json.loads(line[line.index("[") :])]
    assert sorted(seen) == list(range(8))


def test_the_commands_run_without_torch(gyre, tmp_path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(gyre), *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment(gyre), capture_output=True, text=True, check=False)

    finished = run("doctor", "-o", "json")
    findings = {one["name"]: one for one in json.loads(finished.stdout)["findings"]}
    assert finished.returncode == 0, finished.stdout
    assert findings["torch"]["state"] == "note"
    assert "gyre-train[torch]" in findings["torch"]["remedy"]
    assert findings["two ranks"]["state"] == "ok"
    assert findings["keras"]["text"].startswith("keras 3.")
    finished = run("completion", "bash")
    assert finished.returncode == 0, finished.stderr
    assert "doctor" in finished.stdout
    (tmp_path / "job.py").write_text("import gyre\nprint(gyre.run(max, (1, 2), np=2))\n")
    finished = subprocess.run(
        [sys.executable, "job.py"], cwd=tmp_path, env=environment(gyre), capture_output=True, text=True, check=False
    )
    assert finished.stdout.strip() == "[2, 2]", finished.stderr
