"""A worker that does what a test tells it to, over a socket: tests/conformance/params."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
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
        class_(parameters, **options["arguments"]), consistency=options["consistency"]
    )
    for parameter, value in zip(parameters, options["first"], strict=True):
        parameter.data.copy_(torch.tensor(value).reshape(parameter.shape))
    return parameters, optimizer


def step(parameters: list[torch.nn.Parameter], optimizer: Any, command: dict[str, Any]) -> None:
    optimizer.zero_grad()
    for parameter, gradient in zip(parameters, command["gradients"], strict=True):
        parameter.grad = None if gradient is None else torch.tensor(gradient).reshape(parameter.shape)
    if command["dies"]:
        optimizer.register_step_post_hook(lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    skip = contextlib.nullcontext()
    if command["most"] is not None:
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(parameters, command["most"])
        skip = optimizer.skip_synchronize()
    with skip:
        if command["closure"]:
            optimizer.step(lambda: torch.zeros(()))
        else:
            optimizer.step()


def main() -> None:
    torch.set_num_threads(1)
    ps.init()
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
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


main()
