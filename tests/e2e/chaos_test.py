"""All that can fail does while three users' jobs run: no job is lost, none runs beside itself, no byte of a log is
missing, and every failure says why.

The job server is killed and stopped, the program of each node and the holders of ranks too, and the disk of the server
and of its nodes fills up. A lock that each attempt takes shows whether two run at the same time. The seed is printed;
GYRE_TEST_SEED repeats it. `./dev test --long` runs 2,001 jobs, and stops programs for 30 s.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from effort import rounds, seeded_random
from job_server import JobServer

JOBS = rounds(45, 2_001)
NODES = 4
LINES = 12
USERS = ("daemon", "games", "nobody")
STOPPED_SECONDS = rounds(10, 30)
OPTIONS = ("--lease", "5", "--keep-free", "0")  # The reserve that a server keeps free is larger than its disk here.
LONGEST_SECONDS = rounds(240, 7_200)
LONGEST_ABSENCE_SECONDS = 120  # Of a server that is killed, stopped or has no room.
PRIVATE = 'mount --make-rprivate / && exec "$@"'
# What failures may say, from the first to the last word: what happened where, and why. All but the last are not the
# job's own; that is the kill of a process that had just become the job's command.
NO_ROOM = "No space left on device"
CAUSES = (
    rf"(node \S+ cannot take the job: )?cannot write /\S+: {NO_ROOM}",
    rf"filesystem error: [^:]+: {NO_ROOM} \[/.+\]",
    r"gyre launch, which held the job's processes, was killed",
    r"gyre launch did not start the processes: it was killed before it had begun",
    r"the gyre launch that held the processes of node \S+ was killed",
    r"the process of the attempt on node \S+ has ended \d+ times \(.+\)",
    r"node \S+ could not reach the service for too long",
    r"node \S+ was lost: its agent lost the connection \d+ s ago and has not come back",
    r"node \S+ was lost: its agent has not come since it was started \d+ s ago",
    r"node \S+ was lost: it has not renewed its lease for \d+ s",
    r"node \S+ was lost: its agent was started \d+ times and ended each time: .+ \(its log: /.+\)",
    r"the attempt has ended, and how could not be written down: the disk of its node was full",
    r"the job's command failed on node \S+ with exit code 137 \(SIGKILL\)",
)

SCRIPT = f"""\
name=$1
share=$AZ_BATCHAI_MOUNT_ROOT/external
exec 9>> "$share/locks/$name"
flock -n 9 || echo "$name runs twice" >> "$share/locks/overlaps"
echo "$GYRE_JOB_ATTEMPT" >> "$share/starts/$name"
echo begins
i=0
while [ $i -lt {LINES} ]; do echo "line $i of $name"; i=$((i+1)); sleep 0.05; done
echo ends
"""


class Chaos:
    """Does one harm after the other until it is told to stop; then nothing is stopped or full any more."""

    def __init__(self, server: JobServer, generator: random.Random) -> None:
        self.server = server
        self.random = generator
        self.stopped: dict[int, float] = {}  # When each process goes on.
        self.done: dict[str, int] = {}
        self.over = threading.Event()
        self.filling = server.folder / "filling"
        self.lock = threading.Lock()  # Of the server, which others must not find half started.

    def run(self) -> None:
        harms = [
            self.kill_server,
            self.stop_server,
            self.kill_agent,
            self.stop_agent,
            self.kill_holder,
            self.stop_holder,
        ]
        harms.append(self.fill_disk)
        while not self.over.wait(self.random.uniform(0.05, 0.6)):
            harm = self.random.choice(harms)
            if harm():
                self.done[harm.__name__] = self.done.get(harm.__name__, 0) + 1
            self.go_on(time.monotonic())
        self.go_on(float("inf"))
        self.filling.unlink(missing_ok=True)

    def go_on(self, now: float) -> None:
        for process in [each for each, until in self.stopped.items() if until <= now]:
            del self.stopped[process]
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)

    def kill_server(self) -> bool:
        with self.lock:
            self.server.end(signal.SIGKILL)
            self.server.start(*OPTIONS)
        return True

    def stop_server(self) -> bool:
        assert self.server.process is not None
        with self.lock:
            os.kill(self.server.process.pid, signal.SIGSTOP)
            time.sleep(rounds(1, STOPPED_SECONDS))
            os.kill(self.server.process.pid, signal.SIGCONT)
        return True

    def signal_one(self, processes: list[int], number: int) -> bool:
        if not processes:
            return False
        process = self.random.choice(processes)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
            if number == signal.SIGSTOP:
                self.stopped[process] = time.monotonic() + STOPPED_SECONDS
        return True

    def agents(self) -> list[int]:
        found = []
        for lock in self.server.folder.glob("nodes/*/agent.lock"):
            with contextlib.suppress(ValueError, OSError):
                found.append(int(lock.read_text()))
        return [process for process in found if self.is_ours(process, "agent")]

    def holders(self) -> list[int]:
        return [int(path.name) for path in Path("/proc").glob("[0-9]*") if self.is_ours(int(path.name), "launch")]

    def is_ours(self, process: int, verb: str) -> bool:
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        folder = str(self.server.folder / "nodes").encode()
        return verb.encode() in words and any(word.startswith(folder) for word in words)

    def kill_agent(self) -> bool:
        return self.signal_one(self.agents(), signal.SIGKILL)

    def stop_agent(self) -> bool:
        return self.signal_one(self.agents(), signal.SIGSTOP)

    def kill_holder(self) -> bool:
        return self.signal_one(self.holders(), signal.SIGKILL)

    def stop_holder(self) -> bool:
        return self.signal_one(self.holders(), signal.SIGSTOP)

    def fill_disk(self) -> bool:
        """Of the server and its nodes; the share of the jobs is another one."""
        with self.filling.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
            while stream.write(bytes(1 << 16)):
                pass
        time.sleep(self.random.uniform(0.2, 1.5))
        self.filling.unlink()
        return True


def submit(server: JobServer, chaos: Chaos, name: str, user: str) -> None:
    """Until it is known: an answer may be lost, and the server away."""
    line = f"sh $AZ_BATCHAI_MOUNT_ROOT/external/job.sh {name}"
    properties = {"cluster": {"id": "pool"}} | server.custom(line)
    file = server.job_file(properties, f"{user}.json")
    deadline = time.monotonic() + LONGEST_ABSENCE_SECONDS
    token = server.tmp_path / f"{user}.token"
    while True:
        done = server.verb("job", "submit", str(file), "--name", name, "--token-file", str(token))
        if done.returncode == 0:
            return
        assert time.monotonic() < deadline, done.stderr
        with chaos.lock:
            time.sleep(0.1)


def states(server: JobServer) -> dict[str, dict]:
    done = server.verb("job", "list", "--limit", str(JOBS + 10), "-o", "json")
    if done.returncode != 0:
        return {}
    return {job["name"]: job for job in json.loads(done.stdout)}


def check_failure(job: dict) -> None:
    errors = job["properties"]["executionInfo"]["errors"]
    assert len(errors) == 1, errors
    assert any(re.fullmatch(cause, errors[0]["message"]) for cause in CAUSES), errors
    own = errors[0]["message"].startswith("the job's command")
    assert errors[0]["code"] == ("JobFailed" if own else "InternalError"), errors


def check_success(server: JobServer, name: str, job: dict) -> None:
    assert job["properties"]["executionState"] == "succeeded", job
    starts = (server.share / "starts" / name).read_text().splitlines()
    assert starts, f"{name} succeeded and never ran"
    assert len(starts) == len(set(starts)), f"an attempt of {name} was started twice: {starts}"
    log = server.share / job["properties"]["jobOutputDirectoryPathSegment"] / "stdouterr" / "stdout.txt"
    whole = "begins\n" + "".join(f"line {i} of {name}\n" for i in range(LINES)) + "ends\n"
    assert log.read_text().endswith(whole), f"{name}: {log.read_text()!r}"


def wait_for_all(server: JobServer) -> dict[str, dict]:
    deadline = time.monotonic() + LONGEST_SECONDS
    while sum(ended(jobs := states(server))) < JOBS:
        assert time.monotonic() < deadline, {name: job["properties"]["executionState"] for name, job in jobs.items()}
        time.sleep(0.2)
    assert len(jobs) == JOBS
    return jobs


def main(gyre: Path, home: Path) -> None:
    generator = seeded_random()
    server = JobServer(gyre, home)
    server.folder.mkdir(mode=0o711)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=0711", "none", str(server.folder)], check=True)
    (server.share / "job.sh").write_text(SCRIPT)
    for folder in ("locks", "starts"):
        (server.share / folder).mkdir()
        (server.share / folder).chmod(0o777)
    if os.geteuid() == 0:
        server.share.chmod(
            0o755
        )  # Each account gets its jobs' folders from the agents, as on a share for several people.
    server.start(*OPTIONS)
    server.ok("cluster", "create", "pool", "-t", str(NODES), "--mount", f"external={server.share}")
    names = {user: [f"{user}-{i}" for i in range(JOBS // len(USERS))] for user in USERS}
    for user in USERS:
        rights = () if os.geteuid() == 0 else ("--administrator",)
        token = server.ok("user", "create", user, *rights).strip()
        (server.tmp_path / f"{user}.token").write_text(token)
        (server.tmp_path / f"{user}.token").chmod(0o600)
        server.ok("workspace", "add-owner", "default", user)
    chaos = Chaos(server, generator)
    harm = threading.Thread(target=chaos.run)
    begin = time.monotonic()
    harm.start()
    try:
        with ThreadPoolExecutor(len(USERS)) as submitters:
            submitted = [
                submitters.submit(lambda user=user: [submit(server, chaos, name, user) for name in names[user]])
                for user in USERS
            ]
        for each in submitted:
            each.result()
        # Most of them end in the midst of it.
        while time.monotonic() < begin + rounds(20, LONGEST_SECONDS) and sum(ended(states(server))) < JOBS * 0.9:
            time.sleep(0.5)
    finally:
        chaos.over.set()
        harm.join()
    jobs = wait_for_all(server)
    failed = [name for name, job in jobs.items() if job["properties"]["executionState"] == "failed"]
    for name in failed:
        check_failure(jobs[name])
        server.ok("job", "retry", name)
    jobs = wait_for_all(server)
    overlaps = server.share / "locks" / "overlaps"
    assert not overlaps.exists(), overlaps.read_text()
    for name, job in jobs.items():
        check_success(server, name, job)
    attempts = sum(job["gyre"]["attempts"] for job in jobs.values())
    took = time.monotonic() - begin
    print(f"{JOBS} jobs, {attempts} attempts, {len(failed)} retried by hand, in {took:.0f} s; {chaos.done}")
    with contextlib.suppress(OSError):  # Its folder is a mount, which goes with this namespace.
        server.close()
    subprocess.run(["umount", "-l", str(server.folder)], check=False)


def ended(jobs: dict[str, dict]) -> list[bool]:
    return [job["properties"]["executionState"] in ("succeeded", "failed") for job in jobs.values()]


def test_no_job_is_lost_doubled_or_cut_short_whatever_fails(gyre: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as home:
        own = "--map-root-user" if os.geteuid() else "--propagation=private"
        done = subprocess.run(
            ["unshare", "--mount", own, "sh", "-c", PRIVATE, "sh", sys.executable, __file__, str(gyre), home],
            capture_output=True,
            text=True,
            timeout=2 * LONGEST_SECONDS,
            check=False,
        )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
