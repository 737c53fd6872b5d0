"""A worker that does what a test tells it to, over a socket: tests/conformance/params. main() runs in a fork of a
process that has imported torch."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from typing import Any

import torch

import gyre.params as ps


def build(options: dict[str, Any]) -> tuple[list[torch.nn.Parameter], Any]:
    """Other values on each worker: the first one's will count."""
    parameters = [torch.nn.Parameter(torch.empty(shape)) for shape in options["shapes"]]
    for frozen in options["frozen"]:
        parameters[frozen].requires_grad_(False)
    class_ = getattr(torch.optim, options["optimizer"])
    optimizer = ps.ParameterServerOptimizer(
        class_(parameters, **options["arguments"]),
        consistency=options["consistency"],
        on=options["on"],
        sparse_parameters=[parameters[number] for number in options["tables"]],
    )
    for parameter, value in zip(parameters, options["first"], strict=True):
        parameter.data.copy_(torch.tensor(value).reshape(parameter.shape))
    return parameters, optimizer


def gradient_of(parameter: torch.nn.Parameter, gradient: Any) -> torch.Tensor | None:
    """Of a table: rows, some of them repeated, and the values of each."""
    if not isinstance(gradient, dict):
        return None if gradient is None else torch.tensor(gradient).reshape(parameter.shape)
    rows, values = torch.tensor(gradient["rows"], dtype=torch.int64), torch.tensor(gradient["values"])
    return torch.sparse_coo_tensor(rows[None], values.reshape(-1, parameter.shape[1]), parameter.shape)


def step(parameters: list[torch.nn.Parameter], optimizer: Any, command: dict[str, Any]) -> None:
    optimizer.zero_grad()
    for parameter, gradient in zip(parameters, command["gradients"], strict=True):
        parameter.grad = gradient_of(parameter, gradient)
    if command["dies"]:
        served = command["served"]  # There the step is the exchange: death comes before it.
        register = optimizer.register_step_pre_hook if served else optimizer.register_step_post_hook
        register(lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    skip = contextlib.nullcontext()
    if command["most"] is not None:
        optimizer.synchronize()
        clip(parameters, command["most"])
        skip = optimizer.skip_synchronize()
    with skip:
        if command["closure"]:
            optimizer.step(lambda: torch.zeros(()))
        else:
            optimizer.step()


def clip(parameters: list[torch.nn.Parameter], most: float) -> None:
    """torch's clip_grad_norm_, which refuses sparse gradients."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    values = [gradient.coalesce().values() if gradient.is_sparse else gradient for gradient in gradients]
    norm = float(sum(value.square().sum() for value in values)) ** 0.5
    if norm > most:
        for gradient in gradients:
            gradient.mul_(most / (norm + 1e-6))


def main() -> None:
    torch.set_num_threads(1)
    ps.init()
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ["GYRE_TEST_COMMANDS"])
    commands, answers = connection.makefile("r", encoding="utf-8"), connection.makefile("w", encoding="utf-8")
    answers.write(json.dumps(ps.rank()) + "\n")
    answers.flush()
    first = json.loads(commands.readline())
    if first.get("do") == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    parameters, optimizer = build(first)
    answers.write("{}\n")
    answers.flush()
    for line in commands:
        command = json.loads(line)
        match command["do"]:
            case "step":
                step(parameters, optimizer, command)
            case "broadcast":
                ps.broadcast_parameters([(str(number), parameter.data) for number, parameter in enumerate(parameters)])
            case "settle":
                optimizer.settle()
            case "change":
                parameters[command["tensor"]].data.fill_(command["value"])
            case "set":  # By the program, for everybody.
                parameters[command["tensor"]].data.fill_(command["value"])
                ps.broadcast_parameters([(str(number), parameter.data) for number, parameter in enumerate(parameters)])
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "end":
                break
        values = [parameter.detach().flatten().tolist() for parameter in parameters]
        answers.write(json.dumps({"values": values, "dropped": optimizer.dropped_steps}) + "\n")
        answers.flush()
    ps.shutdown()
