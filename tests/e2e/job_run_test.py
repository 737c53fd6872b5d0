"""`gyre job run`: the article's job file, unchanged, from a user's shell."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from article_job import ARTICLE, SCRIPTS, make_share, script
from running_job import wait_until


@pytest.fixture
def share() -> Iterator[Path]:
    with make_share() as folder:
        yield folder


def start(gyre: Path, tmp_path: Path, *options: str) -> subprocess.Popen[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    return subprocess.Popen(
        [str(gyre), "job", "run", str(ARTICLE), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def test_the_articles_job_runs_unchanged_and_its_files_are_in_their_places(
    gyre: Path, tmp_path: Path, share: Path
) -> None:
    script(share, "job-prep.sh", "echo prepared")
    script(
        share,
        "run-cifar10.sh",
        'echo "$NUM_NODES x $PROCESSES_PER_NODE on $AZ_BATCH_HOST_LIST"; echo {} > "$HOROVOD_TIMELINE"',
    )
    job = start(gyre, tmp_path, "--mount", f"external={share}")
    out, errors = job.communicate(timeout=120)
    assert job.returncode == 0, errors
    assert "2 x 4 on 127.0." in out
    assert "job 'job' succeeded" in errors
    (timeline,) = share.glob(f"{SCRIPTS}/*/*/workspaces/*/experiments/*/jobs/job/*/outputs/timelines/timeline.json")
    assert timeline.read_text() == "{}\n"
    (log,) = share.glob("storagedir/*/*/workspaces/*/experiments/*/jobs/job/*/stdouterr/stdout.txt")
    assert log.read_text() in out
    assert len(list(log.parent.glob("stdout-job_prep-*.txt"))) == 2
    assert str(log.parent) in errors


def test_a_script_starts_processes_on_all_nodes_with_paths_that_the_first_node_expanded(
    gyre: Path, tmp_path: Path, share: Path
) -> None:
    """As the article's script does with mpirun: one command, expanded once, for all processes on all nodes."""
    (share / SCRIPTS / "input").write_text("the input\n")
    script(share, "job-prep.sh", "true")
    script(
        share,
        "run-cifar10.sh",
        'hosts=$(echo "$AZ_BATCH_HOST_LIST" | sed "s/,/:$PROCESSES_PER_NODE,/g"):$PROCESSES_PER_NODE\n'
        'exec "$GYRE_PROGRAM" run -n $((NUM_NODES * PROCESSES_PER_NODE)) -H $hosts -- '
        'cat "$AZ_BATCHAI_INPUT_SCRIPTS/input"',
    )
    job = start(gyre, tmp_path, "--mount", f"external={share}", "--quiet")
    out, errors = job.communicate(timeout=120)
    assert job.returncode == 0, errors
    assert out.count("the input\n") == 8, out + errors


def test_a_jobs_exit_code_is_gyre_job_runs(gyre: Path, tmp_path: Path, share: Path) -> None:
    script(share, "job-prep.sh", "true")
    script(share, "run-cifar10.sh", "echo tried; exit 7")
    job = start(gyre, tmp_path, "--mount", f"external={share}")
    out, errors = job.communicate(timeout=120)
    assert job.returncode == 7
    assert "tried\n" in out
    assert "failed with exit code 7: JobFailed" in errors.splitlines()[-1]


def test_a_failure_that_is_not_the_jobs_ends_with_125_as_gyre_job_wait_does(
    gyre: Path, tmp_path: Path, share: Path
) -> None:
    """It was 255 here, and 125 there."""
    script(share, "job-prep.sh", "true")
    script(
        share,
        "run-cifar10.sh",
        "pid=$$\n"
        'until tr "\\0" " " < /proc/$pid/cmdline | grep -q "gyre-node launch"; do\n'
        "  pid=$(awk '/^PPid:/ { print $2 }' /proc/$pid/status)\n"
        "done\n"
        "kill -9 $pid; exec sleep 600",
    )
    job = start(gyre, tmp_path, "--mount", f"external={share}")
    _, errors = job.communicate(timeout=120)
    assert job.returncode == 125, errors
    assert "failed with exit code 125: InternalError" in errors.splitlines()[-1]


def test_the_folder_of_a_killed_run_goes_with_the_next_one_and_no_other_does(gyre: Path, tmp_path: Path) -> None:
    """After kill -9 nobody removes it; its nodes work in it until their lease is over."""
    abandoned, alive, with_node, of_others = (Path(tempfile.mkdtemp(prefix="gyre-job-", dir="/tmp")) for _ in range(4))
    (with_node / "nodes" / "n0").mkdir(parents=True)
    for folder in (abandoned, alive, with_node):
        (folder / "temporary.lock").touch()
    file = tmp_path / "job.json"
    settings = {"customToolkitSettings": {"commandLine": "true"}}
    logs = {"stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/x"}
    file.write_text(json.dumps({"properties": {"nodeCount": 1, **logs, **settings}}))
    tmp_path.chmod(0o777)
    words = [str(gyre), "job", "run", str(file), "--mount", f"x={tmp_path}"]
    with (alive / "temporary.lock").open() as run, (with_node / "nodes" / "n0" / "agent.lock").open("w") as node:
        fcntl.flock(run, fcntl.LOCK_EX)
        fcntl.flock(node, fcntl.LOCK_EX)
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    left = [folder for folder in (abandoned, alive, with_node, of_others) if folder.exists()]
    for folder in left:
        shutil.rmtree(folder)
    assert left == [alive, with_node, of_others]


def test_ctrl_c_terminates_the_job(gyre: Path, tmp_path: Path, share: Path) -> None:
    script(share, "job-prep.sh", "true")
    script(share, "run-cifar10.sh", 'touch "$AZ_BATCHAI_OUTPUT_TIMELINE/runs"; exec sleep 600')
    job = start(gyre, tmp_path, "--mount", f"external={share}")
    deadline = time.monotonic() + 60
    while not list(share.glob(f"{SCRIPTS}/**/runs")) and time.monotonic() < deadline:
        time.sleep(0.05)
    job.send_signal(signal.SIGINT)
    _, errors = job.communicate(timeout=60)
    assert job.returncode != 0
    assert "terminating the job" in errors
    assert "job 'job' failed" in errors.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--mount", "external"], "NAME=DIR"),
        (["--mount", "external=/no/such/folder"], "/no/such/folder is not a directory"),
        ([], "with --mount external=DIR"),
        (["--mount", "other=/tmp"], "with --mount external=DIR"),
    ],
)
def test_a_mount_that_is_wrong_or_missing_is_named_before_anything_starts(
    gyre: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    """It was found by an attempt, which left a folder behind and named directories that were not there."""
    before = set(Path("/tmp").glob("gyre-job-*"))
    job = start(gyre, tmp_path, *options)
    out, errors = job.communicate(timeout=60)
    assert job.returncode == 2
    assert words in errors
    assert "attempt" not in errors
    assert "stdouterr" not in errors
    assert out == ""
    new = set(Path("/tmp").glob("gyre-job-*")) - before  # Perhaps of tests that run beside this one, and will go.
    wait_until("its folder is gone", lambda: not any(folder.exists() for folder in new))


def test_code_is_copied_to_every_node_and_what_cannot_be_is_refused_before_anything_starts(
    gyre: Path, tmp_path: Path, share: Path
) -> None:
    code = tmp_path / "code"
    (code / "lib").mkdir(parents=True)
    (code / "lib" / "model.py").write_text("NAME = 'net'\n")
    (code / "left-out").touch()
    (code / ".gyreignore").write_text("left-out\n")
    file = tmp_path / "job.json"
    line = "ls; cat lib/model.py; pwd"
    properties = {
        "nodeCount": 2,
        "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external",
        "jobPreparation": {"commandLine": "cat lib/model.py"},
        "customToolkitSettings": {"commandLine": line},
    }
    file.write_text(json.dumps({"properties": properties}))
    command = [str(gyre), "job", "run", str(file), "--mount", f"external={share}", "--quiet", "--code"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        [*command, str(code)], capture_output=True, text=True, env=environment, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("NAME = 'net'") == 3, done.stdout
    assert "left-out" not in done.stdout
    (code / "passwd").symlink_to("/etc/passwd")
    for folder, why in ((code, "passwd is a link to /etc/passwd"), (tmp_path / "none", "none is not a folder")):
        refused = subprocess.run(
            [*command, str(folder)], capture_output=True, text=True, env=environment, timeout=60, check=False
        )
        assert refused.returncode == 2
        assert len(refused.stderr.splitlines()) == 1
        assert why in refused.stderr


def test_a_slow_pipe_gets_every_byte_and_a_stdout_that_fails_costs_the_job_nothing(
    gyre: Path, tmp_path: Path, share: Path
) -> None:
    """A pipe that does not block was written until it was full; the rest was lost, with exit code 0."""
    size = 300_000
    file = tmp_path / "job.json"
    properties = {
        "nodeCount": 1,
        "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external",
        "customToolkitSettings": {"commandLine": f"yes abcdefghi | head -c {size}; exit 7"},
    }
    file.write_text(json.dumps({"properties": properties}))

    def started(stdout: int) -> subprocess.Popen[bytes]:
        words = [str(gyre), "job", "run", str(file), "--mount", f"external={share}"]
        return subprocess.Popen(words, stdout=stdout, stderr=subprocess.PIPE, env={"PATH": os.environ["PATH"]})

    out, into = os.pipe()
    os.set_blocking(into, False)
    assert fcntl.fcntl(out, fcntl.F_GETPIPE_SZ) < size
    job = started(into)
    os.close(into)
    with os.fdopen(out, "rb") as stream:
        assert stream.read() == b"abcdefghi\n" * (size // 10)
    errors = job.communicate(timeout=60)[1]
    assert job.returncode == 7, errors
    with Path("/dev/null").open("rb") as only_read:
        job = started(only_read.fileno())
    errors = job.communicate(timeout=60)[1]
    assert job.returncode == 7, errors
    sentence = b"cannot write to stdout: Bad file descriptor; the rest of the job's output is not shown\n"
    assert errors.count(b"gyre job run: " + sentence) == 1
