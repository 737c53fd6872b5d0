"""One rank of tests/conformance/optimizer in Python: the same as optimizer_rank.cc there. main() runs in a fork of a
process that has imported torch."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import gyre.torch as hvd
import torch


class Case:
    """One case of the file, which this rank plays."""

    def __init__(self, chosen: dict[str, Any]) -> None:
        self.chosen = chosen
        self.rank = hvd.rank()
        self.parameters: list[torch.nn.Parameter] = []
        for shape, values in zip(chosen["shapes"], chosen["first"][self.rank], strict=True):
            value = torch.tensor(values).reshape(shape)
            if value.dim() == 4:
                value = value.contiguous(memory_format=torch.channels_last)
            self.parameters.append(torch.nn.Parameter(value))
        for i in chosen["frozen"]:
            self.parameters[i].requires_grad_(False)
        self.buffer = torch.full((2,), float(self.rank + 1))
        self.count = torch.tensor(self.rank + 7)
        named = [(f"p{i}", parameter) for i, parameter in enumerate(self.parameters)]
        named.append(("tied", self.parameters[0]))
        arguments = dict(chosen["optimizer"])
        class_ = getattr(torch.optim, arguments.pop("class"))
        if class_ is torch.optim.LBFGS:
            arguments["max_iter"] = 3
        inner = class_(self.parameters, **arguments)
        self.is_lbfgs = isinstance(inner, torch.optim.LBFGS)
        if self.rank == 0:
            self.resume(inner)
        self.optimizer: Any = hvd.DistributedOptimizer(inner, named, backward_passes_per_step=chosen["passes"])
        hvd.broadcast_parameters([*named[:-1], ("buffer", self.buffer), ("count", self.count)], root_rank=0)
        hvd.broadcast_optimizer_state(self.optimizer, root_rank=0)
        self.optimizer.zero_grad()

    def resume(self, inner: torch.optim.Optimizer) -> None:
        for gradients in self.chosen["resumed"]:
            if self.is_lbfgs:

                def closure(gradients: Any = gradients) -> torch.Tensor:
                    inner.zero_grad()
                    return self.backward(gradients)

                inner.step(closure)
                continue
            for parameter, values in zip(self.parameters, gradients, strict=True):
                parameter.grad = None if values is None else torch.tensor(values).reshape(parameter.shape)
            inner.step()
        inner.zero_grad()
        if "new_rate" in self.chosen:
            inner.param_groups[0]["lr"] = self.chosen["new_rate"]

    def backward(self, gradients: list[Any]) -> torch.Tensor:
        loss = torch.zeros(())
        for parameter, values in zip(self.parameters, gradients, strict=True):
            if values is None or not parameter.requires_grad:
                continue
            given = torch.tensor(values).reshape(parameter.shape)
            loss = loss + ((parameter - given).square().sum() * 0.5 if self.is_lbfgs else (parameter * given).sum())
        if loss.requires_grad:
            loss.backward()
        return loss

    def passes(self, step: dict[str, Any]) -> torch.Tensor:
        self.optimizer.zero_grad(set_to_none=step["set_to_none"])
        return [self.backward(gradients) for gradients in step["gradients"][self.rank]][-1]

    def take(self, step: dict[str, Any]) -> None:
        for i in step["thawed"]:
            self.parameters[i].requires_grad_(True)
        for i in step["frozen"]:
            self.parameters[i].requires_grad_(False)
        if step["way"] == "closure":
            self.optimizer.step(lambda: self.passes(step))
            return
        self.passes(step)
        if step["way"] == "plain":
            self.optimizer.step()
            return
        self.optimizer.synchronize()
        if step["way"] == "left out":
            self.optimizer.zero_grad(set_to_none=step["set_to_none"])
            return
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(0.5)
        with self.optimizer.skip_synchronize():
            self.optimizer.step()

    def state(self) -> dict[str, Any]:
        return {
            "values": [parameter.detach().reshape(-1).tolist() for parameter in self.parameters],
            "defined": [parameter.grad is not None for parameter in self.parameters],
            "buffers": [self.buffer.tolist(), [float(self.count)]],
        }

    def play(self) -> list[dict[str, Any]]:
        found = [self.state()]
        for step in self.chosen["steps"]:
            self.take(step)
            found.append(self.state())
        return found


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    cases = json.loads(Path(os.environ["GYRE_TEST_CASES"]).read_text())
    found = [Case(chosen).play() for chosen in cases]
    Path(os.environ["GYRE_TEST_FOUND"]).write_text(json.dumps(found))
    hvd.shutdown()
