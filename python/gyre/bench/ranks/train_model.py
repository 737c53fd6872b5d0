"""A few training steps of a model on random data, for `gyre explain --model`."""

from __future__ import annotations

import argparse

import torch
from torch import nn

import gyre.torch as hvd
from gyre.bench.models import MODELS

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--steps", type=int, required=True)


def main() -> None:
    arguments = parser.parse_args()
    hvd.init()
    model = MODELS[arguments.model]
    outputs = model.step_outputs or model.outputs
    network = model.make(model.step_image_size or model.image_size, outputs)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(network.parameters(), 1e-3), network.named_parameters())
    inputs = torch.randn(model.batch_size, *model.sample_shape(model.step_image_size or model.image_size))
    targets = torch.randint(outputs, (model.batch_size,))
    for _ in range(arguments.steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


if __name__ == "__main__":
    main()
