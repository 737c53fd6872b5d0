"""Forks of a rank (the workers of a data loader, a forked evaluation) hold what is the rank's only until they begin:
they change no gradient, and they hide neither the rank's end nor its port."""

import copy
import gc
import os
import random
import secrets
import select
import threading
import traceback
from collections.abc import Callable

import gyre.distributed  # noqa: F401 - registers the backend
import gyre.torch as hvd
import pytest
import torch
import torch.distributed as dist
from effort import first_seed, rounds
from gyre.errors import UnsupportedError
from machine import free_port
from torch import nn

LONGEST_LIFE_SECONDS = 120


class Fork:
    """A fork that runs `body` and then waits until it is joined."""

    def __init__(self, body: Callable[[], None]) -> None:
        done, self._done = os.pipe()
        self._go_on, go_on = os.pipe()
        self._ended, self._end = done, go_on
        self._process = os.fork()
        if self._process == 0:
            code = 1
            try:
                os.close(go_on)
                os.close(done)
                body()
                os.write(self._done, b"!")
                # A later fork has the other end too: the end of the parent is not seen here.
                code = 0 if select.select([self._go_on], [], [], LONGEST_LIFE_SECONDS)[0] else 2
            except BaseException:  # It must not go on as the rank.
                traceback.print_exc()
            os._exit(code)
        os.close(self._done)
        os.close(self._go_on)
        assert os.read(done, 1) == b"!", "the fork has failed; see above"

    def join(self) -> None:
        os.write(self._end, b"!")
        os.close(self._ended)
        os.close(self._end)
        assert os.waitstatus_to_exitcode(os.waitpid(self._process, 0)[1]) == 0


def descriptors() -> dict[int, str]:
    links = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            links[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # That of the listing itself.
    return links


def check_equal_on_all_ranks(model: nn.Module) -> None:
    own = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    assert all(torch.equal(other, own) for other in hvd.allgather(own.unsqueeze(0)))


def body_zero_grad_in_a_fork() -> None:
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    model = nn.Linear(100, 100)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    kept: list[torch.Tensor] = []
    expected = torch.full((100, 100), (size + 1) / 2)

    def evaluate() -> None:
        assert torch.equal(model.weight.grad, expected)
        model.zero_grad(set_to_none=False)
        optimizer.zero_grad(set_to_none=False)
        for gradient in kept:
            gradient.zero_()
            assert torch.equal(gradient, torch.zeros_like(gradient))

    for _ in range(4):
        optimizer.zero_grad()
        ((model.weight.sum() + model.bias.sum()) * (rank + 1)).backward()
        kept.append(model.weight.grad)
        nn.utils.clip_grad_norm_(model.parameters(), 1e9)  # Looked at: zero_grad() is allowed.
        if rank == 0:
            Fork(evaluate).join()
        for gradient in kept:
            assert torch.equal(gradient, expected)
        optimizer.step()
        check_equal_on_all_ranks(model)


def test_a_fork_changes_no_gradient(run_ranks):
    run_ranks(2, body_zero_grad_in_a_fork)


def body_buckets_of_ddp() -> None:
    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    dist.init_process_group("gyre", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=size)
    model = nn.Linear(400, 400)  # Large enough that its bucket moves into shared memory.
    wrapped = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    for _ in range(3):
        wrapped.zero_grad(set_to_none=False)
        wrapped(torch.full((1, 400), rank + 1.0)).sum().backward()
        assert model.weight.grad.is_shared()
        before = model.weight.grad.clone()
        if rank == 0:
            Fork(lambda: wrapped.zero_grad(set_to_none=False)).join()
        dist.barrier()
        assert torch.equal(model.weight.grad, before)
    dist.destroy_process_group()
    Fork(lambda: wrapped.zero_grad(set_to_none=False)).join()
    assert torch.equal(model.weight.grad, before)


def test_a_fork_changes_no_bucket_of_ddp(run_ranks):
    run_ranks(2, body_buckets_of_ddp)


def body_models_one_after_the_other() -> None:
    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    dist.init_process_group("gyre", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=size)
    for width in (400, 500, 300, 450):
        model = nn.Linear(width, 400)
        wrapped = nn.parallel.DistributedDataParallel(model)
        for _ in range(2):  # DDP makes its buckets anew after the first step.
            wrapped.zero_grad(set_to_none=True)
            wrapped(torch.ones(1, width)).sum().backward()
            Fork(lambda: None).join()
        del model, wrapped
        gc.collect()
        Fork(lambda: None).join()  # The memory of the buckets is gone.
    dist.destroy_process_group()


def test_a_fork_is_made_after_the_model_of_ddp_has_gone(run_ranks):
    run_ranks(2, body_models_one_after_the_other)


def body_descriptors() -> None:
    before = descriptors()
    hvd.init()
    hvd.allreduce(torch.ones(1 << 18), name="large")
    model = nn.Linear(30, 30)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(1, 30)).sum().backward()
        optimizer.step()
    assert any("memfd:gyre" in link for link in descriptors().values())

    def look() -> None:
        held = {number: link for number, link in descriptors().items() if before.get(number) != link}
        ours = {number: link for number, link in held.items() if link.startswith("socket:") or "memfd:gyre" in link}
        assert not ours, f"before: {before}; held: {held}"
        for call in (lambda: hvd.allreduce(torch.ones(1)), hvd.rank, hvd.init):
            with pytest.raises(UnsupportedError, match=f"is a fork of process {os.getppid()}"):
                call()
        hvd.shutdown()

    fork = Fork(look)
    hvd.allreduce(torch.ones(1), name="goes on")
    fork.join()


def test_a_fork_holds_no_connection(run_ranks):
    run_ranks(2, body_descriptors)


def body_join_again_while_a_fork_lives() -> None:
    forks = []
    for _ in range(3):
        hvd.init()
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == hvd.size()
        forks.append(Fork(lambda: None))
        hvd.shutdown()
    for fork in forks:
        fork.join()


def body_join_again_as_under_torchrun() -> None:
    """As two hosts of one rank each: rank 0 listens at the port that the launcher has named."""
    rank, size = os.environ["GYRE_RANK"], os.environ["GYRE_SIZE"]
    for name in [name for name in os.environ if name.startswith("GYRE_") and name != "GYRE_KEY_FILE"]:
        del os.environ[name]
    os.environ.update(RANK=rank, WORLD_SIZE=size, LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    body_join_again_while_a_fork_lives()


def test_a_rank_joins_again_while_a_fork_of_it_lives(run_ranks, tmp_path):
    key = tmp_path / "key"
    key.write_bytes(secrets.token_bytes(32))
    key.chmod(0o600)
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GYRE_KEY_FILE": str(key)}
    run_ranks(2, body_join_again_as_under_torchrun, environment=variables)


class Numbers(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((6,), float(index))


class Job:
    """One life of a rank: some networks, each trained by a thread of its own, and forks at any time."""

    def __init__(self, seed: int) -> None:
        choose = random.Random(seed)
        self.rank, self.size = hvd.rank(), hvd.size()
        self.own = random.Random(seed * 100 + self.rank)
        self.steps = choose.randint(2, 4)
        self.models = [nn.Linear(6, choose.choice([1, 6, 200])) for _ in range(choose.randint(1, 3))]
        for number, model in enumerate(self.models):
            torch.manual_seed(seed * 10 + number)
            model.reset_parameters()
        self.twins = copy.deepcopy(self.models)
        self.optimizers = [
            hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01)) for model in self.models
        ]

    @staticmethod
    def loss(model: nn.Module, rank: int, step: int) -> torch.Tensor:
        return model(torch.full((1, 6), rank + step + 1.0)).square().sum()

    def train(self, number: int) -> None:
        for step in range(self.steps):
            self.optimizers[number].zero_grad()
            self.loss(self.models[number], self.rank, step).backward()
            self.optimizers[number].step()

    def spoil(self) -> None:
        for model, optimizer in zip(self.models, self.optimizers, strict=True):
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad.fill_(float("nan"))
            with pytest.raises(UnsupportedError, match="is a fork of process"):
                optimizer.step()

    def live(self) -> list[Fork]:
        """Returns the forks that are still there."""
        threads = [threading.Thread(target=self.train, args=(number,)) for number in range(len(self.models))]
        for thread in threads:
            thread.start()
        forks = [Fork(lambda: None) for _ in range(self.own.randint(0, 2))]
        workers = self.own.randint(0, 1)
        context = "fork" if workers else None
        loader = torch.utils.data.DataLoader(Numbers(), num_workers=workers, multiprocessing_context=context)
        assert [int(batch[0, 0]) for batch in loader] == list(range(8))
        for thread in threads:
            thread.join()
        gradients = [parameter.grad for model in self.models for parameter in model.parameters()]
        before = [gradient.clone() for gradient in gradients]
        forks.append(Fork(self.spoil))
        assert all(torch.equal(one, two) for one, two in zip(gradients, before, strict=True))
        return forks

    def check(self) -> None:
        """Each network is what a process that plays all ranks makes of it."""
        for model, twin in zip(self.models, self.twins, strict=True):
            plain = torch.optim.SGD(twin.parameters(), lr=0.01)
            for step in range(self.steps):
                plain.zero_grad()
                losses = [self.loss(twin, rank, step) for rank in range(self.size)]
                (torch.stack(losses).sum() / self.size).backward()
                plain.step()
            for parameter, expected in zip(model.parameters(), twin.parameters(), strict=True):
                torch.testing.assert_close(parameter, expected, rtol=1e-4, atol=1e-5)
            check_equal_on_all_ranks(model)


def body_everything_at_once() -> None:
    """Threads train, forks come and go, the job ends and begins again while forks of it live."""
    torch.set_num_threads(1)
    for seed in range(first_seed(), first_seed() + rounds(4, 30)):
        print(f"GYRE_TEST_SEED={seed}", flush=True)
        hvd.init()
        job = Job(seed)
        forks = job.live()
        job.check()
        hvd.shutdown()
        for fork in forks:
            fork.join()


def test_threads_forks_and_new_beginnings(run_ranks):
    run_ranks(2, body_everything_at_once)
