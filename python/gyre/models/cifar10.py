"""The CIFAR-10 network of Keras' examples/cifar10_cnn.py, with the names of gyre-cifar10's checkpoints. This file needs
only PyTorch."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class Cifar10Cnn(nn.Module):
    """Images [n, 3, size, size], values 0 to 1 -> logits [n, classes]."""

    def __init__(self, image_size: int = 32, classes: int = 10) -> None:
        super().__init__()
        if image_size < 10:
            raise ValueError(f"images of {image_size} pixels are too small for four convolutions and two poolings")
        pooled = ((image_size - 2) // 2 - 2) // 2
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 32, 3)
        self.conv3 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv4 = nn.Conv2d(64, 64, 3)
        self.dense1 = nn.Linear(64 * pooled**2, 512)
        self.dense2 = nn.Linear(512, classes)
        self.after_convolutions = nn.Dropout(0.25)
        self.after_dense = nn.Dropout(0.5)

    def forward(self, images: Tensor) -> Tensor:
        x = functional.relu(self.conv2(functional.relu(self.conv1(images))))
        x = self.after_convolutions(functional.max_pool2d(x, 2))
        x = functional.relu(self.conv4(functional.relu(self.conv3(x))))
        x = self.after_convolutions(functional.max_pool2d(x, 2))
        x = self.after_dense(functional.relu(self.dense1(x.flatten(1))))
        logits: Tensor = self.dense2(x)
        return logits
