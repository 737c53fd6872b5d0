"""ParameterServerOptimizer(on="servers"): one optimizer for the job, which steps as torch's own does, also by rows."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from running_job import Job, StartJob

LONGEST_SECONDS = 120.0

COMMON = """
import copy, sys
import torch
import gyre.params as ps
import gyre.torch as hvd

torch.set_num_threads(1)
ps.init()
torch.manual_seed(0)

def close(a, b):
    return torch.allclose(a, b, rtol=2e-6, atol=1e-6)

def same_states(found, expected):
    assert found["param_groups"] == expected["param_groups"]
    assert found["state"].keys() == expected["state"].keys(), (found["state"].keys(), expected["state"].keys())
    for number, state in expected["state"].items():
        assert found["state"][number].keys() == state.keys()
        for name, value in state.items():
            other = found["state"][number][name]
            assert close(other.to_dense() if other.is_sparse else other, value), (number, name)
"""

# Each worker knows all workers' gradients, and so what torch makes of their average.
STEPS = (
    COMMON
    + """
shapes = [(5, 7), (5,), (300,), (3, 2)]
first = [torch.randn(shape) for shape in shapes]
mine = [torch.nn.Parameter(value.clone()) for value in first]
theirs = [torch.nn.Parameter(value.clone()) for value in first]
if ps.rank() > 0:
    for parameter in mine:
        parameter.data.fill_(9.0)  # The first one's count.

def make(parameters):
    return torch.optim.{class_}(
        [{{"params": parameters[:2]}}, {{"params": parameters[2:], "lr": 0.002, "weight_decay": 0.05}}], {arguments}
    )

def cycle(optimizer):
    return torch.optim.lr_scheduler.{schedule}

reference = make(theirs)
optimizer = ps.ParameterServerOptimizer(make(mine), consistency="{consistency}", on="servers")
schedules = [cycle(optimizer), cycle(reference)]
numbers = torch.Generator().manual_seed(5)
for step in range(12):
    gradients = [[torch.randn(shape, generator=numbers) for shape in shapes] for _ in range(ps.size())]
    for number, (parameter, other) in enumerate(zip(mine, theirs)):
        missing = number == 2 and step % 3 == 1  # Nobody has it. The last one is worker 0's alone.
        lacks = missing or (number == 3 and ps.rank() > 0)
        parameter.grad = None if lacks else gradients[ps.rank()][number]
        given = [g[number] if number != 3 or r == 0 else torch.zeros(3, 2) for r, g in enumerate(gradients)]
        other.grad = None if missing else sum(given) / ps.size()
    optimizer.step()
    reference.step()
    for schedule in schedules:
        schedule.step()
    for parameter, other in zip(mine, theirs):
        assert close(parameter, other), (step, (parameter - other).abs().max())
optimizer.settle()
same_states(optimizer.state_dict(), reference.state_dict())
print("as torch", flush=True)
"""
)

ONE_CYCLE = "OneCycleLR(optimizer, [0.05, 0.02], total_steps=14{more})"


def run(start_job: StartJob, script: str, *options: object) -> Job:
    words = [*map(str, options), "--", sys.executable, "-c", script]
    return start_job(*words, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=LONGEST_SECONDS)


@pytest.mark.parametrize(
    ("class_", "arguments", "consistency"),
    [
        ("SGD", "lr=0.1, momentum=0.9, nesterov=True", "sync"),
        ("Adam", "lr=0.1, amsgrad=True", "sync:continue"),
        ("RMSprop", "lr=0.01, momentum=0.5, centered=True", "sync"),
    ],
)
def test_servers_step_as_torch_does(start_job: StartJob, class_: str, arguments: str, consistency: str) -> None:
    """With groups, schedules of rate and momentum, and parameters that lack a gradient on some workers or all."""
    schedule = ONE_CYCLE.format(more=", cycle_momentum=False" if class_ == "RMSprop" else "")
    script = STEPS.format(class_=class_, arguments=arguments, schedule=schedule, consistency=consistency)
    job = run(start_job, script, "-n", 2, "--servers", 2)
    assert job.wait() == 0, job.stderr
    assert job.stdout.count("as torch") == 2


EMBEDDING = (
    COMMON
    + """
ROWS, COLUMNS = 50, 4
bag = torch.nn.Embedding(ROWS, COLUMNS, sparse=True)
head = torch.nn.Linear(COLUMNS, 2)
model = torch.nn.Sequential(bag, head)
theirs = copy.deepcopy(model)
theirs[0].sparse = False
if ps.rank() > 0:
    bag.weight.data.fill_(9.0)
arguments = {{"lr": 0.1, "lr_decay": 0.01}} if "{class_}" == "Adagrad" else {{"lr": 0.1}}
reference = torch.optim.{class_}(theirs.parameters(), **arguments)
optimizer = ps.ParameterServerOptimizer(
    torch.optim.{class_}(model.parameters(), **arguments), model.named_parameters(), on="servers",
    consistency="{consistency}", sparse_parameters=[bag],
)
numbers = torch.Generator().manual_seed(7)
for step in range(10):
    # Rows of several workers, repeated ones, and batches without any.
    batches = [torch.randint(ROWS, (6,), generator=numbers).repeat(2) for _ in range(ps.size())]
    batches = [batch[: 0 if (step + r) % 4 == 0 else 9] for r, batch in enumerate(batches)]
    averages = [torch.zeros_like(p) for p in theirs.parameters()]
    for batch in batches:
        theirs.zero_grad()
        theirs(batch).square().sum().backward()
        for average, p in zip(averages, theirs.parameters()):
            average += p.grad / ps.size()
    for average, p in zip(averages, theirs.parameters()):
        p.grad = average
    optimizer.zero_grad()
    if step > 0:
        assert close(bag.weight, theirs[0].weight), step
    else:
        ps.broadcast_parameters(model.state_dict())
    model(batches[ps.rank()]).square().sum().backward()
    assert bag.weight.grad.is_sparse
    optimizer.step()
    reference.step()
optimizer.settle()
for parameter, other in zip(model.parameters(), theirs.parameters()):
    assert close(parameter, other)
same_states(optimizer.state_dict(), reference.state_dict())
print("as torch", flush=True)

def refused(gradient):
    before = bag.weight.detach().clone()
    bag.weight.grad = gradient
    try:
        optimizer.step()
    except Exception as error:
        print(f"{{type(error).__name__}}: {{error}}", flush=True)
    assert torch.equal(bag.weight, before)

def sparse(rows, columns=COLUMNS, dtype=torch.float32, of=ROWS):
    return torch.sparse_coo_tensor([rows], torch.ones(len(rows), columns, dtype=dtype), (of, columns))

model.zero_grad()
refused(torch.zeros(ROWS, COLUMNS))
head.weight.grad = torch.zeros(2, COLUMNS).to_sparse()
refused(sparse([1]))
head.weight.grad = None
bag.weight.grad = None
try:
    wrong = sparse([3])
    wrong._indices()[0, 0] = ROWS
    refused(wrong)
    wrong._indices()[0, 0] = -1
    refused(wrong)
except RuntimeError as error:
    print(error)
optimizer.settle()
"""
)


@pytest.mark.parametrize(("class_", "consistency"), [("Adagrad", "sync"), ("SGD", "sync:continue")])
def test_sparse_embeddings_train_as_dense_ones(start_job: StartJob, class_: str, consistency: str) -> None:
    job = run(start_job, EMBEDDING.format(class_=class_, consistency=consistency), "-n", 3, "--servers", 2)
    assert job.wait() == 0, job.stderr
    assert job.stdout.count("as torch") == 3
    assert job.stdout.count("UnsupportedError: the gradient of 0.weight is not sparse by rows") == 3
    assert job.stdout.count("UnsupportedError: the gradient of 1.weight is sparse: tell ParameterServerOptimizer") == 3
    for row in (50, -1):
        message = f"InvalidArgumentError: the gradient of 0.weight is for row {row}, but there are 50"
        assert job.stdout.count(message) == 3


RESUME = (
    COMMON
    + """
model = torch.nn.Sequential(torch.nn.Embedding(20, 3, sparse=True), torch.nn.Linear(3, 2))
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
optimizer = ps.ParameterServerOptimizer(
    optimizer, model.named_parameters(), on="servers", sparse_parameters=[model[0].weight]
)
path, resumes = sys.argv[1], sys.argv[2] == "resume"
if resumes:
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    same_states(optimizer.state_dict(), saved["optimizer"])  # Before the servers have it.
for step in range(4 if resumes else 0, 8):
    optimizer.zero_grad()
    numbers = torch.Generator().manual_seed(10 * step + ps.rank())
    model(torch.randint(20, (5,), generator=numbers)).square().sum().backward()
    optimizer.step()
    if step == 3:
        optimizer.settle()
        state = optimizer.state_dict()
        if ps.rank() == 0:
            torch.save({"model": model.state_dict(), "optimizer": state}, path)
        ps.sum_over_workers([])
optimizer.settle()
values = torch.cat([p.detach().flatten() for p in model.parameters()])
print("parameters", " ".join(float(value).hex() for value in values), flush=True)
"""
)


def test_a_resumed_job_continues_with_the_servers_optimizer(start_job: StartJob, tmp_path: Path) -> None:
    ends = set()
    for how in ("begin", "resume"):
        words = ("-n", 2, "--servers", 2, "--", sys.executable, "-c", RESUME, tmp_path / "saved.pt", how)
        job = start_job(*map(str, words), env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=LONGEST_SECONDS)
        assert job.wait() == 0, job.stderr
        ends.update(re.findall(r"parameters (.*)", job.stdout))
    assert len(ends) == 1


REFUSALS = [
    ("optimizer(torch.optim.SGD, lr=0.1, maximize=True)", "servers' sgd has no option maximize=True; leave it out"),
    ("optimizer(torch.optim.Adam, foreach=True)", "the servers' adam has no option foreach=True"),
    ("optimizer(torch.optim.Adam, capturable=True)", "the servers' adam has no option capturable=True"),
    ("optimizer(torch.optim.Adadelta)", "the servers cannot take the steps of Adadelta: with on='servers'"),
    ("optimizer(Mine)", "the servers cannot take the steps of Mine"),
    ("optimizer(torch.optim.SGD, lr=0.1, consistency='local:3')", "consistency='local:3' is steps that workers take"),
    ("optimizer(torch.optim.SGD, lr=0.1, on='moon')", "on='moon': the optimizer steps on 'workers' or on 'servers'"),
    (
        "optimizer(torch.optim.Adam, sparse_parameters=[weight])",
        "sparse gradients need SGD without momentum, or Adagrad",
    ),
    (
        "optimizer(torch.optim.SGD, lr=0.1, momentum=0.9, sparse_parameters=[weight])",
        "with momentum 0.9 and weight decay",
    ),
    (
        "optimizer(torch.optim.SGD, lr=0.1, sparse_parameters=[torch.ones(2, 2)])",
        "a tensor that the optimizer does not",
    ),
    ("optimizer(torch.optim.SGD, lr=0.1, sparse_parameters=[bias])", "of shape (2,), has no rows"),
    (
        "optimizer(torch.optim.SGD, lr=0.1, sparse_parameters=[weight], on='workers')",
        "sparse_parameters needs on='servers'",
    ),
    *(
        (f"optimizer(torch.optim.SGD, lr=0.1, dtype=torch.{dtype})", f"parameter 0 is of type torch.{dtype} on cpu")
        for dtype in ("float64", "float16", "bfloat16", "complex64")
    ),
]


def test_what_servers_cannot_do_is_refused_at_construction(start_job: StartJob) -> None:
    script = f"""
import torch, gyre.params as ps, gyre.torch as hvd
ps.init()
class Mine(torch.optim.SGD):
    pass

def optimizer(class_, on="servers", consistency="sync", sparse_parameters=(), dtype=torch.float32, **arguments):
    parameters = [weight, bias]
    if dtype != torch.float32:
        parameters = [one.detach().to(dtype).requires_grad_() for one in parameters]
    return ps.ParameterServerOptimizer(
        class_(parameters, **arguments), on=on, consistency=consistency, sparse_parameters=sparse_parameters
    )

weight, bias = torch.nn.Parameter(torch.ones(3, 2)), torch.nn.Parameter(torch.ones(2))
for call in {[call for call, _ in REFUSALS]!r}:
    try:
        eval(call)
    except hvd.Error as error:
        print(f"{{type(error).__name__}}: {{error}}", flush=True)
made = optimizer(torch.optim.SGD, lr=0.1)
weight.grad = torch.ones(3, 2)
made.step()
made.param_groups[0]["momentum"] = 0.5
try:
    made.step()
except hvd.Error as error:
    print(error, flush=True)
"""
    job = run(start_job, script, "-n", 1, "--servers", 1)
    assert job.wait() == 0, job.stderr
    lines = job.stdout.splitlines()
    for (call, message), line in zip(REFUSALS, lines, strict=False):
        assert message in line, call
    assert "whether there is momentum cannot change while the servers hold" in lines[len(REFUSALS)]


def test_workers_whose_tables_differ_are_told(start_job: StartJob) -> None:
    script = """
import torch, gyre.params as ps
ps.init()
bag = torch.nn.Embedding(10 + ps.rank(), 4, sparse=True)
optimizer = ps.ParameterServerOptimizer(
    torch.optim.SGD(bag.parameters(), 0.1), bag.named_parameters(), on="servers", sparse_parameters=[bag])
optimizer.settle()
"""
    job = run(start_job, script, "-n", 2, "--servers", 1)
    assert job.wait() != 0
    assert "workers 0 and 1 have different parameters" in job.stderr
