"""The page of a job server, in a browser: submit, watch, download, stop, clone, and a server that is killed in between.
The checks are in tests/browser/service_checks.mjs, and each is an item here."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_server import JobServer
from other_user import PYTHON as OTHER_USERS_PYTHON

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "tests" / "browser" / "service_checks.mjs"
MODULES = Path(sys.prefix) / "browser" / "node_modules"
CHECKS = re.findall(r"^  async (\w+)\(\)", SCRIPT.read_text(encoding="utf-8"), re.MULTILINE)
LONGEST_SECONDS = 180
WORK = (
    'echo "a result" > "$AZ_BATCHAI_OUTPUT_RESULTS/result.txt"; i=0; while true; do i=$((i+1)); '
    'echo "line $i <img src=x onerror=document.title=1>"; sleep 0.2; done'
)
PROPERTIES = {
    "nodeCount": 1,
    "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external",
    "outputDirectories": [{"id": "RESULTS", "pathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external"}],
    "customToolkitSettings": {"commandLine": WORK},
}
TRAINING = """
import time, gyre
for step in range(100_000):
    gyre.log({"train/loss": 1 / (step + 1)}, step=step, every_rank=True)
    time.sleep(0.02)
"""


def training_file(folder: Path) -> Path:
    """Which names its program in a line, because the job's account cannot look into `folder`."""
    python = OTHER_USERS_PYTHON if os.geteuid() == 0 else sys.executable
    file = folder / "train.json"
    properties = {
        "nodeCount": 1,
        "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_TEMP_DIR",
        "environmentVariables": [{"name": "PYTHONPATH", "value": str(ROOT / "python")}],
        "customToolkitSettings": {"commandLine": f'"$GYRE_PROGRAM" run -n 2 -- {python} -c {shlex.quote(TRAINING)}'},
    }
    file.write_text(json.dumps({"properties": properties}))
    return file


ROLES = """
import os, time
if os.environ["AZ_BATCHAI_TASK_TYPE"] == "worker":
    raise RuntimeError("the worker's own")
time.sleep(600)
"""


def other_files(folder: Path, share: Path) -> list[Path]:
    """Jobs whose processes are none of Gyre's launcher's ranks: with roles of TensorFlow's, and of mpirun."""
    script = share / "roles.py"
    script.write_text(ROLES)
    script.chmod(0o644)
    python = {
        "pythonScriptFilePath": "$AZ_BATCHAI_MOUNT_ROOT/external/roles.py",
        "pythonInterpreterPath": OTHER_USERS_PYTHON,
        "workerCount": 2,
        "parameterServerCount": 1,
    }
    killed = """bash -c '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || kill -9 $$; exec sleep 600'"""
    toolkits = {
        "roles": {"tensorFlowSettings": python},
        "mpi": {"customMpiSettings": {"commandLine": killed, "processCount": 2}},
    }
    files = []
    for name, toolkit in toolkits.items():
        file = folder / f"{name}.json"
        properties = {"nodeCount": 1, "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external", **toolkit}
        file.write_text(json.dumps({"properties": properties}))
        files.append(file)
    return files


def traced_file(folder: Path, gyre: Path) -> Path:
    """Two ranks that exchange until they are ended, and write timelines."""
    exchange = f"{gyre.parent / 'gyre-bench-rank'} allreduce --sizes 1000000 --seconds 600 --result figures"
    file = folder / "traced.json"
    properties = {
        "nodeCount": 1,
        "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_TEMP_DIR",
        "timeline": True,
        "customToolkitSettings": {"commandLine": f'"$GYRE_PROGRAM" run -n 2 -- {exchange}'},
    }
    file.write_text(json.dumps({"properties": properties}))
    return file


def link_of(page: subprocess.Popen[str]) -> str:
    assert page.stderr is not None
    line = page.stderr.readline()
    found = re.search(r"for one browser, until Ctrl-C: (\S+)", line)
    assert found is not None, line + page.stderr.read()
    return found[1]


@pytest.fixture(scope="module")
def problems(gyre: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str | None]]:
    assert (MODULES / "playwright-core").is_dir(), "./dev setup test installs it"
    folder = tmp_path_factory.mktemp("service")
    server = JobServer(gyre, folder)
    page = None
    try:
        server.start()
        server.ok("cluster", "create", "pool", "-t", "1", "--mount", f"external={server.share}", "--containers-on-host")
        job_file = folder / "job.json"
        job_file.write_text(json.dumps({"properties": PROPERTIES}))
        page = subprocess.Popen(
            [gyre, "page"], env=server.environment, cwd=folder, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        assert server.process is not None
        restart = folder / "restart"
        words = [str(word) for word in (SCRIPT, MODULES, link_of(page), job_file, server.process.pid, restart)]
        words.append(str(training_file(folder)))
        words += [str(file) for file in other_files(folder, server.share)]
        words.append(str(traced_file(folder, gyre)))
        checks = subprocess.Popen(["node", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + LONGEST_SECONDS
        while not restart.exists() and checks.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if restart.exists():
            server.process.wait()
            server.start()
        output, errors = checks.communicate(timeout=LONGEST_SECONDS)
        found = [json.loads(line) for line in output.splitlines()]
        assert found, errors
        yield {each["check"]: each["problem"] for each in found}
    finally:
        if page is not None:
            page.terminate()
            assert page.wait() == 0
        server.close()


@pytest.mark.parametrize("check", CHECKS)
def test_the_page_of_a_job_server(problems: dict[str, str | None], check: str) -> None:
    assert check in problems, f"was not reached: {[name for name, problem in problems.items() if problem]}"
    assert problems[check] is None, problems[check]
