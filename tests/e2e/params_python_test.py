"""gyre.params: an optimizer that trains through parameter servers, whatever the consistency."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forked_script import PROGRAM, templates
from ranks_fixture import inherited_environment
from running_job import Job, StartJob, wait_until

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "04_parameter_servers.py"
LONGEST_SECONDS = 120.0
Run = Callable[..., Job]

# Prints the parameters after a few steps of an optimizer with momentum, as hexadecimal numbers.
STEPS = """
import sys
import torch
import gyre.params as ps

ps.init()
torch.manual_seed(ps.rank())
first, second = torch.nn.Linear(7, 5), torch.nn.Linear(5, 3, bias=False)
model = torch.nn.Sequential(first, torch.nn.Tanh(), second)
optimizer = torch.optim.{optimizer}
optimizer = ps.ParameterServerOptimizer(optimizer, model.named_parameters(), consistency="{consistency}")
ps.broadcast_parameters(model.state_dict())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
for step in range(5):
    optimizer.zero_grad()
    batch = torch.randn(4, 7, generator=torch.Generator().manual_seed(100 * step + ps.rank()))
    model(batch).square().mean().backward()
    optimizer.step()
    scheduler.step()
optimizer.settle()
values = torch.cat([p.detach().flatten() for p in model.parameters()])
print("parameters", " ".join(float(value).hex() for value in values), flush=True)
assert ps.sum_over_workers([1.0, ps.rank()]) == [ps.size(), sum(range(ps.size()))]
ps.shutdown()
"""


@pytest.fixture(scope="module")
def forked_script(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Runs the script that follows, in place of `python -c`."""
    folder = tmp_path_factory.mktemp("templates")
    with templates(folder, inherited_environment()):
        yield [sys.executable, "-S", "-E", PROGRAM, str(folder)]


@pytest.fixture
def run(start_job: StartJob, forked_script: list[str]) -> Run:
    def start(script: str, *options: object) -> Job:
        return start_job(*map(str, options), "--", *forked_script, script, timeout=LONGEST_SECONDS)

    return start


def parameters_of(job: Job) -> set[str]:
    assert job.wait() == 0, job.stderr
    return set(re.findall(r"parameters (.*)", job.stdout))


@pytest.mark.parametrize("optimizer", ["SGD(model.parameters(), 0.1, momentum=0.9)", "Adam(model.parameters(), 0.01)"])
def test_sync_has_the_bits_of_allreduce(run: Run, optimizer: str) -> None:
    script = STEPS.format(optimizer=optimizer, consistency="sync")
    with_servers = [parameters_of(run(script, "-n", 3, "--servers", servers)) for servers in (1, 2)]
    assert with_servers[0] == with_servers[1] == parameters_of(run(script, "-n", 3))
    assert len(with_servers[0]) == 1


def test_local_steps_are_the_same_with_and_without_servers(run: Run) -> None:
    script = STEPS.format(optimizer="SGD(model.parameters(), 0.1)", consistency="local:2:nesterov")
    with_servers = parameters_of(run(script, "-n", 2, "--servers", 2))
    assert with_servers == parameters_of(run(script, "-n", 2))
    assert len(with_servers) == 1


def test_one_local_step_is_sync_where_the_optimizer_is_linear(run: Run) -> None:
    values = []
    for consistency in ("sync", "local:1", "sync:continue"):
        script = STEPS.format(optimizer="SGD(model.parameters(), 0.1)", consistency=consistency)
        (text,) = parameters_of(run(script, "-n", 2, "--servers", 1))
        values.append([float.fromhex(value) for value in text.split()])
    assert values[1] == pytest.approx(values[0], abs=1e-6)
    assert values[2] == values[0]


@pytest.mark.parametrize("consistency", ["async", "bounded:1", "backup:1"])
def test_after_settle_all_workers_have_the_same_parameters(run: Run, consistency: str) -> None:
    script = STEPS.format(optimizer="SGD(model.parameters(), 0.1)", consistency=consistency)
    assert len(parameters_of(run(script, "-n", 3, "--servers", 2))) == 1


def test_async_with_one_worker_is_training_alone(run: Run) -> None:
    optimizer = "Adam(model.parameters(), 0.01)"
    alone = parameters_of(run(STEPS.format(optimizer=optimizer, consistency="sync"), "-n", 1))
    job = run(STEPS.format(optimizer=optimizer, consistency="async"), "-n", 1, "--servers", 1)
    (text,) = parameters_of(job)
    (expected,) = alone
    values = [[float.fromhex(value) for value in words.split()] for words in (text, expected)]
    assert values[0] == pytest.approx(values[1], abs=1e-6), "the change is rounded once more on its way"
    assert re.search(r"staleness of \d+ updates: 0.00 on average, at most 0", job.stdout)


@pytest.mark.parametrize("consistency", ["sync", "async"])
def test_the_example_learns(start_job: StartJob, consistency: str) -> None:
    program = (sys.executable, EXAMPLE, "--epochs", 6, "--consistency", consistency)
    job = start_job("-n", "2", "--servers", "1", "--", *map(str, program), timeout=LONGEST_SECONDS)
    assert job.wait() == 0, job.stderr
    assert float(re.findall(r"test accuracy ([\d.]+)", job.stdout)[-1]) > 0.85


def test_the_others_go_on_without_a_killed_worker(start_job: StartJob) -> None:
    program = (sys.executable, EXAMPLE, "--epochs", 40, "--consistency", "async")
    job = start_job("-n", "3", "--servers", "1", "-v", "--", *map(str, program), timeout=LONGEST_SECONDS)
    pids = job.rank_pids(4)
    wait_until("the training runs", lambda: "epoch 1:" in job.stdout)
    os.kill(pids[1], signal.SIGKILL)
    assert job.wait() == 0, job.stderr
    assert "epoch 40:" in job.stdout
    assert "rank 1 of 4 ended with SIGKILL (signal 9); the others go on without it" in job.stderr
    assert job.processes() == []


@pytest.mark.parametrize(
    ("call", "servers", "message"),
    [
        ("ps.ParameterServerOptimizer(sgd, consistency='asink')", 1, "consistency: 'asink' is none of: sync, sync:con"),
        ("ps.ParameterServerOptimizer(sgd, consistency='async')", 0, "needs parameter servers: start the job with"),
        ("ps.ParameterServerOptimizer(model)", 1, "expected a torch.optim.Optimizer, got Linear"),
        ("ps.ParameterServerOptimizer(sgd, op=hvd.Sum)", 1, "op cannot be chosen with parameter servers"),
        ("ps.ParameterServerOptimizer(double)", 1, "parameter 0 is of type torch.float64 on cpu"),
        ("ps.ParameterServerOptimizer(sgd).add_param_group({})", 1, "the servers know the parameters"),
        ("[ps.ParameterServerOptimizer(sgd) for _ in range(2)]", 1, "a process can have one ParameterServerOptimizer"),
        ("ps.sum_over_workers([1.0])", 1, "make the ParameterServerOptimizer first"),
    ],
)
def test_what_cannot_be_gets_one_error(run: Run, call: str, servers: int, message: str) -> None:
    script = f"""
import torch, gyre.params as ps, gyre.torch as hvd
ps.init()
model = torch.nn.Linear(2, 2)
sgd = torch.optim.SGD(model.parameters(), 0.1)
double = torch.optim.SGD(torch.nn.Linear(2, 2, dtype=torch.float64).parameters(), 0.1)
try:
    {call}
except (hvd.Error, RuntimeError) as error:
    print(f"{{type(error).__name__}}: {{error}}", flush=True)
"""
    job = run(script, "-n", 1, "--servers", servers)
    assert job.wait() == 0, job.stderr
    assert message in job.stdout


CONVERSIONS = """
import torch, gyre.params as ps, gyre.torch as hvd
ps.init()
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
optimizer = ps.ParameterServerOptimizer(optimizer, model.named_parameters(), consistency="{consistency}")

def step():
    model.zero_grad()
    model(torch.ones(1, 2, dtype=model.weight.dtype)).sum().backward()
    optimizer.step()

step()
for convert in (torch.nn.Module.double, torch.nn.Module.bfloat16):
    before = convert(model).weight.detach().clone()
    try:
        step()
    except hvd.Error as error:
        print(f"{{type(error).__name__}}: {{error}}", flush=True)
    model.float()
step()
model.weight.data = torch.ones(2, 3)[:, :2]
try:
    step()
except hvd.Error as error:
    print(f"{{type(error).__name__}}: {{error}}", flush=True)
model.weight.data = torch.ones(2, 2)
step()
"""


@pytest.mark.parametrize("consistency", ["sync", "async", "local:1"])
def test_a_model_that_is_converted_after_wrapping_is_noticed(run: Run, consistency: str) -> None:
    job = run(CONVERSIONS.format(consistency=consistency), "-n", 1, "--servers", 1)
    assert job.wait() == 0, job.stderr
    for type_ in ("float64", "bfloat16"):
        assert f"UnsupportedError: weight is of type {type_}; parameter servers and local steps take" in job.stdout
    if consistency != "sync":  # There gradients travel, and they are contiguous.
        assert "UnsupportedError: weight is not contiguous, of type float32" in job.stdout


RESUME = """
import copy, torch, gyre.params as ps
ps.init()

def train(steps, saved=None):
    model = torch.nn.Linear(3, 2)
    torch.nn.init.constant_(model.weight, 0.5)
    torch.nn.init.constant_(model.bias, 0.5)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    optimizer = ps.ParameterServerOptimizer(optimizer, consistency="local:2:nesterov")
    if saved is not None:
        model.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
    for step in steps:
        optimizer.zero_grad()
        batch = torch.randn(4, 3, generator=torch.Generator().manual_seed(100 * step + ps.rank()))
        model(batch).square().mean().backward()
        optimizer.step()
    optimizer.settle()
    values = torch.cat([p.detach().flatten() for p in model.parameters()])
    return copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict()), values.tolist()

first = train(range(6))
print("equal", train(range(6, 12), first)[2] == train(range(12))[2], flush=True)
"""


def test_a_state_dict_holds_the_outer_optimizer(run: Run) -> None:
    """Otherwise a resumed job continues without the momentum that it had."""
    job = run(RESUME, "-n", 2)
    assert job.wait() == 0, job.stderr
    assert job.stdout.count("equal True") == 2


def test_a_worker_that_fails_ends_the_job_in_sync_with_its_reason(run: Run) -> None:
    script = STEPS.format(optimizer="SGD(model.parameters(), 0.1)", consistency="sync").replace(
        "optimizer.step()", "optimizer.step()\n    if step == 2 and ps.rank() == 1: raise ValueError('a bad image')"
    )
    job = run(script, "-n", 2, "--servers", 1)
    assert job.wait() == 1
    assert "rank 1 of 3 failed first" in job.stderr
    assert "ValueError: a bad image" in job.stderr
    assert job.processes() == []


# Worker 0 gets Ctrl-C while it waits for worker 1, which comes when worker 0 has left.
INTERRUPTED = """
import os, signal, sys, time
import torch
import gyre.params as ps
from gyre.errors import Error

ps.init()
model = torch.nn.Linear(7, 5)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
optimizer = ps.ParameterServerOptimizer(optimizer, model.named_parameters(), consistency="{consistency}")
ps.broadcast_parameters(model.state_dict())

def step():
    optimizer.zero_grad()
    model(torch.ones(2, 7)).sum().backward()
    optimizer.step()

def failure_of(call):
    try:
        call()
    except Error as error:
        return error
    sys.exit("nothing failed")

if ps.rank() == 1:
    until = time.monotonic() + 60
    while not os.path.exists("{left}") and time.monotonic() < until:
        time.sleep(0.02)
    if "{consistency}" == "sync":
        print("worker 1:", failure_of(optimizer.settle), flush=True)
    else:  # Losses are survived.
        optimizer.settle()
    sys.exit(0)
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.5)
try:
    optimizer.settle()
    sys.exit("it was not interrupted")
except KeyboardInterrupt:
    pass
for call in (step, optimizer.settle, lambda: ps.sum_over_workers([1.0])):
    print("worker 0:", failure_of(call), flush=True)
try:
    ps.shutdown()
except Error as error:
    print("worker 0, shutdown:", error, flush=True)
open("{left}", "w").close()
"""


@pytest.mark.parametrize("consistency", ["sync", "async", "backup:1"])
def test_after_an_interruption_a_worker_can_only_leave(run: Run, tmp_path: Path, consistency: str) -> None:
    """What waited went on with memory that leaving had freed."""
    script = INTERRUPTED.format(consistency=consistency, left=tmp_path / "left")
    job = run(script, "-n", 2, "--servers", 1)
    job.wait()
    assert job.stdout.count("an earlier call was interrupted in the middle of an exchange") == 3, (
        job.stdout + job.stderr
    )
    reason = "worker 0 was interrupted while it talked to the parameter servers"
    if consistency == "sync":
        assert re.search(f"worker 1: .*{reason}", job.stdout), job.stdout + job.stderr
    else:
        assert f"{reason}; the others go on without it" in job.stderr
    assert "SIG" not in job.stderr, job.stderr


@pytest.mark.parametrize("consistency", ["sync", "async", "local:1"])
def test_workers_that_list_their_parameters_in_different_orders_are_told(run: Run, consistency: str) -> None:
    """One worker's tensor was added to another one of the same size."""
    script = f"""
import torch, gyre.params as ps
ps.init()
model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
named = list(model.named_parameters())[:: 1 if ps.rank() else -1]
optimizer = torch.optim.SGD([parameter for _, parameter in named], 0.1)
optimizer = ps.ParameterServerOptimizer(optimizer, named, consistency="{consistency}")
model(torch.ones(1, 3)).sum().backward()
optimizer.step()
"""
    job = run(script, "-n", 2, "--servers", 1)
    assert job.wait() != 0
    assert "workers 0 and 1 have different parameters (their names, sizes or order)" in job.stderr


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("import torch.distributed as d; d.init_process_group('gyre')", "and this program exchanges gradients between"),
        ("import gyre.torch; gyre.torch.init()", "and this program exchanges gradients between its ranks: start it"),
        ("print('trained otherwise')", "this program does not use its parameter servers"),
    ],
)
def test_a_program_that_does_not_use_its_servers_is_told(run: Run, script: str, reason: str) -> None:
    """It trained to its end, and then the job failed and blamed a server."""
    job = run(script, "-n", 2, "--servers", 1)
    assert job.wait() == 1
    assert reason in job.stderr
    assert "without --servers" in job.stderr


APART = """
import copy
import torch
import gyre.params as ps

ps.init()
torch.manual_seed(ps.rank() if {apart} else 0)
model = torch.nn.Linear(7, 5)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
optimizer = ps.ParameterServerOptimizer(optimizer, model.named_parameters(), consistency="local:2:nesterov")
for step in range(4):
    optimizer.zero_grad()
    model(torch.full((2, 7), ps.rank() + 1.0)).sum().backward()
    optimizer.step()
    if step == {loads}:
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
optimizer.settle()
print("parameters", model.weight.sum().item(), flush=True)
ps.shutdown()
"""


@pytest.mark.parametrize("servers", [(), ("--servers", 1)])
def test_local_workers_that_would_stay_apart_are_told(run: Run, servers: tuple[object, ...]) -> None:
    """Only changes are averaged: they ended with different models, without a word."""
    for apart, loads in ((True, -1), (False, 0)):
        job = run(APART.format(apart=apart, loads=loads), "-n", 2, *servers)
        assert job.wait() != 0, job.stdout
        assert "the workers did not begin their steps with the same parameters" in job.stderr
    assert len(parameters_of(run(APART.format(apart=False, loads=1), "-n", 2, *servers))) == 1
