"""How much of each link is used while the ranks of several hosts exchange without pause, sample by sample, beside the
share of the processors that the hypervisor gave to others at that time (root; Linux)."""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _processors import processor_times, stolen_share
from hosts import Hosts, bits_per_second, run_ranks

ROOT = Path(__file__).resolve().parent.parent
RANK = ROOT / "build" / "release" / "bin" / "gyre-bench-rank"
SAMPLE_SECONDS = 0.25
STOLEN_BOUNDS = (0.0, 0.05, 0.1, 0.2, 0.3, 1.0)
# hosts, rate, bytes: the rows that miss their share of the wire on a busy machine.
DEFAULT_CASES = ((2, "1gbit", 16 << 20), (4, "100mbit", 4 << 20))


@dataclass(frozen=True)
class Sample:
    wire_use: float
    stolen: float


class Sampler(threading.Thread):
    """Watches host 0's link, and the processors, until stop()."""

    def __init__(self, hosts: Hosts) -> None:
        super().__init__()
        self.samples: list[Sample] = []
        self._hosts = hosts
        self._over = threading.Event()

    def run(self) -> None:
        sent, times, then = self._hosts.bytes_sent(0), processor_times(), time.monotonic()
        while not self._over.wait(SAMPLE_SECONDS):
            sent_before, times_before, before = sent, times, then
            sent, times, then = self._hosts.bytes_sent(0), processor_times(), time.monotonic()
            use = (sent - sent_before) * 8 / (then - before) / bits_per_second(self._hosts.rate)
            self.samples.append(Sample(use, stolen_share(times_before, times)))

    def stop(self) -> None:
        self._over.set()
        self.join()


def measure(count: int, rate: str, size: int, seconds: float) -> list[Sample]:
    with Hosts.create(count, rate) as hosts, tempfile.TemporaryDirectory() as folder:
        command = [str(RANK), "allreduce", "--paths", "arena", "--sizes", str(size), "--rotation-bytes", str(2 * size)]
        sampler = Sampler(hosts)
        sampler.start()
        try:
            ended = run_ranks(
                hosts, [1] * count, [*command, "--seconds", str(seconds), "--result", f"{folder}/result.json"]
            )
        finally:
            sampler.stop()
        for rank in ended:
            if rank.returncode != 0:
                raise SystemExit(f"rank {rank.rank} ended with {rank.returncode}: {rank.stderr}")
    # Starting and ending, the ranks send next to nothing.
    return [sample for sample in sampler.samples if sample.wire_use > 0.5]


def row_of(count: int, rate: str, size: int, samples: list[Sample]) -> dict[str, Any]:
    shares = []
    for low, high in itertools.pairwise(STOLEN_BOUNDS):
        uses = [sample.wire_use for sample in samples if low <= sample.stolen < high]
        if uses:
            shares.append({"from": low, "to": high, "samples": len(uses), "wire_use": statistics.median(uses)})
    return {"bench": "wire_use", "ranks": count, "hosts": count, "rate": rate, "bytes": size, "by_stolen": shares}


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench wire_use", description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0, help="of measuring per case (default: 15)")
    parser.add_argument("--json", metavar="FILE", help="write the rows there as well")
    arguments = parser.parse_args()
    rows = [row_of(*case, measure(*case, arguments.seconds)) for case in DEFAULT_CASES]
    for row in rows:
        print(f"{row['hosts']} hosts, {row['rate']}, allreduce of {row['bytes'] >> 20} MB:")
        for share in row["by_stolen"]:
            stolen = f"{share['from']:.0%} to {share['to']:.0%} of the processors stolen"
            print(f"  {stolen}: {share['wire_use']:.1%} of the wire in use ({share['samples']} samples)")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
