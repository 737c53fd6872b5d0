"""Trains a little network with PyTorch Lightning over the backend that it is told."""

import sys
from typing import Any

import pytorch_lightning as lightning
import torch
from pytorch_lightning.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if sys.argv[1] == "gyre":
    import gyre.distributed  # noqa: F401  Makes the backend known where gyre is no installed package.


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


lightning.seed_everything(1)
inputs = torch.randn(64, 8)
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=2,
    max_epochs=2,
    strategy=DDPStrategy(process_group_backend=sys.argv[1]),
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
model = Model()
trainer.fit(model, DataLoader(TensorDataset(inputs, (inputs.sum(1) > 0).long()), batch_size=8))
if trainer.is_global_zero:
    weights = sum(parameter.double().sum().item() for parameter in model.parameters())
    print(f"trained over {torch.distributed.get_backend()}: {trainer.world_size} ranks, {weights}")
