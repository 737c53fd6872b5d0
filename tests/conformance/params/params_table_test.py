"""Every consistency, with the workers' optimizers and with the servers', against a model in NumPy
(tests/support/params_model.py): random steps of workers that keep together as that consistency allows, with frozen and
unused parameters, tables of which rows travel, clipping, uneven data, changes that the program makes by itself, and
deaths. `GYRE_TEST_SEED=N` repeats a case; `GYRE_TEST_LONG=1` runs more of them. Workers are forks of one process that
has imported torch, so that many jobs cost little; the launcher has tests of its own, and one here."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import first_seed, rounds, seeded_random
from params_model import Gradients, Held, Local, Optimizer, Served, Synchronous
from params_workers import LONGEST_SECONDS, PACKAGE, WORKERS, Workers
from rank_template import RankTemplate
from running_job import StartJob, wait_until

FROZEN, UNUSED, CHANGED, SET, TABLE = 0, 1, 2, 3, 5
# Of workers' gradients that cancel out, rounding is left: with torch's own 1e-8 these optimizers magnify it.
EPSILON = 1e-4
OPTIMIZERS: dict[str, tuple[str, dict[str, float]]] = {
    "SGD": ("SGD", {"lr": 0.1}),
    "momentum": ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
    "Adam": ("Adam", {"lr": 0.05, "weight_decay": 0.1, "eps": EPSILON}),
    "RMSprop": ("RMSprop", {"lr": 0.01, "momentum": 0.5, "eps": EPSILON}),
    "Adagrad": ("Adagrad", {"lr": 0.1, "eps": EPSILON}),
}
OF_WORKERS = ("SGD", "momentum", "Adam")
WITH_TABLES = ("SGD", "Adagrad")
FORMS = ("sync", "sync:continue", "backup:1", "async", "bounded:2", "local:3", "local:3:bmuf", "local:2:nesterov")
SURVIVING = ("sync:continue", "backup:1", "async", "bounded:2")
SERVED_FORMS = ("sync", *SURVIVING)
DEATHS = (None, "before its optimizer", "between steps", "in a step", "while others settle")


@pytest.fixture(scope="module")
def template() -> Iterator[RankTemplate]:
    """Of all workers."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("GYRE_")}
    started = RankTemplate({**inherited, "PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1"})
    yield started
    started.close()


class Case:
    """One job of random commands, and its model."""

    def __init__(self, jobs: Jobs, form: str, optimizer: str, seed: int, death: str | None, on: str) -> None:
        print(f"GYRE_TEST_SEED={seed}: {form} with {optimizer} on {on}, death {death}", flush=True)
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.form, self.on = form, on
        class_, arguments = OPTIMIZERS[optimizer]
        own = [
            Optimizer(
                arguments["lr"], arguments.get("momentum", 0.0), arguments.get("weight_decay", 0.0), class_, EPSILON
            )
            for _ in range(WORKERS)
        ]
        sizes = self.numbers.permutation([1, 3, 7, 300, 17000])
        self.shapes: list[tuple[int, ...]] = [(int(size),) for size in sizes]
        self.shapes.append((self.random.randrange(1, 60), self.random.randrange(1, 9)))
        self.tables = [TABLE] if on == "servers" and optimizer in WITH_TABLES else []
        self.model = self.make_model(own)
        self.dropped = [0] * WORKERS
        self.values: dict[int, list[list[float]]] = {}  # Of each worker's last answer.
        self.workers = jobs.start(self.random.choice([0, 1, 2] if form.startswith("local") else [1, 2, 3]))
        self.options = {
            "shapes": self.shapes,
            "frozen": [FROZEN],
            "tables": self.tables,
            "optimizer": class_,
            "arguments": arguments,
            "consistency": form,
            "on": on,
        }

    def make_model(self, own: list[Optimizer]) -> Any:
        kind, *rest = self.form.split(":")
        if self.on == "servers":
            return Served(own)
        if kind == "sync":
            return Synchronous(own)
        if kind != "local":
            return Held(own)
        nesterov = rest[1:] == ["nesterov"]
        momentum = {"nesterov": 0.9, "bmuf": 1 - 1 / WORKERS}.get(rest[-1], 0.0)
        return Local(own, int(rest[0]), Optimizer(0.7 if nesterov else 1.0, momentum), nesterov)

    def build(self, without: int | None = None) -> None:
        """All make their optimizers, but for one that dies before, and get the first one's parameters."""
        firsts = {
            worker: [self.numbers.normal(size=int(np.prod(shape))) for shape in self.shapes] for worker in self.alive()
        }
        for worker in self.alive():
            if worker != without:
                self.workers.tell(worker, self.options | {"first": [value.tolist() for value in firsts[worker]]})
                assert self.workers.hear(worker) is not None
        if without is not None:
            self.kill(without)
        for worker in self.alive():
            self.workers.tell(worker, {"do": "broadcast"})
        self.model.begin(firsts[self.alive()[0]])
        for worker in self.alive():
            self.check(worker)

    def alive(self) -> list[int]:
        return list(self.model.alive)

    def gradients(self) -> Gradients:
        """Of one worker: some parameters have none."""
        result: Gradients = []
        for i, shape in enumerate(self.shapes):
            has_one = i not in (FROZEN, UNUSED) and self.random.random() < 0.8
            values = self.numbers.normal(size=int(np.prod(shape))).astype(np.float32).astype(np.float64)
            result.append(values if has_one else None)
        return result

    def clipping(self) -> float | None:
        return self.random.choice([None, 1.0])

    def tell_step(self, worker: int, gradients: Gradients, most: float | None, dies: bool = False) -> None:
        lists = [None if gradient is None else gradient.tolist() for gradient in gradients]
        for table in self.tables:
            if gradients[table] is not None:
                lists[table] = self.rows_of(table, gradients)
        closure = most is None and self.random.random() < 0.3
        command = {"do": "step", "gradients": lists, "most": most, "closure": closure, "dies": dies}
        self.workers.tell(worker, command | {"served": self.on == "servers"})

    def rows_of(self, table: int, gradients: Gradients) -> dict[str, Any]:
        """Replaces the gradient by one of a few rows, some of which are there several times, or none."""
        rows, columns = self.shapes[table]
        numbers = [self.random.randrange(rows) for _ in range(self.random.choice([0, 1, 5, 20]))]
        values = self.numbers.normal(size=(len(numbers), columns)).astype(np.float32)
        dense = np.zeros((rows, columns))
        np.add.at(dense, numbers, values.astype(np.float64))
        gradients[table] = dense.reshape(-1)
        return {"rows": numbers, "values": values.tolist()}

    def check(self, worker: int) -> None:
        """What the worker has now is what the model says."""
        answer = self.workers.hear(worker)
        assert answer is not None, f"worker {worker} is gone:\n{self.workers.job.output}"
        self.values[worker] = answer["values"]
        for i, (found, expected) in enumerate(zip(answer["values"], self.model.copies[worker], strict=True)):
            np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5, err_msg=f"worker {worker}, tensor {i}")
        assert answer["dropped"] == self.dropped[worker]

    def kill(self, worker: int) -> None:
        self.workers.tell(worker, {"do": "die"})
        assert self.workers.hear(worker) is None
        self.model.alive.remove(worker)

    def end(self) -> None:
        for worker in self.alive():
            self.workers.tell(worker, {"do": "end"})
        codes = self.workers.job.wait()
        expected = [0 if worker in self.alive() else -signal.SIGKILL for worker in range(WORKERS)]
        assert codes == expected + [0] * (len(codes) - WORKERS), self.workers.job.output

    def set_for_all(self) -> None:
        """The program writes to a parameter on all workers, and broadcasts."""
        value = self.random.uniform(-1, 1)
        for worker in self.alive():
            self.workers.tell(worker, {"do": "set", "tensor": SET, "value": value})
        source = self.model.copies[self.alive()[0]]
        source[SET][...] = value
        for worker in self.alive():
            self.model.copies[worker] = [one.copy() for one in source]
        if isinstance(self.model, Held):
            self.model.server = [one.copy() for one in source]
        for worker in self.alive():
            self.check(worker)


def run_synchronous(case: Case, steps: int, death: str | None) -> None:
    dies_at = steps // 2 if death in ("between steps", "in a step") else None
    for number in range(steps):
        victim = case.random.choice(case.alive()) if number == dies_at else None
        if victim is not None and death == "between steps":
            case.kill(victim)
            victim = None
        given = {worker: case.gradients() for worker in case.alive()}
        most = case.clipping()
        for worker, gradients in given.items():
            case.tell_step(worker, gradients, most, dies=worker == victim)
        counting = {worker: own for worker, own in given.items() if case.on == "workers" or worker != victim}
        case.model.step(counting, most)
        for worker in case.alive():
            if worker == victim:
                assert case.workers.hear(worker) is None
            else:
                case.check(worker)
        if victim is not None:
            case.model.alive.remove(victim)
        if number % 4 == 2:
            case.set_for_all()
    settle_synchronous(case, death)


def settle_synchronous(case: Case, death: str | None) -> None:
    waiting = case.alive()
    if death == "while others settle":
        waiting.remove(case.random.choice(waiting))
    for worker in waiting:
        case.workers.tell(worker, {"do": "settle"})
    for worker in set(case.alive()) - set(waiting):
        case.kill(worker)
    for worker in waiting:
        case.check(worker)


class HeldRun:
    """Random steps where the servers hold the parameters: of one worker at a time, or of a quorum."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.model: Held = case.model
        self.backup = case.form == "backup:1"
        self.bound = 2 if case.form == "bounded:2" else None
        self.settling: set[int] = set()
        self.clocks = [0] * WORKERS
        self.fresh = set(case.alive())  # With backup workers: those that have the parameters of the last step.

    def at_work(self) -> list[int]:
        return [worker for worker in self.case.alive() if worker not in self.settling]

    def may_step(self) -> list[int]:
        if self.bound is None:
            return self.at_work()
        slowest = min(self.clocks[worker] for worker in self.at_work())
        return [worker for worker in self.at_work() if self.clocks[worker] < slowest + self.bound]

    def step(self, dies: bool = False) -> None:
        if self.backup:
            return self.quorum_step(dies)
        worker = self.case.random.choice(self.may_step())
        gradients, most = self.case.gradients(), self.case.clipping()
        self.case.tell_step(worker, gradients, most, dies)
        if dies:
            assert self.case.workers.hear(worker) is None
            self.model.alive.remove(worker)
            return None
        self.model.step({worker: gradients}, most)
        self.clocks[worker] += 1
        return self.case.check(worker)

    def late_step(self, worker: int) -> None:
        """It is dropped before the optimizer."""
        huge = [None if gradient is None else 1000 * gradient for gradient in self.case.gradients()]
        self.case.tell_step(worker, huge, None)
        self.model.take([worker])
        self.case.dropped[worker] += 1
        self.case.check(worker)
        self.fresh.add(worker)

    def quorum_step(self, dies: bool) -> None:
        case = self.case
        for worker in [one for one in self.at_work() if one not in self.fresh]:
            if case.random.random() < 0.5 or len(self.fresh & set(self.at_work())) < 2:
                self.late_step(worker)
        most = case.clipping()
        group = case.random.sample(sorted(self.fresh & set(self.at_work())), min(2, len(self.at_work())))
        victim = group[0] if dies else None
        given = {worker: case.gradients() for worker in group}
        if victim is not None:  # It is admitted, and dies before it has sent anything.
            case.tell_step(victim, given.pop(victim), None, dies=True)
            assert case.workers.hear(victim) is None
            self.model.alive.remove(victim)
            others = [worker for worker in self.at_work() if worker not in given]
            for worker in others[: min(2, len(self.at_work())) - len(given)]:
                if worker not in self.fresh:
                    self.late_step(worker)
                given[worker] = case.gradients()
        for worker, gradients in given.items():
            case.tell_step(worker, gradients, most)
        self.model.step(given, most)
        for worker in given:
            case.check(worker)
        self.fresh = set(given)

    def change(self) -> None:
        """The program writes to a parameter: this is not sent."""
        worker = self.case.random.choice(self.at_work())
        value = self.case.random.uniform(-1, 1)
        self.case.workers.tell(worker, {"do": "change", "tensor": CHANGED, "value": value})
        self.model.change(worker, CHANGED, value)
        self.case.check(worker)

    def settle(self, dying: int | None = None) -> None:
        for worker in self.at_work():
            if worker != dying:
                self.case.workers.tell(worker, {"do": "settle"})
        if dying is not None:
            self.case.kill(dying)
        self.model.settle()
        for worker in self.case.alive():
            self.case.check(worker)
        self.settling.clear()
        self.clocks = [max(self.clocks)] * WORKERS
        self.fresh = set(self.case.alive())

    def settle_unevenly(self, steps: int) -> None:
        """One worker has no more steps, and waits, while the others go on."""
        first = self.case.random.choice(self.at_work())
        self.settling.add(first)
        self.case.workers.tell(first, {"do": "settle"})
        for _ in range(steps):
            self.step()
        self.settle()


def run_held(case: Case, steps: int, death: str | None) -> None:
    run = HeldRun(case)
    dies_at = steps // 2 if death in ("between steps", "in a step") else None
    for number in range(steps):
        if number == dies_at and death == "between steps":
            case.kill(case.random.choice(case.alive()))
            run.fresh &= set(case.alive())
        run.step(dies=number == dies_at and death == "in a step")
        if number % 5 == 3:
            run.change()
        if number % 7 == 4:
            run.settle_unevenly(case.random.randrange(6))
            case.set_for_all()
    run.settle(case.random.choice(case.alive()) if death == "while others settle" else None)


def run_local(case: Case, steps: int) -> None:
    model: Local = case.model
    left = [case.random.randrange(steps) for _ in range(WORKERS)]
    waiting: set[int] = set()
    settling: set[int] = set()
    while len(settling) < WORKERS or any(model.alone):
        ready = [worker for worker in case.alive() if worker not in waiting | settling]
        if ready:
            worker = case.random.choice(ready)
            if left[worker] == 0:
                settling.add(worker)
                case.workers.tell(worker, {"do": "settle"})
                continue
            left[worker] -= 1
            gradients, most = case.gradients(), case.clipping()
            case.tell_step(worker, gradients, most)
            if model.step(worker, gradients, most):
                waiting.add(worker)
            else:
                case.check(worker)
            continue
        model.round()
        for worker in waiting:
            case.check(worker)
        waiting.clear()
    for worker in case.alive():
        case.check(worker)


class Jobs:
    """The jobs of one test."""

    def __init__(self, template: RankTemplate, gyre: Path, folder: Path) -> None:
        self.template, self.gyre, self.folder = template, gyre, folder
        self.count = 0

    def start(self, servers: int) -> Workers:
        self.count += 1
        folder = self.folder / str(self.count)
        folder.mkdir()
        return Workers(self.template, self.gyre, folder, servers)


@pytest.fixture
def jobs(template: RankTemplate, gyre: Path, tmp_path: Path) -> Jobs:
    return Jobs(template, gyre, tmp_path)


def run(jobs: Jobs, form: str, optimizer: str, seed: int, death: str | None, on: str = "workers") -> None:
    case = Case(jobs, form, optimizer, seed, death, on)
    case.build(without=case.random.choice(case.alive()) if death == "before its optimizer" else None)
    steps = case.random.randrange(12, 24)
    if isinstance(case.model, Synchronous) or (isinstance(case.model, Served) and form.startswith("sync")):
        run_synchronous(case, steps, death)
    elif isinstance(case.model, Held):
        run_held(case, steps, death)
    else:
        run_local(case, steps)
    assert all(case.values[worker] == case.values[case.alive()[0]] for worker in case.alive()), "not the same bits"
    case.end()


@pytest.mark.parametrize("form", FORMS)
def test_training_is_what_the_model_says(jobs: Jobs, form: str) -> None:
    for seed in range(first_seed(), first_seed() + rounds(1, 15)):
        number = seed + FORMS.index(form)
        death = DEATHS[number % len(DEATHS)] if form in SURVIVING else None
        run(jobs, form, OF_WORKERS[number % len(OF_WORKERS)], seed, death)


@pytest.mark.parametrize("form", SERVED_FORMS)
def test_training_with_the_servers_optimizer_is_what_the_model_says(jobs: Jobs, form: str) -> None:
    names = list(OPTIMIZERS)
    for seed in range(first_seed(), first_seed() + rounds(3, 30)):
        number = seed + SERVED_FORMS.index(form)
        death = DEATHS[number % len(DEATHS)] if form in SURVIVING else None
        run(jobs, form, names[seed % len(names)], seed, death, on="servers")


# Each worker has other data; the gradients take long enough for a kill in any part of a step.
KILLED = """
import hashlib, os, sys
import torch
import gyre.params as ps

ps.init()
torch.manual_seed(ps.rank())
model = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.Linear(300, 30))
optimizer = torch.optim.SGD(model.parameters(), 0.001, momentum=0.9)
optimizer = ps.ParameterServerOptimizer(optimizer, consistency=sys.argv[1])
print("ready", ps.rank(), os.getpid(), flush=True)
ps.broadcast_parameters(model.state_dict())
for step in range(150):
    optimizer.zero_grad()
    model(torch.ones(2, 300) * (1 + ps.rank())).square().mean().backward()
    optimizer.step()
    if step % 50 == 7:
        ps.sum_over_workers([1.0])
    if step % 60 == 9:
        optimizer.settle()
optimizer.settle()
values = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
print("hash", hashlib.sha256(values).hexdigest(), flush=True)
"""


def test_survivors_of_a_kill_at_any_moment_end_equal(start_job: StartJob) -> None:
    chance = seeded_random()
    for _ in range(rounds(1, 40)):
        form, victim = chance.choice(SURVIVING), chance.randrange(WORKERS)
        delay = chance.choice([0.0, 0.01, chance.random()])
        print(f"{form}, worker {victim} after {delay} s", flush=True)
        words = ("-n", WORKERS, "--servers", 2, "--", sys.executable, "-c", KILLED, form)
        job = start_job(*map(str, words), env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=LONGEST_SECONDS)
        ready = re.compile(rf"ready {victim} (\d+)")
        wait_until("the victim is ready", lambda ready=ready, job=job: ready.search(job.stdout) is not None)
        time.sleep(delay)  # It may have finished before: then all end.
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(ready.findall(job.stdout)[0]), signal.SIGKILL)
        assert job.wait() == 0, job.stderr
        hashes = re.findall(r"hash (\w+)", job.stdout)
        assert len(hashes) >= WORKERS - 1
        assert len(set(hashes)) == 1


@pytest.mark.parametrize("on", ["workers", "servers"])
@pytest.mark.parametrize("form", ["sync", "sync:continue"])
def test_uneven_data_in_sync_is_refused_with_both_counts(jobs: Jobs, form: str, on: str) -> None:
    case = Case(jobs, form, "SGD", first_seed(), None, on)
    case.build()
    for _ in range(2):
        for worker in case.alive():
            case.tell_step(worker, case.gradients(), None)
        for worker in case.alive():
            assert case.workers.hear(worker) is not None
    for worker in case.alive():
        if worker != 1:
            case.tell_step(worker, case.gradients(), None)
        case.workers.tell(worker, {"do": "settle"})
    assert 0 not in case.workers.job.wait()
    assert "worker 1 is at settle() after 2 steps, and worker" in case.workers.job.output
    assert "takes step 3, which waits for all workers" in case.workers.job.output
