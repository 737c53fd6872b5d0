"""What a rank of a job over several hosts runs in jobs_over_hosts_test.py: one of these functions."""

import functools
import os
import random
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import gyre.distributed  # noqa: F401  Makes the backend known.
import gyre.torch as hvd
import torch
import torch.distributed as dist
from gyre.bench.ranks.groups import leave, never_take_apart
from number_model import EXPONENTS, FACTORS, OPERATIONS, contributions, expected, same_values

ELEMENTS = 4 << 20


def reduce_and_report() -> None:
    """Reduces small, odd and large tensors; every rank prints a checksum of the bits, rank 0 what its host has sent."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    digest = 0
    for count in (1, 1000, 65_537, 300_001):
        tensor = torch.arange(count, dtype=torch.float64) * (rank + 1)
        result = hvd.allreduce(tensor, op=hvd.Sum, name=f"sum{count}")
        assert torch.equal(result, torch.arange(count, dtype=torch.float64) * (size * (size + 1) / 2)), count
        torch.manual_seed(rank)
        average = hvd.allreduce(torch.randn(count), name=f"average{count}")
        digest ^= hash(average.numpy().tobytes())
    before = bytes_sent()
    hvd.allreduce(torch.full((ELEMENTS,), float(rank)), op=hvd.Sum, name="large")
    hvd.barrier()
    print(f"digest={digest} sent={bytes_sent() - before}", flush=True)
    hvd.shutdown()


def sum_in_order() -> None:
    """Compares every form of a reduce-scatter, and allreduces of hosts whose order no size changes, with the order of
    docs/guide/numbers.md, of all ranks and of some."""
    process_sets = [hvd.ProcessSet([0, 2]), hvd.ProcessSet([1, 2])]
    hvd.init(process_sets=process_sets)
    rank, size = hvd.rank(), hvd.size()
    layout = [int(host) for host in os.environ["LAYOUT"].split()]
    seed = 20261126
    values = [_values(seed, number, 5 * size) for number in range(size)]
    mine = values[rank]
    own = slice(5 * rank, 5 * rank + 5)
    wanted = _in_order(values, list(range(size)), layout, rank)[own]
    assert torch.equal(hvd.reducescatter(mine, op=hvd.Sum), wanted), seed
    for result in hvd.grouped_reducescatter([mine, mine], op=hvd.Sum):
        assert torch.equal(result, wanted), seed
    if max(layout) == 1:  # The order of more hosts depends on the size.
        assert torch.equal(hvd.allreduce(mine, op=hvd.Sum), _in_order(values, list(range(size)), layout, rank)), seed
    for process_set in process_sets:
        members = process_set.ranks
        if members is None or rank not in members:
            continue
        part = hvd.reducescatter(mine, op=hvd.Sum, process_set=process_set)
        halves = _in_order(values, members, layout, rank).tensor_split([(5 * size + 1) // 2])
        assert torch.equal(part, halves[members.index(rank)]), (seed, members)
    hvd.shutdown()
    address = os.environ["GYRE_RENDEZVOUS"].removeprefix("tcp:").rpartition(":")[0]
    dist.init_process_group("gyre", init_method=f"tcp://{address}:29702", rank=rank, world_size=size)
    output = torch.empty(5)
    dist.reduce_scatter_tensor(output, mine)
    assert torch.equal(output, wanted), seed
    for counts in ([5] * size, [1, *[5] * (size - 2), 9]):
        parts = list(mine.split(counts))
        ragged = torch.empty(counts[rank])
        dist.reduce_scatter(ragged, parts)
        everything = _in_order(values, list(range(size)), layout, rank)
        assert torch.equal(ragged, everything.split(counts)[rank]), (seed, counts)
    leave()


def _values(seed: int, rank: int, count: int) -> torch.Tensor:
    """Numbers of different sizes: nearly every order of a sum rounds differently."""
    generator = torch.Generator().manual_seed(seed + rank)
    exponents = torch.randint(-12, 12, [count], generator=generator)
    return torch.ldexp(torch.randn(count, generator=generator), exponents)


def _in_order(values: list[torch.Tensor], ranks: list[int], layout: list[int], owner: int) -> torch.Tensor:
    """Each host in the order of its ranks; the hosts in a circle that ends with the owner's."""
    numbers: list[int] = []
    for rank in ranks:
        if layout[rank] not in numbers:
            numbers.append(layout[rank])
    sums = [functools.reduce(torch.add, [values[rank] for rank in ranks if layout[rank] == host]) for host in numbers]
    last = numbers.index(layout[owner])
    return functools.reduce(torch.add, sums[last + 1 :] + sums[: last + 1])


def train() -> None:
    """Some steps of a distributed optimizer; every rank prints a checksum of its weights."""
    hvd.init()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(300, 400), torch.nn.ReLU(), torch.nn.Linear(400, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    torch.manual_seed(hvd.rank())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(16, 300)).square().sum().backward()
        optimizer.step()
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    print(f"digest={hash(weights)}", flush=True)
    hvd.shutdown()


def train_ddp() -> None:
    """DDP over gyre and over gloo from the same seed; every rank prints a checksum of its weights over gyre, and how
    far those over gloo are."""
    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    address = os.environ["GYRE_RENDEZVOUS"].removeprefix("tcp:").rpartition(":")[0]
    # What torch asks for to run gloo on a host whose own name leads nowhere.
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    weights = {}
    for port, backend in ((29700, "gyre"), (29701, "gloo")):
        dist.init_process_group(backend, init_method=f"tcp://{address}:{port}", rank=rank, world_size=size)
        if backend == "gloo":
            never_take_apart(dist.group.WORLD)
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(300, 400), torch.nn.ReLU(), torch.nn.Linear(400, 10))
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        torch.manual_seed(10 + rank)
        for _ in range(4):
            optimizer.zero_grad()
            wrapped(torch.randn(16, 300)).square().mean().backward()
            optimizer.step()
        weights[backend] = torch.cat([parameter.detach().view(-1) for parameter in model.parameters()])
        dist.destroy_process_group()
    far = (weights["gyre"] - weights["gloo"]).abs().max().item()
    print(f"digest={hash(weights['gyre'].numpy().tobytes())} far={far:g}")
    leave()


def disagree_about_encryption() -> None:
    """Rank 0 alone asks for it, of a process group of torch's; all print what they are told."""
    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    address = os.environ["GYRE_RENDEZVOUS"].removeprefix("tcp:").rpartition(":")[0]
    os.environ["GYRE_TLS"] = "1" if rank == 0 else "0"
    try:
        dist.init_process_group("gyre", init_method=f"tcp://{address}:29700", rank=rank, world_size=size)
    except Exception as error:
        print(f"told: {error}", flush=True)
        sys.exit(3)


def lose_a_rank() -> None:
    """The last rank dies after the first of two steps; the others print what they are told. That may be in the first
    step: one that has its result does not wait until all have theirs.
    """
    hvd.init()
    try:
        hvd.allreduce(torch.ones(ELEMENTS), name="first")
        if hvd.rank() == hvd.size() - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.allreduce(torch.ones(ELEMENTS), name="second")
    except Exception as error:
        print(f"told: {error}", flush=True)
        sys.exit(3)


def lose_a_rank_whose_fork_lives() -> None:
    """The same, but the one that dies has forked a worker, which lives until the others have been told."""
    hvd.init()
    folder = Path(os.environ["FOLDER"])
    try:
        hvd.allreduce(torch.ones(ELEMENTS), name="first")
        if hvd.rank() == hvd.size() - 1:
            if os.fork() == 0:
                until = time.monotonic() + 60
                while not (folder / "told.0").exists() and time.monotonic() < until:
                    time.sleep(0.05)
                (folder / "fork").write_text("known" if (folder / "told.0").exists() else "not known")
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.allreduce(torch.ones(ELEMENTS), name="second")
    except Exception as error:
        print(f"told: {error}", flush=True)
        (folder / f"told.{hvd.rank()}").touch()
        sys.exit(3)


def bytes_sent() -> int:
    """What has left this host through its link."""
    with open("/sys/class/net/eth0/statistics/tx_bytes", encoding="utf-8") as counter:
        return int(counter.read())


# What the threads of random_life() do, per session.
SESSIONS = 2
OPERATIONS_OF_A_THREAD = 8


def random_life() -> None:
    """Everything that has ever changed a number, together: threads with operations and an optimizer each, of any type
    and scale, denormals that some ranks flush, forks that write to gradients, a second start. Each result is compared
    with the model, bit by bit."""
    seed = int(os.environ["SEED"])
    chooser = random.Random(seed)
    for session in range(SESSIONS):
        hvd.init()
        failures: list[BaseException] = []
        lives = []
        for number in range(chooser.choice([1, 2, 3])):  # Optimizers are numbered in the order in which they are made.
            weight = torch.nn.Parameter(torch.zeros(chooser.choice([1, 33, 5000])))
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.5), [(f"weight.{number}", weight)])
            life = _Life(seed, f"{session}.{number}", weight, optimizer, failures)
            lives.append(threading.Thread(target=life.run, daemon=True))
        for thread in lives:
            thread.start()
        for thread in lives:
            thread.join()
        if failures:
            raise failures[0]
        hvd.barrier()
        hvd.shutdown()
    print("right", flush=True)


@dataclass
class _Life:
    """What one thread of a rank does; the same on all ranks."""

    seed: int
    name: str
    weight: torch.nn.Parameter
    optimizer: torch.optim.Optimizer
    failures: list[BaseException]

    def run(self) -> None:
        try:
            self._train(random.Random(f"{self.seed} {self.name}"))
        except BaseException as failure:
            self.failures.append(failure)

    def _train(self, chooser: random.Random) -> None:
        flushes = chooser.random() < 0.8 and hvd.rank() % 2 == 1
        wanted = torch.zeros_like(self.weight)
        for number in range(OPERATIONS_OF_A_THREAD):
            _reduce_as_promised(chooser, f"{self.name}.{number}", self.seed, flushes)
            gradients = contributions(torch.float32, wanted.numel(), 0, False, chooser.randrange(1 << 30))
            torch.set_flush_denormal(flushes)
            self.optimizer.zero_grad()
            (self.weight * gradients[hvd.rank()]).sum().backward()
            if chooser.random() < 0.3:
                _write_in_a_fork(self.weight)
            self.optimizer.step()
            torch.set_flush_denormal(False)
            wanted.add_(expected(gradients, hvd.Average, 1.0, 1.0), alpha=-0.5)
            assert torch.equal(self.weight.detach(), wanted), (self.seed, self.name, number)


def _reduce_as_promised(chooser: random.Random, name: str, seed: int, flushes: bool) -> None:
    dtype, op = chooser.choice(list(EXPONENTS)), chooser.choice(OPERATIONS)
    prescale, postscale = chooser.choice(FACTORS), chooser.choice(FACTORS)
    count = chooser.choice([1, 7, 1031, 70_000])
    exponent = 0 if op == hvd.Product else chooser.choice(EXPONENTS[dtype])
    tensors = contributions(dtype, count, exponent, op == hvd.Product, chooser.randrange(1 << 30))
    options = {"op": op, "prescale_factor": prescale, "postscale_factor": postscale, "name": name}
    torch.set_flush_denormal(flushes)
    result = hvd.allreduce(tensors[hvd.rank()], **options)
    torch.set_flush_denormal(False)  # The model needs denormals.
    wanted = expected(tensors, op, prescale, postscale)
    assert same_values(result, wanted), (seed, dtype, options, count, exponent, result, wanted)


def _write_in_a_fork(parameter: torch.nn.Parameter) -> None:
    """As a forked evaluation does with `zero_grad(set_to_none=False)`."""
    gradient = parameter.grad
    assert gradient is not None
    values = gradient.numpy()
    process = os.fork()
    if process == 0:
        values[:] = 99.0
        os._exit(0)
    os.waitpid(process, 0)
