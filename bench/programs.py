"""How fast a training program is on one rank, compared with eager PyTorch: the same network, batch size, optimizer and
number of threads, tensors in channels-last order.

The programs read files through Gyre's loader (gyre-resnet50 --synthetic has its one batch in memory); PyTorch has all
its batches in memory before the clock starts. Program and peer take turns, the first epoch of each is a warm-up, and
the rates are medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gyre import models

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "build" / "release" / "bin"
LONGEST_SECONDS = 900


@dataclass(frozen=True)
class Case:
    """`steps` to an epoch, of which there are two, at most."""

    program: str
    samples: str  # What they are called.
    batch_size: int
    steps: int
    shape: tuple[int, ...]  # Of a sample, channels first.
    network: Callable[[], torch.nn.Module]
    optimizer: Callable[[Iterator[torch.nn.Parameter]], torch.optim.Optimizer]
    loss: Callable[[Tensor, Tensor], Tensor]  # Of outputs and targets.
    targets: Callable[[int], Tensor]  # Of so many samples.
    data: tuple[str, ...]  # Of gyre.datasets, but for the sizes; empty: none.
    options: tuple[str, ...]

    @property
    def work(self) -> str:
        return f"{self.batch_size} x {' x '.join(map(str, self.shape))}"


CASES = [
    Case(
        program="gyre-cifar10",
        samples="images",
        batch_size=32,
        steps=46,  # 1,497 images have 46 full batches.
        shape=(3, 32, 32),
        network=models.Cifar10Cnn,
        optimizer=lambda parameters: torch.optim.RMSprop(parameters, lr=1e-4, alpha=0.9, eps=1e-7),
        loss=functional.cross_entropy,
        targets=lambda count: torch.randint(10, (count,)),
        data=("digits",),
        options=("--batch-size", "32", "--drop-last"),
    ),
    Case(
        program="gyre-resnet50",
        samples="images",
        batch_size=8,
        steps=10,
        shape=(3, 128, 128),
        network=models.ResNet,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
        loss=functional.cross_entropy,
        targets=lambda count: torch.randint(1000, (count,)),
        data=(),
        options=(
            "--synthetic",
            "--batch-size",
            "8",
            "--image-size",
            "128",
            "--num-warmup-batches",
            "3",
            "--num-iters",
            "1",
        ),
    ),
    Case(
        program="gyre-cosmoflow",
        samples="volumes",
        batch_size=4,
        steps=16,
        shape=(4, 64, 64, 64),
        network=lambda: models.CosmoFlow(size=64, kernel_size=3),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.001, momentum=0.9),
        loss=functional.mse_loss,
        targets=lambda count: torch.rand(count, 4),
        data=("cosmo", "--size", "64", "--train", "64", "--validation", "2"),
        options=("--batch-size", "4"),
    ),
]


def train_with_pytorch(case: Case) -> float:
    """Samples per second of the second epoch."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(1)
    last = torch.channels_last_3d if len(case.shape) == 4 else torch.channels_last
    network = case.network().to(memory_format=last)
    optimizer = case.optimizer(network.parameters())
    made = min(case.steps, 8)  # Batches, which are used in turn.
    batches = [torch.randn(case.batch_size, *case.shape).contiguous(memory_format=last) for _ in range(made)]
    targets = [case.targets(case.batch_size) for _ in range(made)]
    seconds = 0.0
    for _ in range(2):
        start = time.perf_counter()
        for step in range(case.steps):
            optimizer.zero_grad()
            loss = case.loss(network(batches[step % made]), targets[step % made])
            loss.backward()
            optimizer.step()
            loss.item()  # The programs report each step's loss.
        seconds = time.perf_counter() - start
    return case.steps * case.batch_size / seconds


def environment(threads: int) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT / "python")}


def run(command: Sequence[str], threads: int) -> str:
    done = subprocess.run(
        command, env=environment(threads), capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def rate_of_program(case: Case, data: Path, folder: Path, threads: int) -> float:
    command = [str(PROGRAMS / case.program), *case.options]
    if not case.data:
        output = run([*command, "--num-batches-per-iter", str(case.steps)], threads)
        return float(re.findall(r"Img/sec per CPU: ([\d.]+)", output)[-1])
    places = ["--data-dir", str(data), "--output-dir", str(folder)]
    output = run([*command, *places, "--epochs", "2", "--verbose", "2"], threads)
    return float(re.findall(rf"([\d.]+) {case.samples}/s", output)[-1])


def rate_of_pytorch(case: Case, threads: int) -> float:
    return float(run([sys.executable, __file__, "--peer", case.program], threads).split()[-1])


def measure(case: Case, rounds: int, threads: int) -> dict[str, Any]:
    """A row."""
    with tempfile.TemporaryDirectory(prefix="gyre-bench-") as place:
        data = Path(place) / "data"
        if case.data:
            run([sys.executable, "-m", "gyre.datasets", *case.data, "--out", str(data)], threads)
        ours, peers = [], []
        for number in range(rounds):
            ours.append(rate_of_program(case, data, Path(place) / f"run{number}", threads))
            peers.append(rate_of_pytorch(case, threads))
    return {
        "bench": "programs",
        "program": case.program,
        "ranks": 1,
        "threads": threads,
        "samples": case.samples,
        "work": case.work,
        "samples_per_second": statistics.median(ours),
        "pytorch_samples_per_second": statistics.median(peers),
        "ratio": statistics.median(own / peer for own, peer in zip(ours, peers, strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench programs", description=__doc__)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="some of them (default: all)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of program and peer (default: 3)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of both (default: one per core)")
    parser.add_argument("--json", metavar="FILE", help="write the rows there as well")
    parser.add_argument("--peer", help=argparse.SUPPRESS)  # For the child process.
    arguments = parser.parse_args()
    if arguments.peer:
        print(train_with_pytorch(next(case for case in CASES if case.program == arguments.peer)))
        return
    unknown = set(arguments.programs) - {case.program for case in CASES}
    if unknown:
        parser.error(
            f"there is no {', '.join(sorted(unknown))}; there are: {', '.join(case.program for case in CASES)}"
        )
    rows = []
    for case in CASES:
        if arguments.programs and case.program not in arguments.programs:
            continue
        row = measure(case, arguments.rounds, arguments.threads)
        rows.append(row)
        print(
            f"{row['program']}, {row['work']}: {row['samples_per_second']:.1f} {row['samples']}/s, "
            f"PyTorch {row['pytorch_samples_per_second']:.1f}: {row['ratio']:.2f}x",
            flush=True,
        )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
