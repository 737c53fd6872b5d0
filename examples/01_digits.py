"""Trains the CIFAR-10 network on scikit-learn's hand-written digits, on several ranks.

    gyre run -n 4 -- python examples/01_digits.py

Alone (`python examples/01_digits.py`) it is a job of one rank. Needs scikit-learn.
"""

import argparse
import time

import gyre.torch as hvd
import torch
from gyre.datasets import digits
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch", type=int, default=32, help="images per rank and step")
parser.add_argument("--learning-rate", type=float, default=5e-4)
arguments = parser.parse_args()

hvd.init()  # This process becomes a rank of the job.
rank, size = hvd.rank(), hvd.size()
torch.manual_seed(1 + rank)  # Dropout differs between ranks; the weights are made equal below.

model = nn.Sequential(
    *(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)),
    *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)),
    *(nn.Flatten(), nn.Linear(2304, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, 10)),
)
for parameter in model.parameters():
    nn.init.xavier_uniform_(parameter) if parameter.dim() > 1 else nn.init.zeros_(parameter)

optimizer = torch.optim.RMSprop(model.parameters(), lr=arguments.learning_rate, alpha=0.9, eps=1e-7)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (1.0 + 1e-6 * step))
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)


def tensors(images, labels):
    return torch.from_numpy(images).view(-1, 3, 32, 32).float() / 255, torch.from_numpy(labels)


data = digits()
train_images, train_labels = tensors(data.train_images, data.train_labels)
test_images, test_labels = tensors(data.test_images, data.test_labels)

for epoch in range(1, arguments.epochs + 1):
    began = time.perf_counter()
    # Every rank shuffles alike and takes its own share of each step's images; the last few wait for another epoch.
    order = torch.randperm(len(train_images), generator=torch.Generator().manual_seed(epoch))
    steps = [step for step in order.split(arguments.batch * size) if len(step) == arguments.batch * size]
    model.train()
    for step in steps:
        mine = step[rank::size]
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(train_images[mine]), train_labels[mine])
        loss.backward()  # Gradients are exchanged while it runs,
        optimizer.step()  # and averaged over all ranks when this begins.
        decay.step()
    model.eval()
    with torch.no_grad():
        correct = (model(test_images[rank::size]).argmax(1) == test_labels[rank::size]).sum()
    accuracy = hvd.allreduce(correct, op=hvd.Sum).item() / len(test_labels)
    if rank == 0:
        speed = sum(map(len, steps)) / (time.perf_counter() - began)
        print(f"epoch {epoch:2d}  loss {loss:.4f}  test accuracy {accuracy:.1%}  {speed:.0f} images/s", flush=True)
