"""`gyre stage` brings what a source has, every byte, whatever the network does: nginx, and a server that fails."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import random
import signal
import subprocess
import time
import zlib
from pathlib import Path

import pytest
from fault_server import fault_server, seldom
from nginx import nginx
from staging import MIB, contents, receipt_of, run_stage, some_files, write_files

needs_nginx = pytest.mark.needs_programs("nginx")


@needs_nginx
def test_all_files_below_an_index_page_arrive_and_are_not_read_again(gyre: Path, tmp_path: Path) -> None:
    files = {
        f"{folder}{name}": body for folder in ("", "train/", "a b/c/") for name, body in some_files(len(folder)).items()
    }
    files |= {"large.bin": random.Random(7).randbytes(70 * MIB)}
    write_files(tmp_path / "web/set", files)
    with nginx(tmp_path / "web", tmp_path) as url:
        first = run_stage(gyre, f"{url}set/", "--to", tmp_path / "there")
        assert first.returncode == 0, first.stderr
        assert contents(tmp_path / "there") == files
        assert f"{len(files)} of {len(files)} files" in first.stdout
        assert receipt_of(tmp_path / "there")["read_bytes"] == sum(map(len, files.values()))
        # One file has changed, one was damaged here, one is new.
        changed = {"train/part_001.bin": b"another", "new": b"new"}
        write_files(tmp_path / "web/set", changed)
        files |= changed
        (tmp_path / "there/empty").write_bytes(b"damage")
        second = run_stage(gyre, f"{url}set/", "--to", tmp_path / "there")
    assert second.returncode == 0, second.stderr
    assert contents(tmp_path / "there") == files
    receipt = receipt_of(tmp_path / "there")
    assert (receipt["files_fetched"], receipt["files_present"]) == (3, len(files) - 3)
    assert receipt["read_bytes"] == len(b"another") + len(b"new")


@pytest.mark.parametrize("seed", range(4))
def test_every_byte_arrives_from_a_server_that_fails(gyre: Path, tmp_path: Path, seed: int) -> None:
    files = some_files(seed) | {"large.bin": random.Random(seed).randbytes(65 * MIB)}
    with fault_server(files, seldom(seed, 0.5)) as server:
        done = run_stage(gyre, server.url, "--to", tmp_path / "there", "--json")
        assert server.faults, "the server was to fail"
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "there") == files
    assert json.loads(done.stdout)["setbacks"] > 0


def test_what_a_source_has_damaged_is_named_and_the_rest_arrives(gyre: Path, tmp_path: Path) -> None:
    sound = gzip.compress(b"contents" * 1000)
    files = {
        "cut.gz": sound[:-10],
        "flipped.gz": sound[:-6] + bytes([sound[-6] ^ 1]) + sound[-5:],
        "no.gz": b"this was never compressed",
        "members.gz": sound + gzip.compress(b"more"),
        "zlib.zz": zlib.compress(b"z" * 5000),
        "other": b"other",
        "unlike": b"what the server sends",
    }
    with fault_server(files) as server:
        server.md5["unlike"] = hashlib.md5(b"what the server should send").digest()
        server.md5["other"] = hashlib.md5(files["other"]).digest()
        done = run_stage(gyre, server.url, "--to", tmp_path / "there", "--decompress-by-suffix")
        again = run_stage(gyre, server.url, "--to", tmp_path / "there", "--decompress-by-suffix", "--quiet")
    assert done.returncode == 1
    assert contents(tmp_path / "there") == {
        "members": b"contents" * 1000 + b"more",
        "zlib": b"z" * 5000,
        "other": b"other",
    }
    receipt = receipt_of(tmp_path / "there")
    assert [failure["file"] for failure in receipt["failed"]] == ["cut", "flipped", "no", "unlike"]
    assert not receipt["complete"]
    assert (again.returncode, again.stdout) == (1, "")
    for name in ("cut.gz", "flipped.gz", "no.gz", "unlike"):
        assert f"gyre stage: {name} of {server.url}" in done.stderr.replace("cannot read ", ""), done.stderr
    assert "4 failed" in done.stdout


def test_an_object_that_changes_while_it_is_read_is_no_mixture(gyre: Path, tmp_path: Path) -> None:
    files = {"large": random.Random(1).randbytes(80 * MIB), "small": b"small"}
    with fault_server(files) as server:

        def change(name: str, number: int) -> str | None:
            if name == "large" and number == 3:
                server.etags["large"] = '"another"'
            return None

        server.choose = change
        done = run_stage(gyre, server.url, "--to", tmp_path / "there")
    assert done.returncode == 1
    assert contents(tmp_path / "there") == {"small": b"small"}
    assert "large: it has changed since it was listed" in done.stderr


def test_overwrite_false_keeps_every_file_that_is_there(gyre: Path, tmp_path: Path) -> None:
    """As with AzCopy: also one that came from here, in an older version."""
    with fault_server({"old": b"old", "same": b"same"}) as server:
        assert run_stage(gyre, server.url, "--to", tmp_path / "there").returncode == 0
        server.files |= {"old": b"changed", "new": b"new"}
        kept = run_stage(gyre, server.url, "--to", tmp_path / "there", "--overwrite", "false")
        assert contents(tmp_path / "there") == {"old": b"old", "same": b"same", "new": b"new"}
        assert "1 fetched, 1 already there, 1 kept as they were and not checked" in kept.stdout
        replaced = run_stage(gyre, server.url, "--to", tmp_path / "there")
    assert (kept.returncode, replaced.returncode) == (0, 0)
    assert contents(tmp_path / "there") == {"old": b"changed", "same": b"same", "new": b"new"}


@pytest.mark.parametrize("heeds", [True, False], ids=["that heeds If-Unmodified-Since", "that does not"])
def test_a_file_of_a_server_with_dates_alone_is_no_mixture(gyre: Path, tmp_path: Path, heeds: bool) -> None:
    """Many servers have no ETags: the date of the last change is then what tells one version from another."""
    before, after = "Thu, 26 Nov 2026 12:00:00 GMT", "Thu, 26 Nov 2026 12:00:01 GMT"
    files = {"large": random.Random(1).randbytes(80 * MIB), "small": b"small"}
    asked: list[int] = []
    with fault_server(files) as server:
        server.dates = dict.fromkeys(files, before)
        server.heeds_dates = heeds

        def change(name: str, number: int) -> str | None:
            if name == "large" and number == 2:
                server.dates["large"] = after
                server.files["large"] = bytes(80 * MIB)
            asked.append(number)
            return None

        server.choose = change
        done = run_stage(gyre, server.url, "--to", tmp_path / "there", "--connections", "1")
        assert done.returncode == 1
        assert contents(tmp_path / "there") == {"small": b"small"}
        assert "large: it has changed since it was listed" in done.stderr
        assert len(asked) < 5, "nothing more of it is read"
        again = run_stage(gyre, server.url, "--to", tmp_path / "there")
        assert again.returncode == 0, again.stderr
        assert contents(tmp_path / "there") == server.files


@pytest.mark.parametrize("kills", [8])
def test_a_staging_that_is_killed_goes_on_where_it_was(gyre: Path, tmp_path: Path, kills: int) -> None:
    """At random moments, within a large object too; read twice is at most what was under way."""
    generator = random.Random(3)
    files = some_files(3, 20, 3 * MIB) | {"large.bin": generator.randbytes(100 * MIB)}
    words = ["--to", str(tmp_path / "there"), "--connections", "2"]
    with fault_server(files) as server:
        for _ in range(kills):
            moment = server.sent_bytes + generator.randrange(50 * MIB)  # Kept: whole pieces, of 16 MiB.
            with subprocess.Popen([str(gyre), "stage", server.url, *words], stdout=-3, stderr=-3) as killed:
                while server.sent_bytes < moment and killed.poll() is None:
                    time.sleep(0.001)
                killed.kill()
        done = run_stage(gyre, server.url, *words)
        sent = server.sent_bytes
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "there") == files
    total = sum(map(len, files.values()))
    # Of each kill: two pieces of 16 MiB, and what lay in sockets.
    assert sent <= total + kills * 2 * 17 * MIB
    assert receipt_of(tmp_path / "there")["read_bytes"] < total
    assert list((tmp_path / "there/.gyre-stage/parts").iterdir()) == []


def test_ctrl_c_keeps_what_has_arrived(gyre: Path, tmp_path: Path) -> None:
    files = {"large.bin": random.Random(1).randbytes(70 * MIB), "a": b"a"}
    with fault_server(files) as server:
        words = [str(gyre), "stage", server.url, "--to", str(tmp_path / "there"), "--connections", "1"]
        with subprocess.Popen([*words, "--cap-mbps", "200"], stdout=-1, stderr=-1, text=True) as stopped:
            while not (tmp_path / "there/a").exists():
                assert stopped.poll() is None
                time.sleep(0.02)
            stopped.send_signal(signal.SIGINT)
            _, said = stopped.communicate(timeout=20)
        assert stopped.returncode == 1
        assert "gyre stage: stopped; what has arrived stays" in said
        done = run_stage(gyre, server.url, "--to", tmp_path / "there")
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "there") == files
    assert receipt_of(tmp_path / "there")["files_present"] >= 1


def test_a_second_staging_to_one_folder_is_refused(gyre: Path, tmp_path: Path) -> None:
    with fault_server({"large": bytes(40 * MIB)}) as server:
        words = [str(gyre), "stage", server.url, "--to", str(tmp_path / "there")]
        with subprocess.Popen([*words, "--cap-mbps", "50"], stdout=-3, stderr=-3) as first:
            while server.requests["large"] == 0:
                time.sleep(0.02)
            second = run_stage(gyre, server.url, "--to", tmp_path / "there")
            first.kill()
    assert second.returncode == 2
    assert f"another `gyre stage` is writing to {tmp_path / 'there'}" in second.stderr


def test_the_limit_to_the_rate_is_kept(gyre: Path, tmp_path: Path) -> None:
    with fault_server({f"{i}": bytes(MIB) for i in range(4)}) as server:
        began = time.monotonic()
        done = run_stage(gyre, server.url, "--to", tmp_path / "there", "--cap-mbps", "32")
        took = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    assert took >= 0.9 * 4 * MIB * 8 / 32e6


@pytest.mark.parametrize("rule", ["size", "suffix", "range"])
@pytest.mark.parametrize("nodes", [1, 3, 5])
def test_each_file_goes_to_one_node(gyre: Path, tmp_path: Path, rule: str, nodes: int) -> None:
    files = some_files(5)
    write_files(tmp_path / "source", files)
    brought: list[str] = []
    run_stage(gyre, tmp_path / "source", "--to", tmp_path / "whole")
    whole = receipt_of(tmp_path / "whole")
    assert whole["shard"] is None
    for node in range(nodes):
        folder = tmp_path / f"node{node}"
        done = run_stage(gyre, tmp_path / "source", "--to", folder, "--shard", f"{node}/{nodes}", "--shard-by", rule)
        assert done.returncode == 0, done.stderr
        receipt = receipt_of(folder)
        assert receipt["shard"] == {"node": node, "nodes": nodes, "by": rule}
        assert receipt["whole_manifest_sha256"] == whole["manifest_sha256"]
        assert (receipt["manifest_sha256"] == whole["manifest_sha256"]) == (nodes == 1)
        assert f"the part of node {node} of {nodes}, divided by {rule}" in done.stdout
        for name, body in contents(folder).items():
            assert body == files[name]
            brought.append(name)
            if rule == "suffix" and name.startswith("part_"):
                assert int(name[5:8]) % nodes == node
    assert sorted(brought) == sorted(files)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--to", "there"], 2, "a source is missing"),
        (["source"], 2, "--to is missing"),
        (["missing", "--to", "there"], 1, "cannot list"),
        (["source", "--to", "there", "--include-pattern", "a*;nothing*"], 2, "the pattern 'nothing*' matches no file"),
        (["source", "--to", "there", "--exclude-pattern", "*"], 2, "the patterns leave no file"),
        (["source", "source", "--to", "there"], 2, "would both become the file a"),
        (["source", "--to", "source/a"], 1, "cannot make the folder"),
        (
            ["source", "--to", "there", "--shard", "4/4"],
            2,
            "the node in --shard is '4'; a whole number from 0 to 3 is needed",
        ),
        (["source", "--to", "there", "--shard", "4"], 2, "NODE/NODES is needed"),
        (["source", "--to", "there", "--cap-mbps", "nan"], 2, "--cap-mbps is 'nan'"),
        (["source", "--to", "there", "--connections", "0"], 2, "--connections"),
        (["ftp://host/set", "--to", "there"], 2, "ftp:// is not known"),
        (["s3:///set", "--to", "there"], 2, "it names no server and no container"),
        (["az://data/set", "--to", "there"], 2, "whose account is it?"),
        (["az://", "--to", "there"], 2, "it names no server and no container"),
        (["https://a.blob.core.windows.net/", "--to", "there"], 2, "the name of a container is missing"),
        (["source", "--to", "https://example.org/c/"], 1, "cannot be written to"),
        (["copy", "source"], 2, "`gyre stage copy` needs a source and a folder"),
        (["@missing.txt", "--to", "there"], 1, "cannot read missing.txt"),
        (["@source/b/c", "--to", "there"], 2, "'text' is no URL of a file"),
        (["http://127.0.0.1:1/x", "--to", "there", "--give-up-after", "1"], 1, "Failed to connect to 127.0.0.1 port 1"),
        (["source", "--too", "there"], 2, "--to"),
    ],
)
def test_a_mistake_gets_one_clear_answer(gyre: Path, tmp_path: Path, words: list[str], code: int, said: str) -> None:
    write_files(tmp_path / "source", {"a": b"1", "b/c": b"text\n"})
    with contextlib.chdir(tmp_path):
        done = run_stage(gyre, *words)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert not (tmp_path / "there").exists()


@pytest.mark.needs_root
def test_a_full_disk_is_said_before_and_while_files_are_written(gyre: Path, tmp_path: Path) -> None:
    write_files(tmp_path / "source", {"a": bytes(3 * MIB), "b.gz": gzip.compress(bytes(20 * MIB))})
    script = f"""
    mount -t tmpfs -o size=6m tmpfs {tmp_path}/small
    {gyre} stage {tmp_path}/source --to {tmp_path}/small --decompress-by-suffix --connections 1
    echo $?; ls {tmp_path}/small
    """
    (tmp_path / "small").mkdir()
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines() == ["1", "a"], done.stderr
    assert "No space left on device" in done.stderr
    write_files(tmp_path / "source", {"c": bytes(8 * MIB)})
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines() == ["1"], done.stderr
    assert "11 MB more must be written to" in done.stderr
