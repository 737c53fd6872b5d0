"""torch.utils.data.DataLoader over an image folder, decoded by Pillow: like torchvision's example, without its
package. JPEGs to augmented 224 x 224 float32."""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

_LONGEST_SOCKET_NAME = 107
_SOCKET_IN_FOLDER = "/pymp-12345678/listener-12345678"


def random_area(width: int, height: int) -> tuple[int, int, int, int]:
    """torchvision's RandomResizedCrop.get_params, as a box of Pillow's."""
    for _ in range(10):
        area = width * height * float(torch.empty(1).uniform_(0.08, 1.0))
        aspect = math.exp(float(torch.empty(1).uniform_(math.log(3 / 4), math.log(4 / 3))))
        wide, high = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < high <= height:
            left = int(torch.randint(0, width - wide + 1, (1,)))
            top = int(torch.randint(0, height - high + 1, (1,)))
            return left, top, left + wide, top + high
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, (width + side) // 2, (height + side) // 2


def augmented(opened: Image.Image) -> torch.Tensor:
    """A random part of it, flipped or not, as 224 x 224 float32."""
    whole = opened.convert("RGB")
    part = whole.crop(random_area(*whole.size)).resize((224, 224), Image.Resampling.BILINEAR)
    if float(torch.rand(1)) < 0.5:
        part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    values = torch.from_numpy(np.array(part)).permute(2, 0, 1).contiguous().to(torch.float32).div(255)
    return values.sub_(MEAN).div_(STD)


class Images(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, folder: Path) -> None:
        classes = sorted(path for path in folder.iterdir() if path.is_dir())
        self.samples = [(path, label) for label, place in enumerate(classes) for path in sorted(place.iterdir())]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.samples[index]
        with Image.open(path) as opened:
            return augmented(opened), label


def keep_socket_names_short() -> None:
    """A DataLoader's worker that cannot make its socket in the folder for temporary files loses its batches silently,
    and the loader waits forever or ends early. Workers find the other folder whether they are forked or spawned."""
    if len(tempfile.gettempdir() + _SOCKET_IN_FOLDER) > _LONGEST_SOCKET_NAME:
        os.environ["TMPDIR"] = tempfile.tempdir = "/tmp"


def measure(loader: DataLoader[Any], batch: int, seconds: float) -> float:
    """Images per second of whole epochs; the first one starts the workers and warms up."""
    images = 0
    spent = 0.0
    epoch = 0
    while spent < seconds:
        began = time.perf_counter()
        batches = sum(1 for _ in loader)
        if epoch > 0:
            spent += time.perf_counter() - began
            images += batches * batch
        epoch += 1
    return images / spent


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_socket_names_short()
    loader = DataLoader(
        Images(options.folder),
        batch_size=options.batch,
        shuffle=True,
        num_workers=options.threads,
        drop_last=True,
        persistent_workers=True,
    )
    print(json.dumps({"per_second": measure(loader, options.batch, options.seconds)}))


if __name__ == "__main__":
    main()
