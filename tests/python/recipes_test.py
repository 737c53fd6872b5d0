"""docs/guide/recipes.md: people copy these loops, so each runs as it stands there and leaves one model on all ranks."""

import re
from pathlib import Path
from typing import Any

import gyre.torch as hvd
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - everybody's name for it
from gyre.errors import CallOrderError
from torch import nn

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "recipes.md"
RECIPES = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


def run_recipe(marker: str, **names: Any) -> dict[str, Any]:
    """Runs the one recipe that contains `marker`; returns its names afterwards."""
    (recipe,) = [text for text in RECIPES if marker in text]
    space = {"torch": torch, "F": F, "hvd": hvd, **names}
    exec(recipe, space)
    return space


def same_on_all_ranks(*models: nn.Module) -> None:
    for model in models:
        weights = nn.utils.parameters_to_vector(model.parameters()).detach().view(1, -1)
        everybody = hvd.allgather(weights)
        torch.testing.assert_close(everybody, weights.expand_as(everybody), rtol=0, atol=0)


def started_model() -> nn.Sequential:
    """Weights of this rank alone."""
    torch.manual_seed(hvd.rank())
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.randn(5, 4), torch.randint(3, (5,))) for _ in range(count)]


def two_optimizers() -> None:
    hvd.init()
    torch.manual_seed(hvd.rank())
    generator, discriminator = nn.Linear(4, 2), nn.Linear(2, 1)
    real = [torch.randn(6, 2) for _ in range(5)]
    run_recipe("optimizer_g", generator=generator, discriminator=discriminator, batches=real)
    same_on_all_ranks(generator, discriminator)


def uneven_data() -> None:
    hvd.init()
    model = started_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters()), model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    done = run_recipe("hvd.join()", model=model, optimizer=optimizer, batches=batches(2 + 2 * hvd.rank()))
    assert done["last"] == hvd.size() - 1
    same_on_all_ranks(model)


def frozen_parameters() -> None:
    hvd.init()
    model = started_model()
    before = hvd.broadcast(model[0].weight.detach().clone(), 0)
    run_recipe("requires_grad_(False)\noptimizer =", model=model, batches=batches(3))
    same_on_all_ranks(model)
    assert not torch.equal(model[0].weight, before), "it was unfrozen, and did not train"


def evaluation() -> None:
    hvd.init()
    model = started_model()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    torch.manual_seed(0)
    images, labels = torch.randn(20, 4), torch.randint(3, (20,))
    alone = run_recipe("if hvd.rank() == 0", model=model, test_images=images, test_labels=labels)["accuracy"]
    first, last = (0, 7) if hvd.rank() == 0 else (7, 20)
    shares = {"share_images": images[first:last], "share_labels": labels[first:last]}
    assert run_recipe("op=hvd.Sum", model=model, **shares)["accuracy"] == pytest.approx(alone)


def gradients_of_another_optimizers_loss() -> None:
    """Both errors name the same ways out, and each of these works."""
    hvd.init()
    first, second = nn.Linear(2, 2), nn.Linear(2, 1)
    optimizers = [
        hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
        for model in (first, second)
    ]

    def backward() -> None:
        second(first(torch.ones(1, 2))).sum().backward()

    backward()
    optimizers[0].step()
    ways_out = r"requires_grad_\(False\).*optimizer\.synchronize\(\), then optimizer\.zero_grad\(\)"
    with pytest.raises(CallOrderError, match=ways_out):
        optimizers[1].zero_grad()
    with pytest.raises(CallOrderError, match=ways_out):
        backward()
    optimizers[1].synchronize()
    optimizers[1].zero_grad()
    optimizers[0].synchronize()
    optimizers[0].zero_grad()
    second.requires_grad_(False)
    backward()
    optimizers[0].step()
    second.requires_grad_(True)
    optimizers[1].zero_grad()


@pytest.mark.parametrize(
    "recipe", [two_optimizers, uneven_data, frozen_parameters, evaluation, gradients_of_another_optimizers_loss]
)
def test_a_recipe_runs_as_it_is_written(run_ranks: Any, recipe: Any) -> None:
    run_ranks(2, recipe)
