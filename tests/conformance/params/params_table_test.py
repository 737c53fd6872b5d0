"""Every consistency against a model in NumPy (tests/support/params_model.py): random steps of workers that keep
together as that consistency allows, with frozen and unused parameters, clipping, uneven data, changes that the program
makes by itself, and deaths. `GYRE_TEST_SEED=N` repeats a case; `GYRE_TEST_LONG=1` runs more of them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import first_seed, rounds, seeded_random
from params_model import Gradients, Held, Local, Optimizer, Synchronous
from running_job import Job, StartJob, wait_until

RANK = Path(__file__).resolve().parents[2] / "support" / "params_rank.py"
LONGEST_SECONDS = 100.0
WORKERS = 3
SHAPES = [(5,), (2, 3), (4,), (300,), (1,)]
FROZEN, UNUSED = 0, 1
OPTIMIZERS: dict[str, tuple[str, dict[str, float]]] = {
    "SGD": ("SGD", {"lr": 0.1}),
    "momentum": ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
    "Adam": ("Adam", {"lr": 0.05, "weight_decay": 0.1}),
}
FORMS = ("sync", "sync:continue", "backup:1", "async", "bounded:2", "local:3", "local:3:bmuf", "local:2:nesterov")
SURVIVING = ("sync:continue", "backup:1", "async", "bounded:2")
DEATHS = (None, "before its optimizer", "between steps", "in a step", "while others settle")


class Workers:
    """The job's workers, each of which does one command after the other."""

    def __init__(self, start_job: StartJob, folder: Path, servers: int) -> None:
        path = folder / "commands"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            listener.settimeout(LONGEST_SECONDS)
            options = ("--servers", servers) if servers else ()
            words = ("-n", WORKERS, *options, "--", sys.executable, RANK, path)
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            self.job: Job = start_job(*map(str, words), env=environment, timeout=LONGEST_SECONDS)
            self.commands: dict[int, Any] = {}
            self.answers: dict[int, Any] = {}
            while len(self.answers) < WORKERS:
                connection, _ = listener.accept()
                connection.settimeout(LONGEST_SECONDS)
                answers = connection.makefile("r", encoding="utf-8")
                worker = json.loads(answers.readline())
                self.answers[worker] = answers
                self.commands[worker] = connection.makefile("w", encoding="utf-8")
                connection.close()  # The files have it as well.

    def tell(self, worker: int, command: dict[str, Any]) -> None:
        self.commands[worker].write(json.dumps(command) + "\n")
        self.commands[worker].flush()

    def hear(self, worker: int) -> dict[str, Any] | None:
        """Nothing of one that has died."""
        try:
            line = self.answers[worker].readline()
        except ConnectionResetError:
            return None
        return json.loads(line) if line else None


class Case:
    """One job of random commands, and its model."""

    def __init__(
        self, start_job: StartJob, folder: Path, form: str, optimizer: str, seed: int, death: str | None
    ) -> None:
        print(f"GYRE_TEST_SEED={seed}: {form} with {optimizer}, death {death}", flush=True)
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.form = form
        class_, arguments = OPTIMIZERS[optimizer]
        own = [
            Optimizer(
                arguments["lr"], arguments.get("momentum", 0.0), arguments.get("weight_decay", 0.0), class_ == "Adam"
            )
            for _ in range(WORKERS)
        ]
        self.model = self.make_model(own)
        self.dropped = [0] * WORKERS
        self.values: dict[int, list[list[float]]] = {}  # Of each worker's last answer.
        self.workers = Workers(start_job, folder, self.random.choice([0, 1, 2] if form.startswith("local") else [1, 2]))
        self.options = {
            "shapes": SHAPES,
            "frozen": [FROZEN],
            "optimizer": class_,
            "arguments": arguments,
            "consistency": form,
        }

    def make_model(self, own: list[Optimizer]) -> Any:
        kind, *rest = self.form.split(":")
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
            worker: [self.numbers.normal(size=int(np.prod(shape))) for shape in SHAPES] for worker in self.alive()
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
        for i, shape in enumerate(SHAPES):
            has_one = i not in (FROZEN, UNUSED) and self.random.random() < 0.8
            values = self.numbers.normal(size=int(np.prod(shape))).astype(np.float32).astype(np.float64)
            result.append(values if has_one else None)
        return result

    def clipping(self) -> float | None:
        return self.random.choice([None, 1.0])

    def tell_step(self, worker: int, gradients: Gradients, most: float | None, dies: bool = False) -> None:
        lists = [None if gradient is None else gradient.tolist() for gradient in gradients]
        closure = most is None and self.random.random() < 0.3
        self.workers.tell(worker, {"do": "step", "gradients": lists, "most": most, "closure": closure, "dies": dies})

    def check(self, worker: int) -> None:
        """What the worker has now is what the model says."""
        answer = self.workers.hear(worker)
        assert answer is not None, f"worker {worker} is gone:\n{self.workers.job.stderr}"
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
        assert self.workers.job.wait() == 0, self.workers.job.stderr

    def set_for_all(self) -> None:
        """The program writes to a parameter on all workers, and broadcasts."""
        value = self.random.uniform(-1, 1)
        for worker in self.alive():
            self.workers.tell(worker, {"do": "set", "tensor": 3, "value": value})
        source = self.model.copies[self.alive()[0]]
        source[3][...] = value
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
        case.model.step(given, most)
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
        self.case.workers.tell(worker, {"do": "change", "tensor": 2, "value": value})
        self.model.change(worker, 2, value)
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


def run(start_job: StartJob, folder: Path, form: str, optimizer: str, seed: int, death: str | None) -> None:
    folder.mkdir()
    case = Case(start_job, folder, form, optimizer, seed, death)
    case.build(without=case.random.choice(case.alive()) if death == "before its optimizer" else None)
    steps = case.random.randrange(12, 24)
    if isinstance(case.model, Synchronous):
        run_synchronous(case, steps, death)
    elif isinstance(case.model, Held):
        run_held(case, steps, death)
    else:
        run_local(case, steps)
    assert all(case.values[worker] == case.values[case.alive()[0]] for worker in case.alive()), "not the same bits"
    case.end()


@pytest.mark.parametrize("form", FORMS)
def test_training_is_what_the_model_says(start_job: StartJob, tmp_path: Path, form: str) -> None:
    names = list(OPTIMIZERS)
    for seed in range(first_seed(), first_seed() + rounds(1, 15)):
        number = seed + FORMS.index(form)
        death = DEATHS[number % len(DEATHS)] if form in SURVIVING else None
        run(start_job, tmp_path / str(seed), form, names[number % len(names)], seed, death)


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


@pytest.mark.parametrize("form", ["sync", "sync:continue"])
def test_uneven_data_in_sync_is_refused_with_both_counts(start_job: StartJob, tmp_path: Path, form: str) -> None:
    case = Case(start_job, tmp_path, form, "SGD", first_seed(), None)
    case.build()
    for worker in case.alive():
        for _ in range(2 if worker == 1 else 3):
            case.tell_step(worker, case.gradients(), None)
        case.workers.tell(worker, {"do": "settle"})
    assert case.workers.job.wait() != 0
    assert "worker 1 is at settle() after 2 steps, and worker" in case.workers.job.stderr
    assert "takes step 3, which waits for all workers" in case.workers.job.stderr
