"""Trains a little network with PyTorch Lightning, over one backend after the other as it is told."""

import sys
from typing import Any

import gyre.distributed  # noqa: F401  Makes the backend known where gyre is no installed package.
import pytorch_lightning as lightning
import torch
from gyre.bench.ranks.groups import leave, never_take_apart
from gyre.lightning import MetricsLogger
from pytorch_lightning.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Linear(8, 2)

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.network(batch[0]), batch[1])
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def train(backend: str) -> None:
    lightning.seed_everything(1)
    inputs = torch.randn(64, 8)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        max_epochs=2,
        strategy=DDPStrategy(process_group_backend=backend),
        logger=MetricsLogger(),
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Model()
    trainer.fit(model, DataLoader(TensorDataset(inputs, (inputs.sum(1) > 0).long()), batch_size=8))
    if trainer.is_global_zero:
        weights = sum(parameter.double().sum().item() for parameter in model.parameters())
        print(f"trained over {torch.distributed.get_backend()}: {trainer.world_size} ranks, {weights}")
    never_take_apart(torch.distributed.group.WORLD)
    torch.distributed.destroy_process_group()


for name in sys.argv[1:]:
    train(name)
leave()
