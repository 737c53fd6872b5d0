"""A program that cannot be started: whether it is missing or may not be run, here, on other hosts and in jobs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from job_server import JobServer
from other_user import NOBODY
from running_job import StartJob

NOT_FOUND = 127
NOT_EXECUTABLE = 126


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A folder of programs that only its owner can enter."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    return folder


@pytest.mark.parametrize("hosts", [[], ["-H", "localhost:1"]])
def test_a_file_of_path_that_is_not_executable_is_named_with_its_folder(
    start_job: StartJob, tmp_path: Path, hosts: list[str]
) -> None:
    """Over -H the advice was `chmod +x ` and no name."""
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "preprocess"
    tool.write_text("#!/bin/sh\n")
    job = start_job(*hosts, "--", "preprocess", env={"PATH": f"{tool.parent}:{os.environ['PATH']}"})
    assert job.wait() == NOT_EXECUTABLE
    advice = f"cannot start 'preprocess': Permission denied; `chmod +x {tool}` makes a program executable"
    assert advice in job.stderr


@pytest.mark.needs_root
@pytest.mark.parametrize("hosts", [[], ["-H", "localhost:1"]])
def test_a_misspelt_program_is_not_found_though_a_folder_of_path_is_closed(
    gyre: Path, closed: Path, hosts: list[str]
) -> None:
    """The advice was to `chmod +x` a program that is nowhere."""
    environment = {"PATH": f"{closed}:{os.environ['PATH']}", "HOME": "/"}
    words = [str(gyre), "run", *hosts, "--", "pyhton", "train.py"]
    done = subprocess.run(
        words, user=NOBODY, group=NOBODY, cwd="/", env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == NOT_FOUND, done.stderr
    assert "cannot start 'pyhton': command not found in any folder of PATH; user 'nobody' cannot look into " in (
        done.stderr
    )
    assert str(closed) in done.stderr
    assert "chmod" not in done.stderr


@pytest.mark.needs_root
def test_a_job_of_roots_server_says_so_too(job_server: JobServer, closed: Path) -> None:
    job_server.environment["PATH"] = f"{closed}:{job_server.environment['PATH']}"
    job_server.start()
    job_server.ok("cluster", "create", "pool", "-t", "1")
    done = job_server.verb("job", "submit", "-f", "--", "pyhton", "train.py")
    assert done.returncode == NOT_FOUND, done.stderr
    assert "cannot start 'pyhton': command not found in any folder of PATH; user 'nobody' cannot look into" in (
        done.stderr
    )
    assert str(closed) in done.stderr
    assert "chmod" not in done.stderr


@pytest.mark.needs_root
def test_a_program_in_a_closed_folder_is_named_with_the_way_out(gyre: Path, closed: Path) -> None:
    """As a virtual environment below /root, in a script of a job."""
    program = closed / "python"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    words = [str(gyre), "run", "-n", "2", "--", str(program), "train.py"]
    done = subprocess.run(words, user=NOBODY, group=NOBODY, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == NOT_EXECUTABLE, done.stderr
    assert "user 'nobody' cannot enter the folder " in done.stderr
    assert "put it where that user can reach it (jobs that root starts run as --job-user)" in done.stderr
