"""Lightning and Accelerate take gyre.data.Loader where they take a DataLoader: rank 0 prints which samples the ranks
saw in each epoch."""

import sys
from typing import Any

import gyre.distributed  # noqa: F401  Makes the backend known where gyre is no installed package.
import pytorch_lightning as lightning
import torch
import torch.distributed as dist
from accelerate import Accelerator
from gyre.bench.ranks.groups import leave
from pytorch_lightning.strategies import DDPStrategy
from torch import nn

from gyre.data import Loader, floats, ints

EPOCHS = 2


def loader(files: str) -> Loader:
    return Loader(files, {"values": floats(8), "label": ints(), "index": ints()}, batch_size=4, seed=3, threads=1)


def report(framework: str, epochs: list[list[int]]) -> None:
    """All ranks' samples of each epoch, in the order in which they were seen."""
    seen: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(seen, epochs)
    if dist.get_rank() == 0:
        for epoch in range(EPOCHS):
            print(f"{framework} epoch {epoch}: {[ranks[epoch] for ranks in seen]}")


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Linear(8, 2)
        self.seen: list[list[int]] = []

    def on_train_epoch_start(self) -> None:
        self.seen.append([])

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        self.seen[-1] += batch["index"][: batch.counted].tolist()
        return nn.functional.cross_entropy(self.network(batch["values"]), batch["label"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def with_lightning(files: str) -> None:
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        max_epochs=EPOCHS,
        strategy=DDPStrategy(process_group_backend="gyre"),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Model()
    trainer.fit(model, loader(files))
    report("lightning", model.seen)


def with_accelerate(files: str) -> None:
    accelerator = Accelerator(cpu=True)  # Takes the group that is there.
    model: Any = nn.Linear(8, 2)
    model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader(files))
    seen: list[list[int]] = []
    for _ in range(EPOCHS):
        seen.append([])
        for batch in data:
            seen[-1] += batch["index"][: batch.counted].tolist()
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(model(batch["values"]), batch["label"]))
            optimizer.step()
    report("accelerate", seen)


with_lightning(sys.argv[1])
with_accelerate(sys.argv[1])
dist.destroy_process_group()
leave()
