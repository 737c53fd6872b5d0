"""What Gyre adds to the time of the engine that a cluster's nodes come from, with jobs of two nodes, on hosts and in
containers: until both nodes have written a line, compared in turn with what the engine alone needs for that (`ssh`,
`sbatch`, `podman run`); until a job has ended that is stopped, or of which a rank is killed; and fifty jobs at once,
with the commands of the engine that the server called meanwhile. Engines are real, and all on this machine. Slurm's
scheduler looks for work once a second: for how long a job happens to wait for it is in neither time, but told."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GYRE = ROOT / "build" / "release" / "bin" / "gyre"
sys.path.insert(0, str(ROOT / "tests" / "support"))

from engine_place import ENGINES, IMAGE, Place, place_on, processes_with  # noqa: E402
from images import Storage  # noqa: E402
from running_job import wait_until  # noqa: E402

COUNTED = ("podman", "ssh", "sbatch", "squeue", "sacct", "scontrol", "scancel", "sinfo")
LINE = "first"
NOTED = {"sbatch": "end", "srun": "begin"}  # Between the two a job waits for Slurm's scheduler.


def seconds_of(act: Callable[[], None]) -> float:
    begin = time.monotonic()
    act()
    return time.monotonic() - begin


@contextmanager
def running(commands: Sequence[Sequence[str]], environment: dict[str, str]) -> Iterator[list[subprocess.Popen[str]]]:
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) for words in commands]
    try:
        yield started
    finally:
        for process in started:
            process.communicate(timeout=60)
            if process.returncode != 0:
                raise RuntimeError(f"{shlex.join(process.args)} ended with {process.returncode}")  # type: ignore[arg-type]


def read_lines(process: subprocess.Popen[str], count: int) -> None:
    assert process.stdout is not None
    for _ in range(count):
        line = process.stdout.readline()
        if LINE not in line:
            raise RuntimeError(f"this is not a node's first line: {line!r}")


def engine_alone(place: Place, engine: str, folder: Path) -> float:
    """Seconds until both nodes have written a line, without Gyre. `folder`: with the measurement's programs."""
    words = ["echo", LINE]
    if place.contained:
        assert isinstance(place.storage, Storage)
        words = place.storage.command("run", "--rm", "--network=host", IMAGE, *words)
    if engine == "slurm":
        output = folder / "slurm.out"
        output.unlink(missing_ok=True)
        script = f"srun --mpi=none -N2 -n2 {shlex.join(words)}"
        batch = ["sbatch", "--parsable", "-N2", "--exclusive", "-o", str(output), "--wrap", script]

        def both_lines() -> bool:
            return output.exists() and output.read_text().count(LINE) == 2

        begin = time.monotonic()
        subprocess.run(batch, check=True, capture_output=True, env=place.server.environment, cwd=folder)
        wait_until("Slurm's job has written", both_lines)
        return time.monotonic() - begin - schedulers_wait(folder)
    commands = [words, words]
    if engine == "ssh":
        assert place.hosts is not None
        trust = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
        login = ["ssh", "-F", str(place.hosts.config), *trust]
        commands = [[*login, name, shlex.join(words)] for name in place.hosts.names]
    begin = time.monotonic()
    with running(commands, dict(os.environ)) as processes:
        for process in processes:
            read_lines(process, 1)
        return time.monotonic() - begin


def schedulers_wait(folder: Path) -> float:
    """Seconds for which the job that Slurm has started last waited for its scheduler; 0 on other engines."""
    moments = [line.split() for line in (folder / "programs" / "moments").read_text().splitlines()]
    last = {name: float(when) for name, when in moments}
    return max(last["srun"] - last["sbatch"], 0) if len(last) == len(NOTED) else 0


def with_gyre(place: Place, name: str, folder: Path) -> tuple[float, float]:
    """The same from `gyre job submit --follow`, and how long it has waited for Slurm's scheduler."""
    program = {"gyreSettings": {"program": ["echo", LINE], "processesPerNode": 1}}
    words = [str(GYRE), "job", "submit", str(place.job_file(name, program)), "--cluster", "lab", "--name", name]
    begin = time.monotonic()
    with running([[*words, "--follow"]], place.server.environment) as (process,):
        read_lines(process, 2)
        took = time.monotonic() - begin
    place.expect_nothing_left()
    waited = schedulers_wait(folder)
    return took - waited, waited


def until_it_has_ended(place: Place, name: str, end: Callable[[], object]) -> float:
    """Seconds from end() to the end of `gyre job wait`, of a job whose two ranks sleep."""
    place.submit(name, place.ranks("exec sleep 1000"))
    wait_until("the ranks sleep", lambda: len(sleepers(place)) == 4)
    waiting = place.server.start_verb("job", "wait", name)

    def end_and_wait() -> None:
        end()
        waiting.communicate(timeout=120)

    took = seconds_of(end_and_wait)
    place.expect_nothing_left()
    return took


def sleepers(place: Place) -> list[int]:
    found = []
    for process in processes_with(place.mark):
        try:
            if b"sleep\0001000" in Path("/proc", process, "cmdline").read_bytes():
                found.append(int(process))
        except OSError:
            continue
    return found


def count_commands(folder: Path) -> Path:
    """Programs that stand before the machine's and write down that they were called; returns the list of calls."""
    calls, moments = folder / "calls", folder / "moments"
    for file in (calls, moments):
        file.touch()
    for name in {*COUNTED, *NOTED}:
        program = shutil.which(name)
        if program is None:
            continue
        shim = folder / name
        count = f"echo {name} >>{calls}" if name in COUNTED else ":"
        note = f'echo "{name} $(date +%s.%N)" >>{moments}'
        steps = [count, f'{program} "$@"', "code=$?", note, "exit $code"]
        if NOTED.get(name) != "end":
            steps = [count, note if name in NOTED else ":", f'exec {program} "$@"']
        shim.write_text("\n".join(["#!/bin/sh", *steps]) + "\n")
        shim.chmod(0o755)
    return calls


def many_jobs(place: Place, jobs: int, calls: Path) -> dict[str, Any]:
    before = len(calls.read_text().split())
    begin = time.monotonic()
    names = [f"many-{number}" for number in range(jobs)]
    for name in names:
        place.submit(name, {"nodeCount": 1, "customToolkitSettings": {"commandLine": "sleep 1"}})
    if any(place.wait_for(name) != 0 for name in names):
        raise RuntimeError("a job failed")
    took = time.monotonic() - begin
    called = Counter(calls.read_text().split()[before:])
    return {"jobs": jobs, "jobs_s": round(took, 2), "commands": dict(called)}


def measure(engine: str, contained: bool, rounds: int, jobs: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="gyre-bench-engines-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        programs = folder / "programs"
        programs.mkdir()
        calls = count_commands(programs)
        (folder / "server").mkdir()
        with place_on(engine, "podman" if contained else "", GYRE, folder / "server", programs) as place:
            with_gyre(place, "warm", folder)
            engine_alone(place, engine, folder)
            alone, ours, waits = [], [], []
            for number in range(rounds):
                alone.append(engine_alone(place, engine, folder))
                took, waited = with_gyre(place, f"first-{number}", folder)
                ours.append(took)
                waits.append(waited)
            stops = [
                until_it_has_ended(
                    place, f"stop-{number}", lambda at=number: place.server.ok("job", "stop", f"stop-{at}")
                )  # type: ignore[misc]
                for number in range(rounds)
            ]
            kills = [
                until_it_has_ended(place, f"kill-{number}", lambda: os.kill(sleepers(place)[0], signal.SIGKILL))
                for number in range(rounds)
            ]
            row = {
                "bench": "engines",
                "engine": engine,
                "contained": contained,
                "first_line_s": round(statistics.median(ours), 3),
                "engine_alone_s": round(statistics.median(alone), 3),
                "scheduler_s": round(statistics.median(waits), 3),
                "stop_s": round(statistics.median(stops), 3),
                "kill_s": round(statistics.median(kills), 3),
                **many_jobs(place, jobs, calls),
                "load": round(os.getloadavg()[0], 1),
            }
    return row


def line_of(row: dict[str, Any]) -> str:
    where = "containers" if row["contained"] else "hosts"
    waited = f", and {row['scheduler_s']:.2f} s for Slurm's scheduler" if row["scheduler_s"] else ""
    commands = ", ".join(f"{count} {name}" for name, count in sorted(row["commands"].items())) or "none"
    return (
        f"{row['engine']}, {where}: both nodes' first line after {row['first_line_s']:.2f} s, "
        f"the engine alone {row['engine_alone_s']:.2f} s{waited}; over after a stop {row['stop_s']:.2f} s, "
        f"after a killed rank {row['kill_s']:.2f} s; {row['jobs']} jobs in {row['jobs_s']:.1f} s, commands: {commands}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench engines", description=__doc__)
    parser.add_argument("--engines", default=",".join(ENGINES), help="default: all")
    parser.add_argument("--where", default="hosts,containers", help="default: both")
    parser.add_argument("--rounds", type=int, default=5, help="the medians count")
    parser.add_argument("--jobs", type=int, default=50, help="submitted one after the other, of 1 s each")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the rows here")
    asked = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("containers and hosts' own folders need root")
    rows = []
    for engine in asked.engines.split(","):
        for where in asked.where.split(","):
            rows.append(measure(engine, where == "containers", asked.rounds, asked.jobs))
            print(line_of(rows[-1]), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
