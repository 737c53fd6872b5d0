"""Synthetic volumes in the layout of CosmoFlow's data set.

A volume is a Gaussian random field with a power spectrum of cold dark matter, made lognormal, grown to four redshifts,
and sampled as particle counts. The four numbers to predict shape the spectrum (matter density, spectral index, Hubble
constant) and its amplitude (sigma8). Sources: Bardeen, Bond, Kaiser, Szalay, ApJ 304 (1986), for the transfer function;
Carroll, Press, Turner, ARA&A 30 (1992), for the growth factor; Coles and Jones, MNRAS 248 (1991), for the lognormal
model.

Files: FOLDER/train and FOLDER/validation, one Example each, as in the set's version 1.0: `x` the counts as int16,
[size, size, size, 4], `y` the four parameters scaled to -1 … 1. Names end in _000 … _063, as the real set's do.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gyre.data import write_tfrecords
from gyre.datasets.errors import DatasetError
from gyre.errors import Error

Field = npt.NDArray[np.float32]

REDSHIFTS = (0.0, 0.5, 1.5, 3.0)
BOX_MPC = 128.0  # Per h; independent of the number of voxels.
SMOOTHING_MPC = 2.0  # With smaller voxels most would be empty, and some would hold thousands.
CUBES_PER_UNIVERSE = 64
RANGES = {"omega_m": (0.25, 0.35), "sigma_8": (0.6, 1.0), "n_s": (0.8, 1.1), "h": (0.55, 0.85)}
# Streams of one seed: for a volume's parameters and for its field, and for each set.
SETS = ("train", "validation")


@dataclass(frozen=True)
class Universe:
    omega_m: float
    sigma_8: float
    n_s: float
    h: float

    def scaled(self) -> list[float]:
        """From -1 to 1 each."""
        return [2 * (getattr(self, name) - low) / (high - low) - 1 for name, (low, high) in RANGES.items()]


def generator(seed: int, which: int, index: int) -> np.random.Generator:
    """For one volume only, so that it does not matter which process makes it, or in which order."""
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, index, which]))


def draw_universe(random: np.random.Generator) -> Universe:
    return Universe(**{name: float(random.uniform(low, high)) for name, (low, high) in RANGES.items()})


def power_spectrum(k: npt.NDArray[np.float64], universe: Universe) -> npt.NDArray[np.float64]:
    """The power spectrum of the density today, up to a factor; `k` in h/Mpc, 0 gives 0."""
    q = np.maximum(k, 1e-12) / (universe.omega_m * universe.h)
    transfer = np.log1p(2.34 * q) / (2.34 * q)
    transfer *= (1 + 3.89 * q + (16.1 * q) ** 2 + (5.46 * q) ** 3 + (6.71 * q) ** 4) ** -0.25
    return np.where(k > 0, np.maximum(k, 1e-12) ** universe.n_s * transfer**2, 0.0)


def amplitude(universe: Universe) -> float:
    """The factor by which spheres of 8 Mpc/h have a standard deviation of sigma_8."""
    k = np.logspace(-4, 2, 2000)
    x = 8.0 * k
    window = 3 * (np.sin(x) - x * np.cos(x)) / x**3
    integrand = power_spectrum(k, universe) * window**2 * k**3 / (2 * np.pi**2)
    return universe.sigma_8**2 / float(np.trapezoid(integrand, np.log(k)))


def growth(redshift: float, omega_m: float) -> float:
    """The growth of linear structure, in a flat universe; 1 today."""

    def unscaled(z: float) -> float:
        matter = omega_m * (1 + z) ** 3
        om = matter / (matter + 1 - omega_m)
        ol = 1 - om
        return float(2.5 * om / (om ** (4 / 7) - ol + (1 + om / 2) * (1 + ol / 70)) / (1 + z))

    return unscaled(redshift) / unscaled(0.0)


def gaussian_field(random: np.random.Generator, universe: Universe, size: int) -> Field:
    """The linear density contrast today, smoothed; [size, size, size]."""
    cell = BOX_MPC / size
    frequency = 2 * np.pi * np.fft.fftfreq(size, d=cell)
    last = 2 * np.pi * np.fft.rfftfreq(size, d=cell)
    k = np.sqrt(frequency[:, None, None] ** 2 + frequency[None, :, None] ** 2 + last[None, None, :] ** 2)
    power = amplitude(universe) * power_spectrum(k, universe) * np.exp(-((k * SMOOTHING_MPC) ** 2))
    noise = np.fft.rfftn(random.standard_normal((size, size, size)))
    # White noise of variance 1 has the power cell^3 at every k.
    field = np.fft.irfftn(noise * np.sqrt(power / cell**3), s=(size, size, size), axes=(0, 1, 2))
    return field.astype(np.float32)


def volume(seed: int, which: int, index: int, size: int) -> tuple[npt.NDArray[np.int16], Universe]:
    """Counts [size, size, size, 4], one particle per voxel on average, and what they were made from."""
    random = generator(seed, which, index)
    universe = draw_universe(random)
    linear = gaussian_field(random, universe, size)
    variance = float(np.var(linear, dtype=np.float64))
    counts = np.empty((size, size, size, len(REDSHIFTS)), dtype=np.int16)
    for channel, redshift in enumerate(REDSHIFTS):
        factor = growth(redshift, universe.omega_m)
        density = np.exp(factor * linear - factor**2 * variance / 2)
        counts[..., channel] = np.minimum(random.poisson(density), np.iinfo(np.int16).max)
    return counts, universe


def path_of(folder: Path, which: int, index: int) -> Path:
    universe, cube = divmod(index, CUBES_PER_UNIVERSE)
    return folder / SETS[which] / f"univ_ics_gyre_a{universe:08}_{cube:03}.tfrecord"


def write_volume(task: tuple[int, int], folder: Path, size: int, seed: int, plain: bool) -> None:
    which, index = task
    counts, universe = volume(seed, which, index, size)
    example = {"x": counts.astype("<i2").tobytes(), "y": universe.scaled()}
    write_tfrecords(path_of(folder, which, index), [example], compression=None if plain else "gzip")


def write_volumes(
    folder: Path, volumes: Mapping[str, int], size: int, *, seed: int = 0, plain: bool = False, processes: int = 1
) -> None:
    """Writes these numbers of volumes. DatasetError says what could not be written."""
    try:
        for name in volumes:
            (folder / name).mkdir(parents=True, exist_ok=True)
        tasks = [(SETS.index(name), index) for name, count in volumes.items() for index in range(count)]
        write = partial(write_volume, folder=folder, size=size, seed=seed, plain=plain)
        if processes == 1:
            for task in tasks:
                write(task)
            return
        with multiprocessing.get_context("spawn").Pool(min(processes, len(tasks))) as pool:
            pool.map(write, tasks, chunksize=1)
    except (OSError, Error) as error:
        raise DatasetError(f"cannot write the volumes to {folder}: {error}") from error
