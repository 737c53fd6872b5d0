"""The networks of Gyre's training programs in PyTorch, and their trained weights.

    from gyre.models import load_model

    model = load_model("/tmp/resnet")  # A run's folder, a checkpoint, or the output of `gyre export`.
    logits = model.network(images)

`gyre export` writes a run's network for others to use, `gyre score` predicts with it.
"""

from gyre.models.networks import Cifar10Cnn, CosmoFlow, ResNet, Vgg16
from gyre.models.saved import Description, SavedModel, load_model

__all__ = ["Cifar10Cnn", "CosmoFlow", "Description", "ResNet", "SavedModel", "Vgg16", "load_model"]
