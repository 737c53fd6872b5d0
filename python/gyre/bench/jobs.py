"""`gyre bench jobs`: many short jobs through a job server's virtual nodes, and the cost of the server."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import selectors
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gyre.bench.errors import BenchError, UsageError
from gyre.bench.launch import Launcher, program
from gyre.bench.report import Row
from gyre.jobs import Connection, find_connection
from gyre.jobs._session import UnixConnection

_MOST_JOBS = 100_000
_START_SECONDS = 30
_MOST_SECONDS_PER_JOB = 10  # Time limit of the wait for the end, beyond the duration of the jobs themselves.
_LAST_WORDS = 2000
_POLL_SECONDS = 0.02
_SUBMIT_PAUSE_SECONDS = 0.02  # Between submissions while a log is followed.
_MOST_FOLLOWING_SECONDS = 120
_JOBS = "/workspaces/default/experiments/bench/jobs"
_WAITING_JOBS = "/workspaces/default/experiments/waiting/jobs"


def add_verb(verbs: Any) -> None:
    parser = verbs.add_parser(
        "jobs",
        help="many short jobs through a job server, compared with plain sbatch",
        description=__doc__,
        epilog="example: gyre bench jobs --jobs 1000 --nodes 8",
    )
    parser.add_argument("--jobs", type=int, default=200, help="number of jobs submitted at once (default: 200)")
    parser.add_argument("--nodes", type=int, default=8, help="virtual nodes, one job on each (default: 8)")
    parser.add_argument("--seconds", type=float, default=1.0, help="duration of each job, a sleep (default: 1)")
    parser.add_argument("--followers", type=int, default=200, help="followers of one job's log (default: 200)")
    parser.add_argument(
        "--queued",
        type=int,
        default=0,
        metavar="N",
        help="jobs that wait meanwhile, for a cluster without nodes (default: 0)",
    )
    parser.add_argument("--idle-seconds", type=float, default=10.0, help="time to watch the idle server (default: 10)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the rows to this file")
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="what to print (default: table)"
    )
    parser.set_defaults(measure=measure)


def _check(arguments: argparse.Namespace) -> None:
    limits = {"jobs": (1, _MOST_JOBS), "nodes": (1, 100), "followers": (1, 1000), "queued": (0, _MOST_JOBS)}
    for name, (least, most) in limits.items():
        if not least <= getattr(arguments, name) <= most:
            raise UsageError(f"--{name} is {getattr(arguments, name)}; {least} to {most} are possible")
    for name in ("seconds", "idle_seconds"):
        if not 0 <= getattr(arguments, name) <= 3600:
            raise UsageError(f"--{name.replace('_', '-')} is {getattr(arguments, name):g}; 0 to 3600 are possible")


class Server:
    """A job server started for the benchmark: its process and its HTTP interface."""

    def __init__(self, process: subprocess.Popen[bytes], place: Connection) -> None:
        self.process = process
        self._place = place
        self._connection = UnixConnection(place, timeout=60)

    def with_connection_of_its_own(self) -> Server:
        return Server(self.process, self._place)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The JSON of the response. BenchError for an error."""
        text = None if body is None else json.dumps(body)
        self._connection.request(method, path, text)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 400:
            raise BenchError(f"{method} {path}: {answer.status} {content.decode(errors='replace')}")
        return json.loads(content) if content else None

    def follow(self, path: str) -> Iterator[tuple[bytes, float]]:
        """Pieces of a file that is being written, with their times of arrival."""
        with closing(UnixConnection(self._place, timeout=120)) as connection:
            connection.request("GET", path + "?follow=true")
            answer = connection.getresponse()
            if answer.status != 200:
                raise BenchError(f"GET {path}: {answer.status} {answer.read().decode(errors='replace')}")
            while piece := answer.read1(65536):
                yield piece, time.monotonic()

    def follow_without_waiting(self, path: str) -> _Follower:
        connection = UnixConnection(self._place, timeout=60)
        connection.connect()
        authorization = f"Authorization: Bearer {self._place.token}\r\n" if self._place.token else ""
        connection.sock.sendall(f"GET {path}?follow=true HTTP/1.0\r\nHost: localhost\r\n{authorization}\r\n".encode())
        return _Follower(connection.sock)

    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_bytes(self) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise BenchError("the server has ended")


@contextmanager
def _server(folder: Path, followers: int) -> Iterator[Server]:
    """A server of whose logs one user may follow so many."""
    file = folder / "server.json"
    log = folder / "server.log"
    command = [
        str(program("gyre")),
        "server",
        "--folder",
        str(folder / "state"),
        "--listen",
        f"unix:{folder}/gyre.sock",
        "--limit",
        f"followers={followers}",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--server-file", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not file.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                words = log.read_text(errors="replace")[-_LAST_WORDS:].strip()
                raise BenchError(f"gyre server did not start:\n{words}")
            time.sleep(_POLL_SECONDS)
        yield Server(process, find_connection(str(file)))
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _end_agents(folder)


def _end_agents(folder: Path) -> None:
    """Node agents outlive a server for a minute, so that the next one finds them."""
    needle = os.fsencode(folder / "state")
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if needle in (entry / "cmdline").read_bytes():
                os.kill(int(entry.name), 9)
        except OSError:
            continue


def _job(line: str, cluster: str = "bench") -> dict[str, Any]:
    return {
        "properties": {
            "cluster": {"id": cluster},
            "nodeCount": 1,
            "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/share",
            "customToolkitSettings": {"commandLine": line},
        }
    }


def _wait(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"waited {seconds:.0f} s for {what}")
        time.sleep(_POLL_SECONDS)


def _state(server: Server, name: str) -> str:
    return str(server.ask("GET", f"{_JOBS}/{name}")["properties"]["executionState"])


def _add_cluster(server: Server, name: str, nodes: int, share: Path) -> None:
    properties = {
        "vmSize": "virtual",
        "scaleSettings": {"manual": {"targetNodeCount": nodes}},
        "gyreSettings": {"mounts": {"share": str(share)}},
    }
    server.ask("PUT", f"/workspaces/default/clusters/{name}", {"properties": properties})


def _fill_queue(server: Server, share: Path, jobs: int) -> None:
    """Submits jobs that wait to the end of the benchmark."""
    server.ask("PUT", "/workspaces/default/experiments/waiting")
    _add_cluster(server, "waiting", 0, share)
    for number in range(jobs):
        _put_in_queue(server, number)


def _put_in_queue(server: Server, number: int) -> float:
    """Seconds of the submission."""
    before = time.monotonic()
    server.ask("PUT", f"{_WAITING_JOBS}/job-{number}", _job("true", cluster="waiting"))
    return time.monotonic() - before


@contextmanager
def _submitting(server: Server, first: int) -> Iterator[Row]:
    """Another process submits jobs that wait, from number `first` on; the row is complete at the end."""

    def submit_until_stopped() -> None:
        own = server.with_connection_of_its_own()
        number = first
        while not stop.wait(_SUBMIT_PAUSE_SECONDS):
            mine.send(_put_in_queue(own, number))
            number += 1

    # A process, because the threads of this one wait for each other.
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    ours, mine = context.Pipe(duplex=False)
    process = context.Process(target=submit_until_stopped, daemon=True)
    process.start()
    mine.close()
    row: Row = {}
    seconds = []
    try:
        yield row
    finally:
        stop.set()
        with suppress(EOFError):
            while True:
                seconds.append(ours.recv())
        process.join()
    if process.exitcode != 0 or not seconds:
        raise BenchError("the submissions to the queue failed; see above")
    row |= {f"queued_{name}": figure for name, figure in _submit_row(seconds).items()}


def _check_queue(server: Server, jobs: int) -> None:
    """All jobs of _fill_queue() still wait."""
    last = server.ask("GET", f"{_WAITING_JOBS}/job-{jobs - 1}")["properties"]
    if last["executionState"] != "queued" or server.ask("GET", f"{_WAITING_JOBS}?state=running&maxresults=1")["value"]:
        raise BenchError("a job ran on a cluster without nodes")


def _run_queue(server: Server, share: Path, arguments: argparse.Namespace) -> Row:
    """Submits all jobs one after the other and waits for all of them."""
    submits = []
    begin = time.monotonic()
    for number in range(arguments.jobs):
        job = _job(f"echo {number} >> $AZ_BATCHAI_MOUNT_ROOT/share/ran-{number}; sleep {arguments.seconds:g}")
        before = time.monotonic()
        server.ask("PUT", f"{_JOBS}/job-{number}", job)
        submits.append(time.monotonic() - before)
    most = arguments.jobs * (arguments.seconds + _MOST_SECONDS_PER_JOB) + 60

    def none_left() -> bool:
        return not any(
            server.ask("GET", f"{_JOBS}?state={state}&maxresults=1")["value"]
            for state in ("queued", "running", "terminating")
        )

    _wait(none_left, most, "all jobs to end")
    took = time.monotonic() - begin
    starts = []
    for number in range(arguments.jobs):
        properties = server.ask("GET", f"{_JOBS}/job-{number}")["properties"]
        if properties["executionState"] != "succeeded":
            raise BenchError(f"job {number} {properties['executionState']}: {properties['executionInfo']}")
        if (share / f"ran-{number}").read_text() != f"{number}\n":
            raise BenchError(f"job {number} did not run exactly once")
        starts.append(properties["executionInfo"]["startTime"])
    if starts != sorted(starts):
        raise BenchError("jobs did not start in the order of their submission")
    return {"jobs_per_second": arguments.jobs / took, **_submit_row(submits)}


def _submit_row(submits: Sequence[float]) -> Row:
    ordered = sorted(submits)
    return {
        "submit_us": statistics.median(ordered) * 1e6,
        "submit_p99_us": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1e6,
    }


def _first_output(server: Server, turns: int = 5) -> float:
    """Microseconds from the submission to the first byte of the job's log at a client, on an idle cluster."""
    times = []
    for turn in range(turns):
        name = f"first-{turn}"
        path = f"{_JOBS}/{name}/files/stdouterr/stdout.txt"
        begin = time.monotonic()
        server.ask("PUT", f"{_JOBS}/{name}", _job("echo first; sleep 0.2"))
        while True:
            try:
                piece, when = next(server.follow(path))
            except BenchError:
                time.sleep(_POLL_SECONDS / 10)  # The log is not there yet.
                continue
            break
        if not piece.startswith(b"first"):
            raise BenchError(f"the log of {name} begins with {piece!r}")
        times.append(when - begin)
        _wait(lambda name=name: _state(server, name) == "succeeded", 60, name)  # type: ignore[misc]
    return statistics.median(times) * 1e6


def _followers(server: Server, count: int, meanwhile: AbstractContextManager[Row], lines: int = 50) -> Row:
    """`count` clients follow one log; each must get every line. Delays are from the line's writing to its arrival.

    `meanwhile` begins when all of them follow, and gives figures of its own.
    """
    line = f"for i in $(seq {lines}); do echo $i $(cut -d' ' -f1 /proc/uptime); sleep 0.1; done"
    server.ask("PUT", f"{_JOBS}/followed", _job(line))
    path = f"{_JOBS}/followed/files/stdouterr/stdout.txt"

    def is_there() -> bool:
        try:
            return bool(next(server.follow(path)))
        except BenchError:
            return False

    _wait(is_there, 60, "the log to appear")
    offset = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    followers = [server.follow_without_waiting(path) for _ in range(count)]
    try:
        for follower in followers:
            follower.received = follower.socket.recv(65536)
        with meanwhile as row:
            delays = _read_to_the_end(followers, offset)
    finally:
        for follower in followers:
            follower.socket.close()
    wanted = [b"%d" % number for number in range(1, lines + 1)]
    complete = sum([words.split()[0] for words in follower.log().splitlines()] == wanted for follower in followers)
    if complete != count:
        raise BenchError(f"{complete} of {count} followers got every line; one got {followers[0].received[:500]!r}")
    delay = sorted(delays)[len(delays) * 99 // 100] * 1e6 if delays else None
    return {"followers": count, "line_delay_p99_us": delay, **row}


@dataclass
class _Follower:
    """A client's end of a log. Its bytes follow the answer's head as they are: it asks in HTTP/1.0, without chunks."""

    socket: socket.socket
    received: bytes = b""

    def log(self) -> bytes:
        return self.received.partition(b"\r\n\r\n")[2]


def _read_to_the_end(followers: Sequence[_Follower], offset: float) -> list[float]:
    """Seconds from the writing of each line, whose last word is that time less `offset`, to its arrival at each.

    In one thread: a thousand would wait for each other, and what they take of the processors is not the server's.
    """
    delays: list[float] = []
    with selectors.DefaultSelector() as selector:
        for follower in followers:
            selector.register(follower.socket, selectors.EVENT_READ, follower)
        deadline = time.monotonic() + _MOST_FOLLOWING_SECONDS
        while selector.get_map():
            for key, _ in selector.select(max(0.0, deadline - time.monotonic())):
                follower = key.data
                piece = follower.socket.recv(65536)
                now = time.monotonic()
                if not piece:
                    selector.unregister(follower.socket)
                elif follower.log() and piece.endswith(b"\n"):  # Its first piece holds what was written before.
                    delays.append(now + offset - float(piece.split()[-1]))
                follower.received += piece
            if time.monotonic() > deadline:
                raise BenchError(f"{len(selector.get_map())} followers still wait for the end of the log")
    return delays


def _page(server: Server, turns: int = 11) -> float:
    """Microseconds for a page of 100 jobs."""
    times = []
    for _ in range(turns):
        begin = time.monotonic()
        server.ask("GET", f"{_JOBS}?maxresults=100")
        times.append(time.monotonic() - begin)
    return statistics.median(times) * 1e6


def _idle_share(server: Server, seconds: float) -> float:
    """The server's share of one core."""
    before = server.processor_seconds()
    time.sleep(seconds)
    return (server.processor_seconds() - before) / seconds if seconds else 0.0


def _why_no_slurm() -> str | None:
    if shutil.which("sbatch") is None:
        return "there is no sbatch in PATH"
    if subprocess.run(["sinfo"], capture_output=True, check=False).returncode != 0:
        return "no Slurm answers to sinfo"
    return None


def _sbatch(arguments: argparse.Namespace, folder: Path) -> Row:
    """The same jobs, submitted to Slurm as its users do: one on a node at a time."""
    submits = []
    begin = time.monotonic()
    for number in range(arguments.jobs):
        command = ["sbatch", "--parsable", "-N1", "--exclusive", "-o", str(folder / f"slurm-{number}.out"), "--wrap"]
        before = time.monotonic()
        subprocess.run(
            [*command, f"echo {number}; sleep {arguments.seconds:g}"], check=True, capture_output=True, cwd=folder
        )
        submits.append(time.monotonic() - before)
    output = folder / f"slurm-{arguments.jobs - 1}.out"

    def none_left() -> bool:
        listed = subprocess.run(["squeue", "-h", "-u", str(os.getuid())], check=True, capture_output=True)
        return output.exists() and not listed.stdout.strip()

    _wait(none_left, arguments.jobs * (arguments.seconds + _MOST_SECONDS_PER_JOB) + 60, "Slurm's queue to be empty")
    took = time.monotonic() - begin
    first = folder / "slurm-first.out"
    begin = time.monotonic()
    command = ["sbatch", "-N1", "--exclusive", "-o", str(first), "--wrap", "echo first"]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    _wait(lambda: first.exists() and first.stat().st_size > 0, 60, "Slurm's first line of output")
    return {
        "jobs_per_second": arguments.jobs / took,
        **_submit_row(submits),
        "first_output_us": (time.monotonic() - begin) * 1e6,
    }


def measure(arguments: argparse.Namespace, launcher: Launcher) -> list[Row]:
    _check(arguments)
    with tempfile.TemporaryDirectory(
        prefix="gyre-bench-jobs-", dir="/tmp"
    ) as name:  # A short path, because it contains sockets.
        folder = Path(name)
        folder.chmod(0o711)
        share = folder / "share"
        share.mkdir()
        share.chmod(0o777)
        with _server(folder, arguments.followers) as server:
            server.ask("PUT", "/workspaces/default/experiments/bench")
            _add_cluster(server, "bench", arguments.nodes, share)
            if arguments.queued:
                launcher.say(f"{arguments.queued} jobs that wait")
                _fill_queue(server, share, arguments.queued)
            launcher.say(f"{arguments.jobs} jobs of {arguments.seconds:g} s through {arguments.nodes} nodes")
            row: Row = {
                "bench": "jobs",
                "jobs": arguments.jobs,
                "nodes": arguments.nodes,
                "seconds": arguments.seconds,
                "queued": arguments.queued,
                **_run_queue(server, share, arguments),
            }
            row["bound_jobs_per_second"] = arguments.nodes / arguments.seconds if arguments.seconds else None
            row["first_output_us"] = _first_output(server)
            launcher.say(f"{arguments.followers} followers of a log")
            meanwhile: AbstractContextManager[Row] = (
                _submitting(server, arguments.queued) if arguments.queued else nullcontext({})
            )
            row |= _followers(server, arguments.followers, meanwhile)
            row["page_us"] = _page(server)
            if arguments.queued:
                _check_queue(server, arguments.queued)
            row["idle_core_share"] = _idle_share(server, arguments.idle_seconds)
            row["peak_bytes"] = server.peak_bytes()
        lacking = _why_no_slurm()
        row["peers"] = {}
        if lacking is None:
            launcher.say("the same jobs through sbatch")
            row["peers"]["sbatch"] = _sbatch(arguments, share)
        else:
            launcher.note(f"Slurm is left out: {lacking}")
    return [row]
