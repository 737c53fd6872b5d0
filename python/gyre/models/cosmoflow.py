"""The CosmoFlow network of MLPerf HPC v1.0, with the names of gyre-cosmoflow's checkpoints. This file needs only
PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

_SLOPE = 0.3  # Keras' LeakyReLU.
_OUTPUT = 1.2  # The targets lie between -1 and 1, which tanh alone never reaches.


class CosmoFlow(nn.Module):
    """Volumes [n, channels, size, size, size] -> the cosmological parameters [n, targets], scaled to -1 to 1."""

    def __init__(
        self,
        size: int = 128,
        channels: int = 4,
        convolutions: int = 5,
        conv_size: int = 32,
        kernel_size: int = 2,
        fc1_size: int = 128,
        fc2_size: int = 64,
        targets: int = 4,
    ) -> None:
        super().__init__()
        self.convolutions = convolutions
        for layer in range(convolutions):
            out = conv_size << layer
            # If a kernel of even size needs one more voxel on one side, it is at the end, as in TensorFlow.
            self.add_module(f"conv{layer + 1}", nn.Conv3d(channels, out, kernel_size, padding="same"))
            channels = out
        self.fc1 = nn.Linear(channels * (size >> convolutions) ** 3, fc1_size)
        self.fc2 = nn.Linear(fc1_size, fc2_size)
        self.out = nn.Linear(fc2_size, targets)

    def forward(self, volumes: Tensor) -> Tensor:
        x = volumes
        for layer in range(self.convolutions):
            x = self.get_submodule(f"conv{layer + 1}")(x)
            x = functional.max_pool3d(functional.leaky_relu(x, _SLOPE), 2)
        x = functional.leaky_relu(self.fc1(x.flatten(1)), _SLOPE)
        x = functional.leaky_relu(self.fc2(x), _SLOPE)
        return torch.tanh(self.out(x)) * _OUTPUT
