"""NAG's tutorial calls `pull_data_from_blob_sharded`: each node brings its files, no signature is seen, and what fails
is said."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from azurite import PROGRAM, Azurite, azurite
from gyre.beeondutils import pull_data_from_blob_sharded
from gyre.errors import Error, InvalidArgumentError
from staging import contents

pytestmark = pytest.mark.skipif(
    not PROGRAM.exists(), reason="Azurite is not installed: `./dev setup test` does so where there is npm"
)

FILES = {f"train/univ_{number:03d}.tfrecord": f"sample {number} ".encode() * 500 for number in (0, 1, 2, 5, 17, 62, 63)}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Azurite]:
    (tmp_path / "server").mkdir()
    with azurite(tmp_path / "server") as server:
        blobs = {f"{name}.gz": gzip.compress(body) for name, body in FILES.items()}
        server.container("cosmo", blobs, dict.fromkeys(blobs, "gzip"))
        yield server


def of_share(total: int, index: int) -> dict[str, bytes]:
    return {f"cosmo/{name}": body for name, body in FILES.items() if int(name[-12:-9]) % total == index}


def command(server: Azurite, folder: Path, sas: str, *more: str) -> list[str]:
    words = ["--account", server.endpoint, "--container", "cosmo", "--sas", sas, "--beeond-stage-dir", str(folder)]
    return [sys.executable, "-m", "gyre.beeondutils", *words, *more]


@pytest.mark.parametrize("total", [1, 2, 4])
def test_the_nodes_together_bring_each_file_once(server: Azurite, tmp_path: Path, total: int) -> None:
    secret = tmp_path / "sas"
    secret.write_text(server.sas())
    together: dict[str, bytes] = {}
    for index in range(total):
        folder = tmp_path / f"node{index}"
        pull_data_from_blob_sharded(server.endpoint, "cosmo", folder, f"@{secret}", total, index)
        assert contents(folder) == of_share(total, index)
        assert not together.keys() & contents(folder).keys()
        together |= contents(folder)
    assert together == of_share(1, 0)


@pytest.mark.parametrize("way", ["literal", "file", "variable", "input"])
def test_a_signature_is_taken_in_every_way_and_seen_in_none(server: Azurite, tmp_path: Path, way: str) -> None:
    """The command line of the process itself is looked at while it waits for the server, as another user could."""
    sas = server.sas()
    (tmp_path / "sas").write_text(sas)
    given = {"literal": sas, "file": f"@{tmp_path / 'sas'}", "variable": "env:THE_SAS", "input": "-"}[way]
    look = (
        "import sys, pathlib, gyre.beeondutils as b\n"
        "code = b.main(sys.argv[1:])\n"
        "print(pathlib.Path('/proc/self/cmdline').read_bytes())\n"
        "sys.exit(code)\n"
    )
    words = command(server, tmp_path / "there", given)[3:]
    done = subprocess.run(
        [sys.executable, "-c", look, *words],
        input=sas if way == "input" else "",
        env={**os.environ, "THE_SAS": sas},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "there") == of_share(1, 0)
    assert "--beeond-stage-dir" in done.stdout, "the command line was looked at"
    signature = sas.partition("sig=")[2]
    assert signature not in done.stdout + done.stderr
    assert "sig=" not in done.stdout + done.stderr
    assert ("a signature on the command line can be read by others" in done.stderr) == (way == "literal")


def test_a_staging_that_fails_is_an_error(server: Azurite, tmp_path: Path) -> None:
    """The tutorial's code goes on, and trains on what there is."""
    writing_only = server.sas(permissions="w")
    with pytest.raises(Error, match=r"did not all arrive in .*does not allow reading"):
        pull_data_from_blob_sharded(server.endpoint, "cosmo", tmp_path / "there", writing_only)
    for total, index in [(2, None), (None, 1), (2, 2), (2, -1), (0, 0)]:
        with pytest.raises(InvalidArgumentError, match=r"total|index"):
            pull_data_from_blob_sharded("account", "cosmo", tmp_path / "there", "@sas", total, index)
    assert not (tmp_path / "there/cosmo").exists()
    done = subprocess.run(
        command(server, tmp_path / "there", writing_only), capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, "did not all arrive" in done.stderr) == (1, True), done.stderr
    assert writing_only.partition("sig=")[2] not in done.stdout + done.stderr
