"""Every figure of docs/performance.md, in twenty minutes; then the plots and the table (./dev bench report)."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from _processors import processor_times, stolen_share

ROOT = Path(__file__).resolve().parent.parent
GYRE = ROOT / "build" / "release" / "bin" / "gyre"
DEFAULT_FOLDER = ROOT / "docs" / "performance"
LONGEST_SECONDS = 1800

# What is measured, under the name of its JSON file. "quick" arguments make a run that tries everything in no time.
BENCHES: dict[str, list[str]] = {
    "allreduce": ["allreduce", "--ranks", "2,4", "--faces", "cpp", "--seconds", "0.2"],
    "allreduce-python": [
        "allreduce", "--ranks", "2,4", "--faces", "python", "--sizes", "4,1KB,64KB,1MB", "--seconds", "0.2",
    ],
    "exchange": ["exchange", "resnet50", "--ranks", "2,4", "--seconds", "2"],
    "exchange-others": ["exchange", "resnet101", "cifar10", "cosmoflow", "--ranks", "2", "--seconds", "1"],
    "step": [
        "step", "vgg16", "--batch", "8", "--ranks", "2,4", "--via", "ddp,hvd,cpp,ddp-idle", "--seconds", "60",
    ],
    "step-bucket-views": [
        "step", "vgg16", "--batch", "8", "--ranks", "2,4", "--via", "ddp", "--bucket-views", "--seconds", "40",
    ],
    "hosts-100mbit": [
        "allreduce", "--hosts", "2,4", "--rate", "100mbit", "--sizes", "64KB,4MB", "--faces", "cpp", "--seconds", "8",
    ],
    "hosts-1gbit": [
        "allreduce", "--hosts", "2,4", "--rate", "1gbit", "--sizes", "64KB,4MB,16MB", "--faces", "cpp",
        "--seconds", "2",
    ],
    "hosts-of-two": [
        "allreduce", "--hosts", "2", "--ranks", "4", "--rate", "1gbit", "--sizes", "4MB", "--faces", "cpp",
        "--seconds", "1",
    ],
    "servers-one-host": ["ps", "--workers", "2", "--servers", "1", "--bytes", "100MB", "--repeats", "3"],
    "servers-table": ["ps", "--table-rows", "1000000", "--workers", "2", "--servers", "1", "--repeats", "3"],
    "fusion": [
        "exchange", "resnet101", "--hosts", "2", "--rate", "1gbit", "--fusion", "0,1MB,8MB,64MB", "--faces", "cpp",
        "--paths", "arena", "--seconds", "1",
    ],
}  # fmt: skip
# bench/NAME.py, with the options that make it quick.
OWN_PROGRAMS = {
    "idle": ["--seconds", "0.2"],
    "link_cost": ["--seconds", "0.2"],
    "wire_use": ["--seconds", "0.2"],
    "join": ["--ranks", "2", "--rounds", "1"],
    "programs": ["gyre-cifar10", "--rounds", "1"],
    "tensorflow_step": ["--model", "cifar10", "--seconds", "0.1", "--repeats", "1"],
    "code_transfer": ["--megabytes", "1", "--rounds", "1"],
    "servers": ["--workers", "2", "--servers", "1", "--rate", "1gbit", "--seconds", "0.2"],
}
QUICK: dict[str, list[str]] = {
    "allreduce": ["allreduce", "--ranks", "2", "--faces", "cpp", "--sizes", "4,64KB", "--seconds", "0.01"],
    "exchange": ["exchange", "cifar10", "--ranks", "2", "--seconds", "0.01"],
    "step": ["step", "cifar10", "--batch", "2", "--ranks", "2", "--seconds", "0.01"],
    "hosts-1gbit": ["allreduce", "--hosts", "2", "--sizes", "64KB", "--faces", "cpp", "--seconds", "0.01"],
}


def describe_machine() -> dict[str, object]:
    cpu = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    return {
        "cpu": cpu.partition(":")[2].strip(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "kernel": platform.release(),
    }


def describe_run() -> dict[str, object]:
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return {
        "commit": commit.stdout.strip(),
        "day": time.strftime("%Y-%m-%d"),
        "load_before": round(os.getloadavg()[0], 2),
    }


def note_runs(folder: Path, runs: dict[str, dict[str, object]]) -> None:
    """By bench, into machine.json, beside the runs of the benches whose rows are from another one."""
    file = folder / "machine.json"
    known = json.loads(file.read_text()).get("runs", {}) if file.exists() else {}
    file.write_text(json.dumps({**describe_machine(), "runs": {**known, **runs}}, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench all", description=__doc__)
    parser.add_argument("--json", metavar="DIR", type=Path, default=DEFAULT_FOLDER, help="where the rows go")
    parser.add_argument("--only", help=f"some of {', '.join([*BENCHES, *OWN_PROGRAMS])}")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything works")
    arguments = parser.parse_args()
    benches = QUICK if arguments.quick else BENCHES
    possible = [*benches, *OWN_PROGRAMS]
    wanted = arguments.only.split(",") if arguments.only else possible
    unknown = [name for name in wanted if name not in possible]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are: {', '.join(possible)}")
    arguments.json.mkdir(parents=True, exist_ok=True)
    run = describe_run()
    runs: dict[str, dict[str, object]] = {}
    failed = []
    for name in wanted:
        started, times = time.monotonic(), processor_times()
        file = arguments.json / f"{name}.json"
        if name in OWN_PROGRAMS:
            options = OWN_PROGRAMS[name] if arguments.quick else []
            command = [sys.executable, str(ROOT / f"bench/{name}.py"), *options, "--json", str(file)]
        else:
            command = [str(GYRE), "bench", *benches[name], "--json", str(file)]
        done = subprocess.run(
            command, env={**os.environ, "GYRE_PYTHON": sys.executable}, timeout=LONGEST_SECONDS, check=False
        )
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr)
        if done.returncode == 0:
            runs[name] = {**run, "stolen": round(stolen_share(times, processor_times()), 3)}
        else:
            failed.append(name)
    note_runs(arguments.json, runs)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
