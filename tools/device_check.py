"""What only a GPU can show, as a table: run by device_check.sh. Each row is a job of its own, so that a row that fails
leaves the others.

`--simulated` runs everything, smaller, on the simulated device of tests/device: it tests this file, not a GPU.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

ROOT = Path(__file__).resolve().parents[1]
SIMULATED = "GYRE_DEVICE_CHECK_SIMULATED" in os.environ or "--simulated" in sys.argv
PATIENCE_S = 600
STEPS = 2 if SIMULATED else 30
MEGABYTES = 1 if SIMULATED else 64
ROUNDS = 3 if SIMULATED else 20


def device_type() -> str:
    if SIMULATED:
        sys.path.insert(0, str(ROOT / "tests" / "support"))
        sim_device: Any = importlib.import_module("sim_device")
        sim_device.follow("random")
        sim_device.register_stand_in()
    found = torch.accelerator.current_accelerator()
    if found is None:
        raise SystemExit("device_check: torch sees no device here; install its build for this machine's GPUs")
    return found.type


def own_device(*, shared: bool = False) -> torch.device:
    index = 0 if shared else int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count()
    torch.accelerator.set_device_index(index)
    return torch.device(device_type(), index)


def median_ms(run: Callable[[], object], rounds: int) -> float:
    """Of the whole, until the device has finished."""
    times = []
    for number in range(rounds + 3):
        torch.accelerator.synchronize()
        began = time.perf_counter()
        run()
        torch.accelerator.synchronize()
        if number >= 3:
            times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


class Training:
    """A network on synthetic images: ResNet-50 in bfloat16, channels last."""

    def __init__(self, device: torch.device) -> None:
        from gyre.models import Cifar10Cnn, ResNet  # noqa: PLC0415  Takes time.

        network: torch.nn.Module = Cifar10Cnn() if SIMULATED else ResNet()
        size, count, classes = (32, 4, 10) if SIMULATED else (224, 64, 1000)
        self.network: Any = network.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.images = torch.rand(count, 3, size, size).to(device, memory_format=torch.channels_last)
        self.labels = (torch.arange(count) % classes).to(device)
        self.type = device.type

    def step_ms(self, network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> float:
        def step() -> None:
            optimizer.zero_grad()
            with torch.autocast(self.type, torch.bfloat16, enabled=not SIMULATED):
                loss = torch.nn.functional.cross_entropy(network(self.images), self.labels)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

        return median_ms(step, STEPS)


def sgd(network: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)


def through_gyre_torch(training: Training) -> float:
    import gyre.torch as hvd  # noqa: PLC0415  Some rows do without.

    hvd.init()
    spent = training.step_ms(training.network, hvd.DistributedOptimizer(sgd(training.network)))
    hvd.barrier()
    hvd.shutdown()
    return spent


def through_ddp(training: Training, backend: str) -> float:
    import gyre.distributed  # noqa: F401, PLC0415  Registers its backend.

    dist.init_process_group(backend, timeout=timedelta(seconds=PATIENCE_S))
    network = torch.nn.parallel.DistributedDataParallel(training.network)
    spent = training.step_ms(network, sgd(network))
    dist.barrier()
    dist.destroy_process_group()
    return spent


def vendors_backend() -> str:
    return dist.Backend.default_device_backend_map[device_type()]


def megabytes_used(device: torch.device) -> float:
    """At most since the last call, by tensors of this process."""
    most = torch.accelerator.max_memory_allocated(device) / 1e6
    torch.accelerator.reset_peak_memory_stats(device)
    return most


def one_rank() -> dict[str, float]:
    """Each in turn, and again in the opposite order; the faster time counts."""
    training = Training(own_device())
    least: dict[str, float] = {}
    used: dict[str, float] = {}
    ways: dict[str, Callable[[], float]] = {
        "plain": lambda: training.step_ms(training.network, sgd(training.network)),
        "gyre.torch": lambda: through_gyre_torch(training),
        "DDP over gyre": lambda: through_ddp(training, "gyre"),
        f"DDP over {vendors_backend()}": lambda: through_ddp(training, vendors_backend()),
    }
    for way, measure in [*ways.items(), *reversed(ways.items())]:
        least[f"{way} ms"] = min(least.get(f"{way} ms", 1e9), measure())
        if not SIMULATED:
            used[f"{way} MB"] = megabytes_used(training.images.device)
    return least | used


def cost_of_a_call() -> dict[str, float]:
    """Host time of an asynchronous all_reduce of 4 bytes, whose work is waited for."""
    import gyre.distributed  # noqa: F401, PLC0415  Registers its backend.

    tensor = torch.ones(1, device=own_device())
    spent: dict[str, float] = {}
    for backend in (vendors_backend(), "gyre") * 2:
        dist.init_process_group(backend, timeout=timedelta(seconds=PATIENCE_S))
        rounds = []
        for number in range(100 * ROUNDS):
            began = time.perf_counter()
            dist.all_reduce(tensor, async_op=True).wait()
            rounds.append(1e6 * (time.perf_counter() - began))
            if number % 100 == 0:  # So that no queue of the device fills up.
                torch.accelerator.synchronize()
        spent[f"{backend} us"] = min(spent.get(f"{backend} us", 1e9), statistics.median(rounds))
        dist.destroy_process_group()
    return spent


def several_ranks() -> dict[str, float]:
    training = Training(own_device())
    return {
        f"DDP over {vendors_backend()} ms": through_ddp(training, vendors_backend()),
        "DDP over gyre ms": through_ddp(training, "gyre"),
        "gyre.torch ms": through_gyre_torch(training),
    }


def several_ranks_as_hosts() -> dict[str, float]:
    """On one device, which NCCL serves if it takes the ranks for hosts: over the network then, and so slowly that only
    what Gyre adds can be read from it."""
    if not SIMULATED:
        sys.path.insert(0, str(ROOT / "tests" / "support"))
        sim_device: Any = importlib.import_module("sim_device")
        sim_device.share_one_device()
    return several_ranks()


def all_reduces(backend: str, device: torch.device, sizes: list[int]) -> dict[str, float]:
    import gyre.distributed  # noqa: F401, PLC0415  As above.

    dist.init_process_group(backend, timeout=timedelta(seconds=PATIENCE_S))
    spent = {}
    for size in sizes:
        tensor = torch.ones(size // 4, device=device)
        label = f"{backend.rpartition(',')[2]}: {size} bytes ms"
        spent[label] = median_ms(functools.partial(dist.all_reduce, tensor), ROUNDS)
    dist.barrier()
    if "gloo" in backend:
        dist.all_reduce(torch.zeros(1))  # The other's store may be on a rank that must not leave first.
    dist.destroy_process_group()
    return spent


def sizes_of_messages() -> dict[str, float]:
    device, sizes = own_device(), [1 << power for power in range(12, 20 if SIMULATED else 27, 2)]
    vendors = f"cpu:gloo,{device.type}:{vendors_backend()}"
    return all_reduces(vendors, device, sizes) | all_reduces(f"{device.type}:gyre", device, sizes)


def shared_device() -> dict[str, float]:
    """Through host memory. The bound: the bytes that a rank sends and receives, by the copies' rate."""
    device, size = own_device(shared=True), MEGABYTES << 20
    tensor, host = torch.ones(size // 4, device=device), torch.empty(size // 4, pin_memory=True)
    copies = median_ms(lambda: host.copy_(tensor, non_blocking=True), ROUNDS)
    copies += median_ms(lambda: tensor.copy_(host, non_blocking=True), ROUNDS)
    found = {"two copies ms": copies} | all_reduces(f"{device.type}:gyre", device, [size])
    found["share of the bound %"] = 100 * copies / list(found.values())[-1]
    on_the_cpu = all_reduces("gyre", torch.device("cpu"), [size])
    found["on the CPU ms"] = next(iter(on_the_cpu.values()))
    return found if SIMULATED else found | all_reduces(f"cpu:gloo,{device.type}:gloo", device, [size])


def training_on_a_shared_device() -> dict[str, float]:
    """What the exchange adds to a step: a rank's own, which the others' make slower, is measured at the same time."""
    training = Training(own_device(shared=True))
    alone = training.step_ms(training.network, sgd(training.network))
    ours = through_ddp(training, f"{device_type()}:gyre")
    found = {"no exchange ms": alone, "DDP over gyre ms": ours, "gyre.torch ms": through_gyre_torch(training)}
    if not SIMULATED:
        found["DDP over gloo ms"] = through_ddp(training, "gloo")
        found["exposed, of gloo's %"] = 100 * (ours - alone) / (found["DDP over gloo ms"] - alone)
    return found


def killed() -> dict[str, float]:
    """Rank 1 dies while rank 0 waits for it."""
    import gyre.torch as hvd  # noqa: PLC0415  As above.

    hvd.init()
    tensor = torch.ones(1000 if SIMULATED else 100_000_000, device=own_device())
    hvd.allreduce(tensor).cpu()
    if hvd.rank() == 1:
        print(json.dumps({"killed at": time.time()}), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    hvd.allreduce(tensor).cpu()
    return {}


# What it does, its ranks (0: one for each device), the devices that it needs, and what is to be reached.
ROWS: dict[str, tuple[Callable[[], dict[str, float]], int, int, str]] = {
    "one rank": (one_rank, 1, 1, "gyre.torch within 2 % of plain, DDP within 1 % of the vendor's"),
    "a call": (cost_of_a_call, 1, 1, "6 us more than the vendor's, or less"),
    "one rank for each device": (several_ranks, 0, 2, "DDP within 1 % of the vendor's, gyre.torch within 3 %"),
    "two ranks on one device, as two hosts": (several_ranks_as_hosts, 2, 1, "the same"),
    "all_reduce by size": (sizes_of_messages, 0, 2, "decides the default between cards without peer access"),
    "two ranks on one device": (shared_device, 2, 1, "70 % of the bound, or more"),
    "four ranks on one device": (shared_device, 4, 1, "70 % of the bound, or more"),
    "training, two ranks on one device": (training_on_a_shared_device, 2, 1, "exposed: 50 % of gloo's, or less"),
    "a rank is killed": (killed, 2, 1, "ends within 2 s, and the device's memory is free again"),
}


def run_row(name: str) -> str:
    """Its cells."""
    _, ranks, devices, wanted = ROWS[name]
    there = torch.accelerator.device_count()
    if there < devices:
        return f"| {name} | open: needs {devices} devices, there is {there} | {wanted} |"
    command = ["gyre", "run", "-n", str(ranks or there), "--", sys.executable, __file__, "--row", name]
    environment = os.environ | ({"GYRE_DEVICE_CHECK_SIMULATED": "1"} if SIMULATED else {})
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    after = time.time()
    found: dict[str, float] = {}
    for line in ended.stdout.splitlines():
        if (start := line.find("{")) >= 0:
            found |= json.loads(line[start:])
    died = found.pop("killed at", None)
    if died is not None:
        found["seconds to the end of the job"] = after - died
        if not SIMULATED:
            free, whole = torch.accelerator.get_memory_info()
            found["MB in use then, with this script's own"] = (whole - free) / 1e6
    elif ended.returncode != 0:
        print(ended.stderr, file=sys.stderr)
        return f"| {name} | failed: {ended.stderr.strip().splitlines()[-1:]} | {wanted} |"
    return f"| {name} | {'; '.join(f'{what} {value:.2f}' for what, value in found.items())} | {wanted} |"


def describe() -> list[str]:
    count, kind = torch.accelerator.device_count(), device_type()
    properties: Any = getattr(torch.get_device_module(kind), "get_device_properties", None)
    names = [getattr(properties(index), "name", kind) if properties else kind for index in range(count)]
    simulated = ["**On the simulated device: this shows nothing about GPUs.**", ""] if SIMULATED else []
    return [
        f"# Devices: {', '.join(names)}",
        "",
        *simulated,
        f"{datetime.now(UTC):%Y-%m-%d}, torch {torch.__version__}, {os.uname().release}, {os.cpu_count()} cores.",
        "",
        "| Row | Measured | To reach |",
        "|---|---|---|",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulated", action="store_true", help="on the simulated device")
    parser.add_argument("--only", choices=list(ROWS), action="append", help="this row; may be given several times")
    parser.add_argument("--row", choices=list(ROWS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    row = arguments.row
    device_type()
    if row is not None:
        measured = ROWS[row][0]()
        if int(os.environ["RANK"]) == 0:
            print(json.dumps(measured), flush=True)
        return
    print("\n".join(describe()), flush=True)
    for name in arguments.only or ROWS:
        print(run_row(name), flush=True)


if __name__ == "__main__":
    main()
