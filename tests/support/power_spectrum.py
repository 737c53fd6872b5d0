"""What a cosmologist would do without a network: a linear regression of the four parameters on the logarithms of each
volume's power spectra. The measure of gyre-cosmoflow."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gyre.data import Loader, floats, raw

Array = npt.NDArray[np.float64]
RIDGE = 1e-3


def spectra(volume: Array) -> Array:
    """[size, size, size, channels] of counts -> for each channel the power in shells of wave numbers, and the cross
    power with the first channel's; what counting particles adds to the power is taken off."""
    size = volume.shape[0]
    wave = np.fft.fftfreq(size) * size
    shell = np.sqrt(sum(axis**2 for axis in np.meshgrid(wave, wave, wave[: size // 2 + 1], indexing="ij")))
    shell = np.rint(shell).astype(int).ravel()
    shells = size // 2
    counts = np.bincount(shell, minlength=shells + 1)[1 : shells + 1]
    features = []
    for channel in range(volume.shape[3]):
        mean = volume[..., channel].mean()
        modes = np.fft.rfftn(volume[..., channel] / mean - 1).ravel()
        power = np.bincount(shell, weights=np.abs(modes) ** 2)[1 : shells + 1] / counts / size**3
        features.append(np.log(np.maximum(power - 1 / mean, 1e-3)))
        features.append(np.log([volume[..., channel].var() / mean, mean]))
    return np.concatenate(features)


def read(pattern: Path, size: int) -> tuple[Array, Array]:
    loader = Loader(
        str(pattern / "*.tfrecord*"),
        {"x": raw("int16", (size, size, size, 4)), "y": floats(4)},
        batch_size=1,
        shuffle=False,
        records_per_file=1,
    )
    inputs, targets = [], []
    for batch in loader:
        inputs.append(spectra(np.asarray(batch["x"])[0].astype(np.float64)))
        targets.append(np.asarray(batch["y"])[0].astype(np.float64))
    return np.stack(inputs), np.stack(targets)


def mean_absolute_errors(folder: Path, size: int) -> tuple[float, float]:
    """Over the validation set: of the regression, and of answering the training set's mean."""
    inputs, targets = read(folder / "train", size)
    centre, spread = inputs.mean(0), inputs.std(0) + 1e-9

    def design(values: Array) -> Array:
        scaled = (values - centre) / spread
        return np.concatenate([np.ones((len(scaled), 1)), scaled, scaled**2], axis=1)

    known = design(inputs)
    weights = np.linalg.solve(known.T @ known + RIDGE * len(known) * np.eye(known.shape[1]), known.T @ targets)
    others, wanted = read(folder / "validation", size)
    regression = np.abs(design(others) @ weights - wanted).mean()
    return float(regression), float(np.abs(targets.mean(0) - wanted).mean())


if __name__ == "__main__":
    found, trivial = mean_absolute_errors(Path(sys.argv[1]), int(sys.argv[2]))
    print(f"power spectra: MAE {found:.4f}; the mean of the targets: {trivial:.4f}")
