"""Trains a little network with Hugging Face Accelerate, over one backend after the other as it is told."""

import sys

import gyre.distributed  # noqa: F401  Makes the backend known where gyre is no installed package.
import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from gyre.bench.ranks.groups import leave, never_take_apart
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(backend: str) -> None:
    dist.init_process_group(backend)  # Accelerate takes a group that is there, whatever its backend.
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    inputs = torch.randn(64, 8)
    data = DataLoader(TensorDataset(inputs, (inputs.sum(1) > 0).long()), batch_size=8)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for _ in range(2):
        for batch, labels in data:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(batch), labels)
            accelerator.backward(loss)
            optimizer.step()
    losses = accelerator.gather_for_metrics(loss.detach().view(1))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        weights = sum(parameter.double().sum().item() for parameter in model.parameters())
        backend = dist.get_backend()
        print(f"trained over {backend}: {accelerator.num_processes} ranks, {losses.sum()}, {weights}")
    never_take_apart(dist.group.WORLD)
    accelerator.end_training()
    # What would end with the process.
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


for name in sys.argv[1:]:
    train(name)
leave()
