"""Volumes stand in for a set of terabytes: their bytes must follow from the arguments, and from the parameters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gyre import datasets
from gyre.data import Loader, floats, raw
from gyre.datasets import cosmo


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.tfrecord"))}


def test_files_follow_from_the_arguments_however_many_processes_write(tmp_path: Path) -> None:
    for processes in (1, 2):
        out = str(tmp_path / str(processes))
        arguments = ["--train", "3", "--validation", "2", "--size", "16", "--seed", "4", "--processes", str(processes)]
        assert datasets.main(["cosmo", "--out", out, *arguments]) == 0
    files = files_of(tmp_path / "1")
    assert files == files_of(tmp_path / "2")
    assert [name.rsplit("_", 1)[1].split(".")[0] for name in files] == ["000", "001", "002", "000", "001"]
    assert len(set(files.values())) == 5, "no volume is there twice, not even across the sets"


def test_a_volume_is_read_by_the_loader_and_compresses_as_the_real_ones_do(tmp_path: Path) -> None:
    cosmo.write_volumes(tmp_path, {"train": 2}, 64)
    loader = Loader(
        tmp_path / "train",
        {"x": raw("int16", (64, 64, 64, 4)), "y": floats(4)},
        batch_size=2,
        shuffle=False,
        records_per_file=1,
    )
    batch = next(iter(loader))
    assert batch["x"].shape == (2, 64, 64, 64, 4)
    assert batch["y"].abs().max() <= 1
    assert batch["x"].min() >= 0
    # One particle per voxel on average, within what a box of this size differs by.
    assert batch["x"].float().mean().item() == pytest.approx(1.0, rel=0.2)
    stored = sum(len(content) for content in files_of(tmp_path).values())
    assert 3.5 < batch["x"].nbytes / stored < 8, "the real set's ratio is 4.6 to 6"


def test_structure_grows_with_time_and_with_sigma_8() -> None:
    universe = cosmo.Universe(omega_m=0.3, sigma_8=0.8, n_s=0.96, h=0.7)
    spreads = []
    for sigma_8 in (0.6, 1.0):
        other = cosmo.Universe(universe.omega_m, sigma_8, universe.n_s, universe.h)
        spreads.append(float(np.std(cosmo.gaussian_field(np.random.default_rng(1), other, 32))))
    assert spreads[1] / spreads[0] == pytest.approx(1.0 / 0.6, rel=1e-3)
    counts, _ = cosmo.volume(0, 0, 0, 32)
    channels = [float(np.var(counts[..., channel].astype(float))) for channel in range(4)]
    assert channels == sorted(channels, reverse=True)


def test_growth_is_that_of_the_integral_that_it_approximates() -> None:
    def integral(redshift: float) -> float:
        a = np.linspace(1e-4, 1 / (1 + redshift), 20_000)
        hubble = np.sqrt(0.3 / a**3 + 0.7)
        return float(hubble[-1] * np.trapezoid(1 / (a * hubble) ** 3, a))

    for redshift in cosmo.REDSHIFTS:
        assert cosmo.growth(redshift, 0.3) == pytest.approx(integral(redshift) / integral(0.0), rel=0.01)


def test_spheres_of_8_mpc_have_the_standard_deviation_sigma_8() -> None:
    universe = cosmo.Universe(omega_m=0.3, sigma_8=0.8, n_s=0.96, h=0.7)
    k = np.linspace(1e-4, 20, 400_000)
    x = 8 * k
    window = 3 * (np.sin(x) - x * np.cos(x)) / x**3
    power = cosmo.amplitude(universe) * cosmo.power_spectrum(k, universe)
    variance = float(np.sum(power * window**2 * k**2) * (k[1] - k[0]) / (2 * np.pi**2))
    assert variance**0.5 == pytest.approx(0.8, rel=2e-3)


def test_bad_arguments_and_places_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["cosmo"],
        ["cosmo", "--out", "x", "--size", "100"],
        ["cosmo", "--out", "x", "--train", "0"],
        ["cosmo", "--out", "x", "--seed", "-1"],
    ):
        with pytest.raises(SystemExit):
            datasets.main(arguments)
    (tmp_path / "file").write_text("in the way")
    assert datasets.main(["cosmo", "--out", str(tmp_path / "file"), "--train", "1", "--validation", "1"]) == 1
    assert "cannot write the volumes to" in capsys.readouterr().err
