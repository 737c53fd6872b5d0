"""Trains a small network through parameter servers, or through allreduce: the launcher's --servers decides.

    gyre run -n 4 --servers 2 -- python examples/04_parameter_servers.py --consistency async
    gyre run -n 4 -- python examples/04_parameter_servers.py

Needs scikit-learn.
"""

import argparse

import torch
from gyre.datasets import digits
from torch import nn
from torch.nn import functional

import gyre.params as ps

parser = argparse.ArgumentParser()
parser.add_argument("--consistency", default="sync", help="sync, backup:1, async, bounded:4, local:8, …")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch", type=int, default=32, help="images per worker and step")
parser.add_argument("--learning-rate", type=float, default=0.05)
arguments = parser.parse_args()

ps.init()  # This process becomes a worker of the job.
rank, size = ps.rank(), ps.size()
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(3072, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=arguments.learning_rate)
optimizer = ps.ParameterServerOptimizer(optimizer, model.named_parameters(), consistency=arguments.consistency)
ps.broadcast_parameters(model.state_dict())

data = digits()
train_images = torch.from_numpy(data.train_images).view(-1, 3072).float() / 255
test_images = torch.from_numpy(data.test_images).view(-1, 3072).float() / 255
train_labels, test_labels = torch.from_numpy(data.train_labels), torch.from_numpy(data.test_labels)

for epoch in range(1, arguments.epochs + 1):
    # Every worker shuffles alike and takes its own share of each step's images; the last few wait for another epoch.
    order = torch.randperm(len(train_images), generator=torch.Generator().manual_seed(epoch))
    for step in order.split(arguments.batch * size):
        if len(step) < arguments.batch * size:
            continue
        mine = step[rank::size]
        optimizer.zero_grad()
        functional.cross_entropy(model(train_images[mine]), train_labels[mine]).backward()
        optimizer.step()  # The servers take part here.
    optimizer.settle()  # All workers have the same parameters now.
    with torch.no_grad():
        accuracy = (model(test_images).argmax(1) == test_labels).float().mean().item()
    if rank == 0:
        print(f"epoch {epoch}: test accuracy {accuracy:.4f}", flush=True)

ps.shutdown()
