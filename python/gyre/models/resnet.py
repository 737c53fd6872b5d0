"""ResNet with bottleneck blocks (He et al., arXiv 1512.03385), with the names of torchvision and of gyre-resnet50's
checkpoints. This file needs only PyTorch."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

_WIDTHS = (64, 128, 256, 512)
_EXPANSION = 4  # A block's output has this many times its width.
BLOCKS = {14: (1, 1, 1, 1), 26: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int, stride: int, halves_first: bool, projection: bool) -> None:
        super().__init__()
        out = width * _EXPANSION
        self.conv1 = nn.Conv2d(channels, width, 1, stride if halves_first else 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1 if halves_first else stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.downsample = (
            nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)) if projection else None
        )

    def forward(self, inputs: Tensor) -> Tensor:
        shortcut = inputs if self.downsample is None else self.downsample(inputs)
        x = functional.relu(self.bn1(self.conv1(inputs)))
        x = functional.relu(self.bn2(self.conv2(x)))
        return functional.relu(self.bn3(self.conv3(x)) + shortcut)


class ResNet(nn.Module):
    """Images [n, 3, height, width], normalised -> logits [n, classes].

    version: "v1" halves the image in a stage's first 1x1 convolution, "v1.5" in its 3x3 convolution.
    """

    def __init__(self, depth: int = 50, version: str = "v1.5", classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, _WIDTHS[0], 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(_WIDTHS[0])
        channels = _WIDTHS[0]
        stages = []
        for stage, (width, count) in enumerate(zip(_WIDTHS, BLOCKS[depth], strict=True)):
            blocks = []
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(Bottleneck(channels, width, stride, version == "v1", index == 0))
                channels = width * _EXPANSION
            stages.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.fc = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = functional.relu(self.bn1(self.conv1(images)))
        x = functional.max_pool2d(x, 3, 2, 1)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits
