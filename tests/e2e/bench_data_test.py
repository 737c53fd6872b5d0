"""`gyre bench stage` and `gyre bench store` as their users meet them: every case has its rows, with bounds and peers
from the same run, and nothing is left. How fast anything is has no part in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gyre.bench
import hosts
import pytest

Bench = Callable[..., "subprocess.CompletedProcess[str]"]
LONGEST_SECONDS = 240
PACKAGE = Path(gyre.bench.__file__).parent.parent.parent
TOOLS = Path(hosts.__file__).parent
QUICK = ["--seconds", "0.05", "--megabytes", "8"]
FEW_VOLUMES = ["--volumes", "2", "--volume-size", "32"]


@pytest.fixture
def bench(gyre: Path, tmp_path: Path) -> Iterator[Bench]:
    """Whose folder for what it needs is empty again at the end, and who leaves no mount."""
    scratch = Path(tempfile.mkdtemp(prefix="gyre-"))  # A store's socket must have a short path.

    def run(*arguments: str, modules: str = f"{PACKAGE}:{TOOLS}", **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"GYRE_PYTHON": sys.executable, "PYTHONPATH": modules, "TMPDIR": str(scratch)}
        return subprocess.run(
            [str(gyre), "bench", *arguments],
            cwd=tmp_path,
            env={**os.environ, **environment, **variables},
            capture_output=True,
            text=True,
            timeout=LONGEST_SECONDS,
            check=False,
        )

    yield run
    scratch.rmdir()  # Or an error, where something was left.
    assert str(scratch) not in Path("/proc/mounts").read_text()


def rows_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    for row in rows:
        assert {"bench", "case", "what", "unit", "ours", "bound", "goal", "peers"} <= row.keys()
        assert row["ours"] > 0 or row["unit"] == "B/object"  # Of few files it is lost in noise.
        assert row["bound"] is None or row["bound"] > 0
    return rows


@pytest.mark.needs_programs("nginx")
def test_staging_is_compared_with_rclone_and_with_libdeflate(bench: Bench) -> None:
    [row] = rows_of(bench("stage", "loopback", *QUICK, *FEW_VOLUMES, "-o", "json"))
    assert row["case"] == "loopback"
    assert row["goal_over_peer"] == 2
    assert row["bound"] > 0
    if shutil.which("rclone"):
        assert row["peers"]["rclone + gunzip"] > 0


@pytest.mark.needs_root
@pytest.mark.needs_programs("ip", "ethtool", "nginx")
def test_staging_over_links_is_compared_with_what_they_carry(bench: Bench) -> None:
    few = ["--rate", "200mbit", "--nodes", "1,3"]
    done = bench("stage", "link", "gzip", "ratio", "accounts", *QUICK, *FEW_VOLUMES, *few, "-o", "json")
    rows = rows_of(done)
    assert [row["case"] for row in rows] == ["link", "gzip", *["ratio"] * 3, *["accounts"] * 4]
    link, gzip = rows[:2]
    # 9,000-byte packets: TCP gets 8948 of 9014 bytes.
    assert link["bound"] == pytest.approx(200e6 / 8 * 8948 / 9014)
    assert link["ours"] < 1.1 * link["bound"]
    assert gzip["bound"] == min(gzip["bounds"].values())
    # The slowest links show the compression's ratio, the fastest nothing.
    predicted = [row["bound"] for row in rows[2:5]]
    assert predicted == sorted(predicted, reverse=True)
    assert predicted[1] == pytest.approx(2.7)
    assert predicted[2] == 1
    places = [(row["accounts"], row["nodes"]) for row in rows[5:]]
    assert places == [(1, 1), (1, 3), (2, 1), (2, 3)]
    assert rows[6]["bound"] == pytest.approx(3 * rows[5]["bound"])


def test_reading_a_store_is_compared_with_the_page_cache_and_bare_tls(bench: Bench) -> None:
    cases = ["local", "small", "encrypted", "small-peer", "listing"]
    rows = rows_of(bench("store", *cases, *QUICK, "--entries", "5000", "-o", "json"))
    assert [row["case"] for row in rows][-2:] == ["listing", "listing"]
    for row in rows[:-1]:
        assert row["bound"] > 0
    assert {row["case"] for row in rows} == set(cases)
    assert all(row["goal_value"] == 20_000 for row in rows if row["case"] == "small")
    memory = rows[-2]
    assert (memory["unit"], memory["bound"]) == ("B/object", 128)
    shown = bench("store", "local", *QUICK)
    assert shown.returncode == 0, shown.stderr
    assert "at least 90%" in shown.stdout


@pytest.mark.needs_root
@pytest.mark.needs_programs("fusermount3")
@pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="/dev/fuse is missing: a container needs --device /dev/fuse")
def test_reading_through_a_mount_is_compared_with_plain_files(bench: Bench) -> None:
    done = bench("store", "mount", *QUICK, "-o", "json")
    [row] = rows_of(done)
    assert row["goal"] == 0.7
    assert "tf.data is not measured" in done.stderr


@pytest.mark.needs_root
@pytest.mark.needs_programs("ip", "ethtool", "nginx")
def test_reading_from_other_nodes_is_compared_with_links_and_capped_sources(bench: Bench) -> None:
    few = ["--rate", "200mbit", "--iterations", "1"]
    done = bench("store", "peer", "aggregate", "capped", "cache", *QUICK, *few, "-o", "json")
    rows = rows_of(done)
    assert [row["case"] for row in rows] == ["peer", "aggregate", *["capped"] * 5, *["cache"] * 6]
    assert rows[0]["ours"] < 1.1 * rows[0]["bound"]
    assert rows[1]["goal_value"] == 3.7
    capped = rows[2:7]
    # Four workers' batches of four volumes of 32^3 x 4 int16, and the records' frames.
    # Of a packet of 1500 bytes, 1448 are the stream's.
    assert capped[1]["bound"] == pytest.approx(14e6 / 8 * 1448 / 1514 / (16 * 262_144), rel=0.02)
    assert capped[2]["bound"] == pytest.approx(5.7, rel=0.05)
    assert capped[4]["bound"] == pytest.approx(10.0, rel=0.05)
    assert 0 < rows[-1]["kept_share"] < 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stage", "links"], "there is no case 'links'; there are: link, gzip, loopback, ratio, accounts"),
        (["stage", "--megabytes", "0"], "--megabytes is 0; 1 to"),
        (["stage", "--volume-size", "33"], "--volume-size is 33; 16, 32, 64, 128 are possible"),
        (["stage", "--nodes", "0"], "--nodes is '0'; numbers from 1 to 64"),
        (["store", "--entries", "0"], "--entries is 0; 1 to"),
        (["store", "--rate", "fast", "peer"], "--rate is 'fast'; a rate such as 100mbit or 1gbit is needed"),
        (["store", "--tensorflow", "/no/python"], "--tensorflow /no/python is not a Python that has TensorFlow"),
    ],
)
def test_what_cannot_be_is_said_at_once(bench: Bench, arguments: list[str], message: str) -> None:
    done = bench(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"gyre bench {arguments[0]}: {message}"), done.stderr


@pytest.mark.needs_root
@pytest.mark.needs_programs("ip", "ethtool")
def test_hosts_need_a_checkout(bench: Bench) -> None:
    done = bench("store", "peer", *QUICK, modules=str(PACKAGE))
    assert done.returncode == 2
    assert "several hosts on one machine are made by a checkout's tools/hosts.py" in done.stderr
