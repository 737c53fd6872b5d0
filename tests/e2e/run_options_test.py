"""The options of `gyre run`, torchrun's and horovodrun's among them: obeyed, or refused in one sentence before anything
starts; never a traceback, never without effect."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from running_job import Job, StartJob

PACKAGE = str(Path(__file__).resolve().parent.parent.parent / "python")
PLACE = ["--no-python", "sh", "-c", "echo $MASTER_ADDR $MASTER_PORT $GYRE_RENDEZVOUS"]
BOTH_STREAMS = ["sh", "-c", "echo out $RANK; echo err $RANK >&2"]


def lines_of(job: Job) -> list[str]:
    assert job.wait() == 0, job.stderr
    return sorted(job.stdout.splitlines() + job.stderr.splitlines())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-n", ""], "--ranks: an empty value was given"),
        (["-H", ""], "--hosts: an empty value was given"),
        (["-n"], "-n is 'touch'"),
        (["--metrics", "--"], "--metrics needs a value"),
        (["--nproc-per-node", ""], "--nproc-per-node: an empty value was given"),
        (["--nnodes", "1", "--node-rank", "1"], "--node-rank is '1'"),
        (["--nnodes", "2:1"], "--nnodes 2:1: elastic jobs"),
        (["--master-addr", "a b"], "--master-addr is 'a b', which is not a host name or address"),
        (["--master-port", "x"], "--master-port is 'x'"),
        (["--rdzv-endpoint", "::1:29500"], "an IPv6 address needs brackets, as in [::1]:29500"),
        (["--rdzv-endpoint", "[::1"], "--rdzv-endpoint is '[::1', which is not HOST:PORT"),
        (["--rdzv-endpoint", ":29500"], "--rdzv-endpoint is ':29500', which is not HOST:PORT"),
        (["--rdzv-endpoint", "node 1:5"], "which is not HOST:PORT, as in node1:29500"),
        (["--rdzv-endpoint", "node1:"], "--rdzv-endpoint's port is ''"),
        (["--rdzv-endpoint", "node1:65535"], "a whole number from 0 to 65534 is needed"),
        (["--redirects", "5"], "--redirects is '5'; 1 (stdout), 2 (stderr), 3 (both) or 0 is needed"),
        (["--tee", "0:1,x:2"], "--tee's rank is 'x'"),
        (["--local-ranks-filter", "a"], "a rank of --local-ranks-filter is 'a'"),
        (["--signals-to-handle", "SIGTERM,SIGUSR1"], "--signals-to-handle names 'SIGUSR1'"),
        (["--log-level", "loud"], "--log-level is 'loud'; one of trace debug info"),
        (["-p", "x"], "--ssh-port is 'x'"),
        (["--min-np", "1"], "--min-np: elastic jobs are not supported"),
        (["--config-file", "settings.yaml"], "--config-file: horovodrun's settings file is not supported"),
        (["-cb"], "-cb: `gyre doctor` says what was built"),
        (["--npoc", "2"], "unknown option --npoc; did you mean --nproc-per-node?"),
        (["-env", "A=1"], "unknown option -env; did you mean --env?"),
        (["-x"], "unknown option -x\n"),
        (["-H", "localhost:1", "--max-restarts", "2"], "give either -H or --max-restarts"),
        (["-H", "localhost:1", "--redirects", "3"], "give either -H or --redirects"),
        (["-H", "localhost:99999999999"], "a host has 1 to 4096 slots"),
        (["--hostfile", "missing"], "--hostfile: cannot read missing: No such file or directory"),
        (["--hostfile", "binary"], "--hostfile: 'binary' is not text"),
        (["--hostfile", "bad"], "--hostfile, line 3: 'localhost 2' is not a line like `node1 slots=4`"),
        (["--hostfile", "empty"], "--hostfile: it names no host"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(
    start_job: StartJob, tmp_path: Path, options: list[str], words: str
) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x94")
    (tmp_path / "bad").write_text("# ours\nlocalhost slots=1\nlocalhost 2\n")
    (tmp_path / "empty").write_text("# nobody\n\n")
    job = start_job(*options, "touch", "started", env={"PYTHONPATH": PACKAGE, "GYRE_PYTHON": sys.executable})
    assert job.wait() == 2, job.stderr
    assert words in job.stderr
    assert job.stderr.count("\n") == 2, "a sentence, and where help is"
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("options", "place"),
    [
        (["--rdzv-endpoint", "[::1]:29500"], "::1 29500 tcp:[::1]:29501"),
        (["--rdzv-endpoint", "node1"], "node1 29500 tcp:node1:29501"),
        (["--master-addr", "[::1]", "--master-port", "777"], "::1 777 tcp:[::1]:778"),
        (["--master-addr", "::1"], "::1 29500 tcp:[::1]:29501"),
        (["--rdzv-endpoint", "node1", "--master-port", "777"], "node1 777 tcp:node1:778"),
    ],
)
def test_host_0_is_where_the_options_say(start_job: StartJob, tmp_path: Path, options: list[str], place: str) -> None:
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    job = start_job("--nnodes=2", "--node_rank=1", *options, *PLACE, env={"GYRE_KEY_FILE": str(key)})
    assert lines_of(job) == [f"[1] {place}"]


def test_a_setting_that_does_not_exist_is_named(start_job: StartJob) -> None:
    environment = {**os.environ, "GYRE_STALL_WARNING_SECOND": "5"}
    job = start_job("-n", "1", "true", env=environment)
    assert job.wait() == 0
    assert job.stderr == (
        "gyre run: GYRE_STALL_WARNING_SECOND has no effect: Gyre has no such setting; did you mean "
        "GYRE_STALL_WARNING_SECONDS?\n"
    )


@pytest.mark.parametrize("python", ["python3", sys.executable])
def test_torchruns_options_take_a_command_that_names_its_python(start_job: StartJob, python: str) -> None:
    """It is what -n and -H take; Python looked for a script of that name."""
    job = start_job("--nproc-per-node", "2", "--", python, "-c", "import os; print(os.environ['RANK'])")
    assert lines_of(job) == ["[0] 0", "[1] 1"]


@pytest.mark.parametrize(
    "options", [["--np", "2"], ["-np=2"], ["-np2"], ["-n=2"], ["-n", "1", "--num_proc", "2"], ["--np=2", "--mpi-args="]]
)
def test_the_number_of_ranks_in_every_spelling(start_job: StartJob, options: list[str]) -> None:
    job = start_job(*options, "sh", "-c", "echo $RANK of $WORLD_SIZE")
    assert lines_of(job) == ["[0] 0 of 2", "[1] 1 of 2"]


def test_torchruns_own_ways_to_say_one_host(start_job: StartJob) -> None:
    options = ["--nnodes", "1:1", "--node-rank", "0", "--rdzv-endpoint", "localhost:0", "--master-port", "0"]
    job = start_job(
        *options, "--role", "trainer", "--no-python", "sh", "-c", "test $MASTER_PORT -gt 0; echo $? $ROLE_NAME"
    )
    assert lines_of(job) == ["[0] 0 trainer"]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--redirects", "3", "--log-dir", "logs"], []),
        (["-r", "0:1,1:2", "--log-dir", "logs"], ["[0] err 0", "[1] out 1"]),
        (["-r", "3", "-t", "1:1", "--log-dir", "logs"], ["[1] out 1"]),
        (["--local_ranks_filter", "1", "--log-dir", "logs"], ["[1] err 1", "[1] out 1"]),
        # There is no other place for it.
        (["--redirects", "3"], ["[0] err 0", "[0] out 0", "[1] err 1", "[1] out 1"]),
    ],
)
def test_streams_are_shown_or_kept_in_the_logs_alone(
    start_job: StartJob, tmp_path: Path, options: list[str], shown: list[str]
) -> None:
    assert lines_of(start_job("-n", "2", *options, *BOTH_STREAMS)) == shown
    if "--log-dir" in options:
        for rank in range(2):
            kept = (tmp_path / "logs" / f"rank-{rank}.log").read_text()
            assert sorted(kept.splitlines()) == [f"err {rank}", f"out {rank}"]


def test_horovodruns_words_become_ours(start_job: StartJob) -> None:
    for level, ours in (("INFO", "info"), ("FATAL", "error")):
        options = ["-np", "1", "--log-level", level, "--network-interface", "lo", "--torus-allreduce"]
        assert lines_of(start_job(*options, "sh", "-c", "echo $GYRE_LOG_LEVEL $GYRE_INTERFACES")) == [f"[0] {ours} lo"]


def test_where_a_job_listens_whom_it_accepts_and_whether_it_encrypts_reaches_the_ranks(start_job: StartJob) -> None:
    options = ["--plaintext", "--bind", "10.0.0.0/8", "--allow", "10.0.0.0/8,fd00::/8"]
    assert lines_of(start_job(*options, "sh", "-c", "echo $GYRE_TLS $GYRE_BIND $GYRE_ALLOW")) == [
        "[0] 0 10.0.0.0/8 10.0.0.0/8,fd00::/8"
    ]
    for option in ("--bind", "--allow"):
        job = start_job(option, "10.0.0.0/33", "true")
        assert job.wait() != 0
        assert job.stderr.count("is not a network") == 1
        assert f"{option}: '10.0.0.0/33' is not a network" in job.stderr


def test_a_timeline_that_cannot_be_written_is_refused_before_anything_starts(
    start_job: StartJob, tmp_path: Path
) -> None:
    for file in ("missing/timeline.json", "."):
        job = start_job("--timeline", file, "touch", "started")
        assert job.wait() == 1
        assert job.stderr.startswith("gyre run: cannot write the timeline "), job.stderr
        assert job.stderr.count("\n") == 1
        assert not (tmp_path / "started").exists()


def test_a_limit_of_file_size_ends_the_logs_and_not_the_job(gyre: Path, tmp_path: Path) -> None:
    command = [str(gyre), "run", "--log-dir", str(tmp_path), "sh", "-c", "head -c 100000 /dev/zero; echo; echo end"]
    done = subprocess.run(
        command,
        capture_output=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)),
    )
    assert done.returncode == 0, done.stderr
    assert b"rank-0.log is incomplete from here on: cannot write: File too large" in done.stderr
    assert done.stdout.endswith(b"\n[0] end\n")


def test_help_and_version_as_verbs(gyre: Path) -> None:
    for arguments, words in (
        (["help"], "gyre run --help"),
        (["help", "run"], "--nproc-per-node"),
        (["version"], "gyre "),
    ):
        done = subprocess.run([str(gyre), *arguments], capture_output=True, text=True, timeout=30, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert words in done.stdout
