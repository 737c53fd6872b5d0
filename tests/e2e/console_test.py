"""What a person sees of a job of Python programs: their output while they run, and whose line of code ended it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from running_job import Job, StartJob, block_of, wait_until

PACKAGE = Path(__file__).resolve().parent.parent.parent / "python"
# Ranks that import torch, on a machine that has other things to do.
PATIENCE_SECONDS = 240.0


@pytest.fixture(autouse=True)
def as_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users do not have this variable, which machines that run tests often set."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "train.py"


def lines_of_rank(job: Job, rank: int) -> list[str]:
    return [line for line in job.stderr.splitlines() if line.startswith(f"[{rank}]")]


# Output


def test_what_python_prints_appears_while_it_runs(start_job: StartJob, script: Path, tmp_path: Path) -> None:
    # Into a pipe Python writes 8 KB at a time: nothing appeared until the job's end.
    script.write_text("import os, time\nprint('step 1')\nwhile not os.path.exists('go'): time.sleep(0.01)\n")
    job = start_job("-n", "2", sys.executable, str(script))
    wait_until("both ranks' first line appears", lambda: job.stdout.count("step 1") == 2)
    assert job.process.poll() is None
    (tmp_path / "go").touch()
    assert job.wait() == 0


def test_what_a_killed_rank_has_printed_is_not_lost(start_job: StartJob, script: Path) -> None:
    script.write_text("import os\nfor i in range(50): print('step', i)\nos.kill(os.getpid(), 9)\n")
    job = start_job("--log-dir", "logs", sys.executable, str(script))
    assert job.wait() == 128 + signal.SIGKILL
    assert job.stdout.splitlines() == [f"[0] step {i}" for i in range(50)]
    assert "    | step 49\n" in job.stderr
    assert "it wrote nothing" not in job.stderr


@pytest.mark.parametrize(("setting", "unbuffered"), [(None, True), ("", False), ("1", True)])
def test_the_users_own_choice_of_buffers_counts(
    start_job: StartJob, script: Path, setting: str | None, unbuffered: bool
) -> None:
    script.write_text("import sys\nprint(sys.stdout.write_through)\n")
    job = start_job(sys.executable, str(script), env={} if setting is None else {"PYTHONUNBUFFERED": setting})
    assert job.wait() == 0
    assert job.stdout == f"[0] {unbuffered}\n"


# Whose fault it was

# Rank 0 fails, as ranks do when they lose another; rank 1 is killed a moment later, which is what counts.
ONE_KILLED = """
import os, time

def step():
    raise ConnectionError("rank 1 is gone")

if os.environ["RANK"] == "0":
    with open("pid.part", "w") as file:
        file.write(str(os.getpid()))
    os.rename("pid.part", "pid")
    step()
while not os.path.exists("pid") or os.path.exists(f"/proc/{open('pid').read()}/exe"):
    time.sleep(0.005)
os.kill(os.getpid(), 9)
"""


def test_an_innocent_ranks_traceback_is_one_line(start_job: StartJob, script: Path) -> None:
    script.write_text(ONE_KILLED)
    job = start_job("-n", "2", "--log-dir", "logs", sys.executable, str(script))
    assert job.wait() == 128 + signal.SIGKILL
    assert "rank 1 of 2 failed first" in block_of(job)["title"]
    assert lines_of_rank(job, 0) == [
        "[0] train.py:5, in step: ConnectionError: rank 1 is gone (a traceback of 6 lines is folded; -v shows it)"
    ]
    assert "Traceback" in (script.parent / "logs" / "rank-0.log").read_text()


def test_verbose_shows_every_traceback(start_job: StartJob, script: Path) -> None:
    script.write_text(ONE_KILLED)
    job = start_job("-v", "-n", "2", sys.executable, str(script))
    assert job.wait() == 128 + signal.SIGKILL
    assert "[0] Traceback (most recent call last):\n" in job.stderr
    assert "folded" not in job.stderr


def test_the_block_begins_with_the_users_own_line(start_job: StartJob, script: Path) -> None:
    # Of a job of Gyre's: rank 1 has an error of its own, and the others fail in an allreduce because of it. It waits
    # for them, since they could still be in init().
    script.write_text("""
import time, torch
from pathlib import Path
import gyre.torch as hvd

def step(rank):
    if rank == 1:
        torch.ones(2).reshape(3)
    hvd.allreduce(torch.ones(3))

def meet(rank):
    Path(f"met-{rank}").touch()
    while rank == 1 and len(list(Path().glob("met-*"))) < 3:
        time.sleep(0.01)

hvd.init()
meet(hvd.rank())
step(hvd.rank())
""")
    job = start_job("-n", "3", sys.executable, str(script), timeout=PATIENCE_SECONDS)
    assert job.wait() == 1
    block = block_of(job)
    assert "rank 1 of 3 failed first" in block["title"]
    assert block["your line"] == "train.py:8, in step: torch.ones(2).reshape(3)"
    assert block["error"].startswith("RuntimeError: shape '[3]' is invalid")
    assert job.stderr.index("your line") < job.stderr.index("  host  ")
    for rank in (0, 2):
        (line,) = lines_of_rank(job, rank)
        assert re.match(rf"\[{rank}\] train.py:9, in step: gyre.errors.\w+: .*folded; -v shows it\)$", line), line
    assert "[1] Traceback (most recent call last):" in lines_of_rank(job, 1)


def test_a_traceback_that_was_caught_appears_while_the_job_goes_on(
    start_job: StartJob, script: Path, tmp_path: Path
) -> None:
    script.write_text("""
import os, sys, time, traceback
try:
    open("/nowhere")
except OSError:
    traceback.print_exc()
print("and on", file=sys.stderr)
while not os.path.exists("go"): time.sleep(0.01)
""")
    job = start_job(sys.executable, str(script))
    wait_until("the traceback appears", lambda: "[0] and on\n" in job.stderr)
    (tmp_path / "go").touch()
    assert job.wait() == 0
    assert [line.split()[1] for line in lines_of_rank(job, 0)] == ["Traceback", "File", "open('/nowhere')", "and"] or (
        "[0] FileNotFoundError: " in job.stderr
    )
    assert "folded" not in job.stderr


def test_after_ctrl_c_every_rank_says_in_one_line_where_it_was(start_job: StartJob, script: Path) -> None:
    script.write_text("import time\ndef wait():\n    print('up')\n    time.sleep(1000)\nwait()\n")
    job = start_job("-n", "2", sys.executable, str(script))
    wait_until("both ranks wait", lambda: job.stdout.count("up") == 2)
    job.process.send_signal(signal.SIGINT)
    assert job.wait() == 130
    for rank in range(2):
        (line,) = lines_of_rank(job, rank)
        assert line.startswith(f"[{rank}] train.py:4, in wait: KeyboardInterrupt (a traceback of "), line


# As a rank whose KeyboardInterrupt a library has dropped, which happens: rank 0 goes on until rank 1 is not there.
DEAF = """
import signal
import torch
import gyre.torch as hvd

def step():
    while True:
        hvd.allreduce(torch.ones(3))

hvd.init()
if hvd.rank() == 0:
    signal.signal(signal.SIGINT, lambda *_: None)
print("up")
step()
"""


def test_after_ctrl_c_a_rank_that_missed_it_is_one_line_too(start_job: StartJob, script: Path) -> None:
    script.write_text(DEAF)
    job = start_job("-n", "2", sys.executable, str(script), timeout=PATIENCE_SECONDS)
    wait_until("both ranks work", lambda: job.stdout.count("up") == 2)
    job.process.send_signal(signal.SIGINT)
    assert job.wait() == 130
    assert "Traceback" not in job.stderr, job.stderr
    (line,) = lines_of_rank(job, 0)
    because = r"gyre.errors.AbortedError: rank 1 \(process \d+\) ended with KeyboardInterrupt"
    assert re.match(rf"\[0\] train.py:8, in step: {because} .*folded; -v shows it\)$", line), line


UNGUARDED = {
    # A worker of a DataLoader with the start method spawn does the same.
    "horovod": "import gyre.torch as hvd\nhvd.init()\n",
    "torch": "import gyre.distributed, torch.distributed as dist\ndist.init_process_group('gyre')\n",
}


@pytest.mark.parametrize("face", list(UNGUARDED))
def test_a_child_that_imports_an_unguarded_script_is_told_to_guard_it(
    start_job: StartJob, script: Path, face: str
) -> None:
    script.write_text(f"""
import multiprocessing, sys
{UNGUARDED[face]}
child = multiprocessing.get_context("spawn").Process(target=print)
child.start()
child.join()
sys.exit(child.exitcode and "the child has failed")
""")
    job = start_job("-n", "2", sys.executable, str(script), timeout=PATIENCE_SECONDS)
    assert job.wait() == 1
    assert "__name__ == '__main__'" in block_of(job)["likely cause"]
    assert "descriptor" not in job.stderr
    assert "EADDRINUSE" not in job.stderr  # What rank 0's child met first over torch's own rendezvous.
    first = re.search(r"rank (\d) of 2 failed first", job.stderr)
    assert first is not None
    assert f"is a child of rank {first[1]} (process {block_of(job)['pid']}): " in job.stderr


def test_a_childs_function_that_joins_the_job_is_told_whose_child_it_is(start_job: StartJob, script: Path) -> None:
    script.write_text("""
import multiprocessing, sys
import gyre.torch as hvd

if __name__ == "__main__":
    hvd.init()
    child = multiprocessing.get_context("spawn").Process(target=hvd.init)
    child.start()
    child.join()
    sys.exit(child.exitcode)
""")
    job = start_job("-n", "2", sys.executable, str(script), timeout=PATIENCE_SECONDS)
    assert job.wait() == 1
    assert "UnsupportedError: This process" in job.stderr
    assert re.search(r"is a child of rank \d \(process \d+\): multiprocessing", job.stderr)


# Logs and options


def test_a_second_job_keeps_the_first_ones_logs(start_job: StartJob, tmp_path: Path) -> None:
    for number, ranks in enumerate((2, 1, 1)):
        job = start_job("-n", str(ranks), "--log-dir", "logs", "sh", "-c", f"echo job {number}")
        assert job.wait() == 0
        said = f"gyre run: logs has logs of an earlier job; they are now rank-N.log.{number}\n" if number else ""
        assert job.stderr == said
    found = {path.name: path.read_text() for path in (tmp_path / "logs").iterdir()}
    assert found == {
        "rank-0.log": "job 2\n",
        "rank-0.log.1": "job 0\n",
        "rank-0.log.2": "job 1\n",
        "rank-1.log.1": "job 0\n",
    }


@pytest.mark.parametrize("verb", ["run", "launch"])
def test_every_verb_says_its_version(gyre: Path, verb: str) -> None:
    done = subprocess.run([str(gyre), verb, "--version"], capture_output=True, text=True, timeout=30, check=False)
    whole = subprocess.run([str(gyre), "--version"], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, whole.stdout, "")


@pytest.mark.parametrize("words", [[], ["bench"], ["explain"], ["doctor"]])
def test_help_says_compared_with_and_not_beside(gyre: Path, words: list[str]) -> None:
    """A figure "beside" another one was taken for a place."""
    environment = {**os.environ, "GYRE_PYTHON": sys.executable}
    command = [str(gyre), *words, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
    assert " beside " not in done.stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "abbreviated"),
    [
        (["run", "--log-di", "logs", "true"], "--log-di"),
        (["launch", "--sock", "x", "job.json"], "--sock"),
        (["bench", "allreduce", "--siz", "4"], "--siz"),
        (["explain", "--sec", "3", "true"], "--sec"),
        (["doctor", "--no-self"], "--no-self"),
    ],
)
def test_options_are_not_abbreviated(gyre: Path, tmp_path: Path, words: list[str], abbreviated: str) -> None:
    # An abbreviation means something else as soon as there is another option that begins so.
    done = subprocess.run(
        [str(gyre), *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "GYRE_PYTHON": sys.executable},
    )
    assert done.returncode == 2
    assert abbreviated in done.stderr


def test_the_hint_about_an_unknown_host_key_can_be_pasted(start_job: StartJob, tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\necho 'Host key verification failed.' >&2\nexit 255\n")
    ssh.chmod(0o700)
    options = ["--ssh", f"{ssh} -F config", "-p", "2222", "-i", "key", "-H", "ada@node1:1"]
    job = start_job(*options, "true", env={"GYRE_PYTHON": sys.executable})
    assert job.wait() == 255
    assert f"(`{ssh} -F config -p 2222 -i key ada@node1`, once and by hand, makes it known)" in job.stderr
