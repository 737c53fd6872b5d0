"""Trains a little network with Hugging Face's Trainer, over one backend after the other as it is told."""

import sys
import tempfile

import gyre.distributed  # noqa: F401  Makes the backend known where gyre is no installed package.
import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState, GradientState
from gyre.bench.ranks.groups import leave, never_take_apart
from torch import nn
from transformers import Trainer, TrainingArguments


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.network(inputs)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def train(backend: str) -> None:
    dist.init_process_group(backend)  # The Trainer takes a group that is there, whatever its backend.
    torch.manual_seed(3)
    inputs = torch.randn(64, 8)
    data = [{"inputs": row, "labels": (row.sum() > 0).long()} for row in inputs]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            num_train_epochs=2,
            per_device_train_batch_size=8,
            learning_rate=0.01,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        trainer = Trainer(model=Model(), args=arguments, train_dataset=data)
        steps = trainer.train().global_step
    if trainer.is_world_process_zero():
        weights = sum(parameter.double().sum().item() for parameter in trainer.model.parameters())
        print(f"trained over {dist.get_backend()}: {arguments.world_size} ranks, {steps} steps, {weights}")
    never_take_apart(dist.group.WORLD)
    dist.destroy_process_group()
    # What would end with the process.
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


for name in sys.argv[1:]:
    train(name)
leave()
