"""A store of several nodes: any node reads any file, the source is read once, and no failure gives a wrong byte."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest
from fault_server import fault_server, seldom
from host_links import set_link
from hosts import Hosts
from nginx import nginx
from staging import MIB, contents, run_stage, some_files, write_files
from store_nodes import StoreNodes, nothing_runs, read_all

ON_DEMAND = "--on-demand"


def test_two_nodes_read_the_source_once_and_again_never(gyre: Path, tmp_path: Path) -> None:
    """Each byte leaves the source once, whichever nodes read it, and however often they are started."""
    files = some_files(1, 30) | {"large.bin": random.Random(1).randbytes(70 * MIB)}
    total = sum(map(len, files.values()))
    with fault_server(files) as server, StoreNodes(gyre, tmp_path, 2, f"{server.url}", ON_DEMAND) as nodes:
        nodes.start()
        listed = nodes.ask(0, "list").decode()
        assert len(listed.splitlines()) == len(files)
        assert f"{70 * MIB:>15} large.bin\n" in listed
        for node in (0, 1):
            read_all(nodes, node, files)
        assert server.sent_bytes == total
        assert nodes.total("source_bytes") == total
        kept = [nodes.status(node)["kept_bytes"] for node in (0, 1)]
        assert min(kept) > 0, "each node keeps a part"
        assert total <= sum(kept) < total * 1.01
        for node in (0, 1):
            assert nodes.end(node) == 0
            assert not (nodes.store_dir(node) / "store/socket").exists()
        assert nothing_runs(nodes)
        nodes.start()
        for node in (1, 0):
            read_all(nodes, node, files)
        assert server.sent_bytes == total, "a restart fetches nothing that is there"
    assert oct((nodes.store_dir(0) / "store").stat().st_mode)[-3:] == "700"


def test_many_readers_of_one_chunk_are_one_fetch(gyre: Path, tmp_path: Path) -> None:
    files = {"one": random.Random(2).randbytes(30 * MIB)}
    with fault_server(files) as server, StoreNodes(gyre, tmp_path, 2, server.url, ON_DEMAND) as nodes:
        nodes.start()
        readers = [threading.Thread(target=read_all, args=(nodes, i % 2, files)) for i in range(8)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        assert server.sent_bytes == len(files["one"])


def test_a_source_that_fails_gives_no_wrong_byte(gyre: Path, tmp_path: Path) -> None:
    files = some_files(5) | {"large.bin": random.Random(5).randbytes(65 * MIB)}
    with (
        fault_server(files, seldom(5, 0.5)) as server,
        StoreNodes(gyre, tmp_path, 2, server.url) as nodes,
    ):
        nodes.start()
        for node in (0, 1):
            read_all(nodes, node, files)
        assert server.faults
        assert nodes.total("setbacks") > 0


@pytest.mark.needs_root
@pytest.mark.needs_programs("nginx")
def test_four_hosts_read_from_nginx_once(gyre: Path, tmp_path: Path) -> None:
    """Over links, each node with its own disk; what lies on another node comes from there."""
    files = some_files(4, 40, 2 * MIB)
    write_files(tmp_path / "web", files)
    total = sum(map(len, files.values()))
    log = tmp_path / "access.log"
    with Hosts.create(5, "1gbit") as hosts:
        prefixes = [hosts.command_on(host, []) for host in range(5)]
        with (
            nginx(
                tmp_path / "web", tmp_path, f"access_log {log};", address=hosts.address(4), prefix=prefixes[4]
            ) as url,
            StoreNodes(
                gyre, tmp_path, 4, url, addresses=[hosts.address(i) for i in range(4)], prefixes=prefixes[:4]
            ) as nodes,
        ):
            nodes.start()
            nodes.wait_until_fetched()
            assert nodes.total("source_bytes") == total
            for node in range(4):
                read_all(nodes, node, files)
            assert nodes.total("source_bytes") == total
            assert sum(map(len, map(nodes.chunk_files, range(4)))) == len(files)
            assert all(nodes.chunk_files(node) for node in range(4))
    lines = [line.split() for line in log.read_text().splitlines()]
    sent = sum(int(words[9]) for words in lines if words[5] == '"GET' and not words[6].endswith("/"))
    assert sent == total, "what nginx says that it has sent"


@pytest.mark.needs_root
@pytest.mark.needs_programs("nginx")
def test_a_link_that_is_down_costs_time_and_no_byte(gyre: Path, tmp_path: Path) -> None:
    """In the middle of a reading, and again before one; what the lost node has comes from the source meanwhile."""
    files = some_files(14, 40, MIB)
    write_files(tmp_path / "web", files)
    total = sum(map(len, files.values()))
    names = sorted(files)
    with Hosts.create(3, "200mbit") as hosts:
        prefixes = [hosts.command_on(host, []) for host in range(3)]
        with (
            nginx(tmp_path / "web", tmp_path, address=hosts.address(2), prefix=prefixes[2]) as url,
            StoreNodes(
                gyre, tmp_path, 2, url, addresses=[hosts.address(i) for i in range(2)], prefixes=prefixes[:2]
            ) as nodes,
        ):
            nodes.start()
            nodes.wait_until_fetched()
            assert nodes.total("source_bytes") == total
            command = [*prefixes[0], gyre, "store", "cat", "--store-dir", nodes.store_dir(0), *names]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as reader:
                assert reader.stdout is not None
                begin = reader.stdout.read(total // 4)
                set_link(hosts, 1, up=False)
                assert begin + reader.stdout.read() == b"".join(files[name] for name in names), nodes.log(0)
            assert nodes.status(0)["source_bytes"] > 0
            read_all(nodes, 0, files)
            sent = nodes.status(0)["source_bytes"]
            assert sent <= total
            set_link(hosts, 1, up=True)
            for node in (0, 1):
                read_all(nodes, node, files)


def test_strangers_read_nothing(gyre: Path, tmp_path: Path) -> None:
    """A program in a node's place that has another key, and one with the right key that is in nobody's list."""
    files = some_files(6)
    total = sum(map(len, files.values()))
    with fault_server(files) as server, StoreNodes(gyre, tmp_path, 3, server.url, ON_DEMAND) as nodes:
        nodes.start(0, 1, members=nodes.named([0, 1]))
        read_all(nodes, 0, files)
        assert server.sent_bytes == total
        nodes.end(1)
        other_key = tmp_path / "other"
        other_key.write_text(secrets.token_hex(32))
        other_key.chmod(0o600)
        for stranger, key_file, members in ((1, other_key, [0, 1]), (2, nodes.key_file, [0, 1, 2])):
            shutil.rmtree(nodes.store_dir(stranger), ignore_errors=True)
            served = nodes.status(0)["served_bytes"]
            sent = server.sent_bytes
            nodes.start(stranger, key_file=key_file, members=nodes.named(members))
            read_all(nodes, stranger, files)
            assert server.sent_bytes == sent + total, "node 0 has given it nothing"
            read_all(nodes, 0, files)
            assert nodes.status(0)["served_bytes"] == served
            assert nodes.status(stranger)["served_bytes"] == 0
            nodes.end(stranger)
    for node in (0, 1):  # Once, however many files they have not given each other.
        said = f"node {1 - node} ({nodes.endpoints[1 - node]}) was given another key than this node"
        assert nodes.log(node).count(said) == 1, nodes.log(node)
    assert "node 2 is not part of the store" in nodes.log(0), nodes.log(0)


def test_a_damaged_chunk_is_fetched_again(gyre: Path, tmp_path: Path) -> None:
    """One bit of one chunk on each node, whether a program of that node reads it or another node."""
    files = some_files(7, 20)
    total = sum(map(len, files.values()))
    generator = random.Random(7)
    with fault_server(files) as server, StoreNodes(gyre, tmp_path, 2, server.url) as nodes:
        nodes.start()
        nodes.wait_until_fetched()
        for reader in (0, 1):
            for owner in (0, 1):
                others = {chunk.name for chunk in nodes.chunk_files(1 - owner)}
                chunk = generator.choice([chunk for chunk in nodes.chunk_files(owner) if chunk.name not in others])
                body = bytearray(chunk.read_bytes())
                at = generator.randrange(len(body) - 4)  # The last four bytes are zeros that nobody reads.
                body[at] ^= 1 << generator.randrange(8)
                chunk.write_bytes(body)
            read_all(nodes, reader, files)
        cut = nodes.chunk_files(0)[0]
        os.truncate(cut, cut.stat().st_size // 2)
        read_all(nodes, 1, files)
        damaged = nodes.total("damaged_chunks")
        assert damaged >= 4, "found by a daemon, or by a program that then asked it"
        assert total < server.sent_bytes < total + 6 * 200_000
    assert "is damaged" in nodes.log(0) + nodes.log(1)


def test_a_stopped_node_delays_and_falsifies_nothing(gyre: Path, tmp_path: Path) -> None:
    """SIGSTOP: its connections stand, and say nothing."""
    files = some_files(8)
    with fault_server(files) as server, StoreNodes(gyre, tmp_path, 2, server.url, ON_DEMAND) as nodes:
        nodes.start()
        read_all(nodes, 0, files)
        os.kill(nodes.daemons[1].pid, signal.SIGSTOP)
        read_all(nodes, 0, files)
        assert server.sent_bytes > sum(map(len, files.values())), "what was there was fetched again"
        os.kill(nodes.daemons[1].pid, signal.SIGCONT)
        read_all(nodes, 1, files)


@pytest.mark.parametrize("seed", [11, 12])
def test_nodes_are_killed_at_random_and_every_byte_is_right(gyre: Path, tmp_path: Path, seed: int) -> None:
    """Ten kills of one of three nodes, each at a random moment of a reading; then nothing is fetched again."""
    files = some_files(seed, 16, MIB) | {"large.bin": random.Random(seed).randbytes(66 * MIB)}
    total = sum(map(len, files.values()))
    generator = random.Random(seed)
    with fault_server(files) as server, StoreNodes(gyre, tmp_path, 3, server.url, ON_DEMAND) as nodes:
        nodes.start()
        for kill in range(10):
            victim = generator.randrange(3)
            reader = generator.choice([node for node in range(3) if node != victim])
            reading = threading.Thread(target=nodes.end, args=(victim, signal.SIGKILL))
            delay = generator.random() * 0.5
            timer = threading.Timer(delay, reading.start)
            timer.start()
            names = generator.sample(sorted(files), 8)
            assert nodes.read(reader, *names) == b"".join(files[name] for name in names), f"kill {kill}"
            timer.join()
            reading.join()
            nodes.start(victim)
        for node in range(3):
            read_all(nodes, node, files)
        sent = server.sent_bytes
        for node in range(3):
            read_all(nodes, node, files)
        assert server.sent_bytes == sent
        # While a node is gone, others fetch what it has; of a killed one, what was under way.
        assert total <= sent <= 3 * total
        for node in range(3):
            assert list((nodes.store_dir(node) / "store/new").iterdir()) == []


@pytest.mark.parametrize("seed", [21])
def test_random_histories_agree_with_the_source(gyre: Path, tmp_path: Path, seed: int) -> None:
    """Reads, kills, stops, starts, damage and changes of the members in any order: a model knows each byte.

    It also knows what the source may have to give: each object once, and once more for whatever a fault has taken away.
    """
    generator = random.Random(seed)
    files = some_files(seed, 24, 300_000)
    names = sorted(files)
    total = sum(map(len, files.values()))
    lost = 0  # Faults after which each chunk may be read from the source once more.
    damaged = 0
    with fault_server(files) as server, StoreNodes(gyre, tmp_path, 3, server.url, ON_DEMAND) as nodes:
        nodes.start()
        members = [0, 1, 2]
        for _ in range(40):
            act = generator.choice(["read"] * 6 + ["kill", "flip", "members"])
            up = sorted(nodes.daemons)
            if act == "read":
                node = generator.choice(up)
                some = generator.sample(names, 6)
                assert nodes.read(node, *some) == b"".join(files[name] for name in some), f"{seed}: {nodes.log(node)}"
            elif act == "kill" and len(up) > 1:
                nodes.end(generator.choice(up), signal.SIGKILL)
                lost += 1
            elif act == "kill":
                down = [node for node in range(3) if node not in up]
                # One that has been removed meanwhile gets nothing from the others.
                lost += len(set(down) - set(members))
                nodes.start(*down, members=nodes.named(sorted({*members, *down})))
            elif act == "flip":
                chunks = nodes.chunk_files(generator.choice(up))
                if chunks:
                    chunk = generator.choice(chunks)
                    body = bytearray(chunk.read_bytes())
                    body[generator.randrange(len(body))] ^= 1 << generator.randrange(8)
                    chunk.write_bytes(body)
                    damaged += 1
            elif act == "members":
                members = sorted({*generator.sample(range(3), 2), *up})
                nodes.set_members(generator.choice(up), members)
                lost += 1
        sent = server.sent_bytes
        assert total * 0.5 < sent <= total * (1 + lost) + damaged * 300_000
        up = sorted(nodes.daemons)
        for _ in range(2):
            for node in up:
                read_all(nodes, node, files)
        settled = server.sent_bytes
        for node in up:
            read_all(nodes, node, files)
        assert server.sent_bytes == settled, "the source has nothing to do with what is there"


def test_a_node_more_and_a_node_less(gyre: Path, tmp_path: Path) -> None:
    """A new node takes its part over from the others; what a node that leaves had is fetched again."""
    files = some_files(9, 60)
    total = sum(map(len, files.values()))
    with fault_server(files) as server, StoreNodes(gyre, tmp_path, 3, server.url) as nodes:
        nodes.start(0, 1, members=nodes.named([0, 1]))
        nodes.wait_until_fetched()
        assert server.sent_bytes == total
        nodes.ask(0, "members", "--set", nodes.nodes)  # Node 2 is not there yet.
        nodes.start(2)
        read_all(nodes, 0, files)  # Whose requests bring the new list.
        nodes.wait_until(2, lambda status: status["epoch"] == 2 and not status["fetching_ahead"])
        read_all(nodes, 2, files)
        assert nodes.status(2)["peer_chunks"] > 0
        assert nodes.status(1)["epoch"] == 2
        assert server.sent_bytes == total, "a node more costs no reading from the source"
        nodes.ask(1, "members", "--set", nodes.named([1, 2]))
        nodes.end(0)
        for node in (1, 2):
            nodes.wait_until(node, lambda status: status["epoch"] == 3 and not status["fetching_ahead"])
            read_all(nodes, node, files)
        assert server.sent_bytes <= 2 * total
        assert "cannot give" not in nodes.log(1) + nodes.log(2)


def test_an_encrypted_store_leaves_nothing_readable(gyre: Path, tmp_path: Path) -> None:
    """With its key a store is read as any other, after a restart too; without it, its disks show no byte, no name."""
    phrase = b"what nobody is to read from a disk"
    files = some_files(33) | {f"secret-{i}.txt": phrase * 3000 + bytes([i]) for i in range(4)}
    total = sum(map(len, files.values()))
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as memory,
        fault_server(files) as server,
        StoreNodes(gyre, tmp_path, 2, server.url, "--encrypt") as nodes,
    ):
        keys = [Path(memory) / name for name in ("key", "other")]
        for key in keys:
            key.write_text(secrets.token_hex(32))
            key.chmod(0o600)
        beside = [gyre, "store", "serve", "--store-dir", nodes.store_dir(0), "--encrypt", "--key-file", nodes.key_file]
        refused = subprocess.run([*beside, server.url], capture_output=True, text=True, timeout=60, check=False)
        assert (refused.returncode, "lies on the disk that is to be encrypted" in refused.stderr) == (2, True)

        def what_lies_there() -> bytes:
            there = [path for path in tmp_path.glob("node*/**/*") if path.is_file()]
            return b"".join(str(path).encode() + path.read_bytes() for path in there)

        nodes.start(key_file=keys[0])
        nodes.wait_until_fetched()
        assert nodes.status(0)["encrypted"]
        for node in (0, 1):
            read_all(nodes, node, files)
        assert len(what_lies_there()) > total
        for hidden in (phrase, b"secret-1", b"part_001", keys[0].read_bytes(), server.url.encode()):
            assert hidden not in what_lies_there()
        for node in (0, 1):
            nodes.end(node, signal.SIGKILL)
        nodes.start(key_file=keys[0])
        for node in (0, 1):
            read_all(nodes, node, files)
        assert server.sent_bytes == total, "with its key nothing is fetched again"
        chunk = max((nodes.store_dir(0) / "store/encrypted").glob("*/*"), key=lambda path: path.stat().st_size)
        body = bytearray(chunk.read_bytes())
        body[len(body) // 2] ^= 1
        chunk.write_bytes(body)
        read_all(nodes, 1, files)
        assert nodes.status(0)["damaged_chunks"] == 1
        for node in (0, 1):
            nodes.end(node)
        sent = server.sent_bytes
        nodes.start(key_file=keys[1])
        for node in (0, 1):
            read_all(nodes, node, files)
        assert server.sent_bytes == sent + total, "another key reads nothing of it"
        for node in (0, 1):
            nodes.end(node)
        nodes.words = ()
        nodes.start(key_file=keys[1])
        read_all(nodes, 0, files)
        assert not (nodes.store_dir(0) / "store/encrypted").exists()
        assert phrase in what_lies_there()


def test_a_store_becomes_a_folder(gyre: Path, tmp_path: Path) -> None:
    """`gyre stage store://…` makes paths of it on any node, without another reading from the source."""
    files = some_files(10) | {"large.bin": random.Random(10).randbytes(66 * MIB)}
    with fault_server(files) as server, StoreNodes(gyre, tmp_path, 2, server.url) as nodes:
        nodes.start()
        nodes.wait_until_fetched()
        sent = server.sent_bytes
        for node in (0, 1):
            done = run_stage(gyre, f"store://{nodes.store_dir(node)}/store", "--to", tmp_path / f"there{node}")
            assert done.returncode == 0, done.stderr
            assert contents(tmp_path / f"there{node}") == files
        assert server.sent_bytes == sent == sum(map(len, files.values()))
        again = run_stage(gyre, f"store://{nodes.store_dir(0)}/store", "--to", tmp_path / "there0")
        assert f"{len(files)} already there" in again.stdout, again.stdout
    wrong = run_stage(gyre, "store://relative/store", "--to", tmp_path / "there")
    assert (wrong.returncode, "names no store" in wrong.stderr) == (2, True)
    none = run_stage(gyre, f"store://{tmp_path}/none", "--to", tmp_path / "there")
    assert (none.returncode, "no daemon of a store runs" in none.stderr) == (1, True), none.stderr


@pytest.mark.needs_root
def test_a_full_disk_costs_readings_and_no_failure(gyre: Path, tmp_path: Path) -> None:
    """A disk of 2 MB for a set of 8: what does not fit is read from the source whenever it is needed."""
    files = {f"f{i}": random.Random(i).randbytes(MIB) for i in range(8)}
    mount = f'mount -t tmpfs -o size=2m,mode=700 none "{tmp_path}/node0" && exec "$@"'
    prefix = ["unshare", "-m", "--propagation", "private", "sh", "-c", mount, "sh"]
    (tmp_path / "node0").mkdir()
    with fault_server(files) as server, StoreNodes(gyre, tmp_path, 1, server.url, prefixes=[prefix]) as nodes:
        nodes.start()
        # The mount is the daemon's own: readers reach its socket by way of its namespace.
        nodes.prefixes = [["nsenter", "-m", "-t", str(nodes.daemons[0].pid)]]
        for _ in range(2):
            read_all(nodes, 0, files)
        status = nodes.status(0)
        assert status["unkept_chunks"] > 0
        assert 0 < status["kept_chunks"] < 8
    assert "cannot be kept is read from its source" in nodes.log(0)


def test_bad_words_are_one_clear_error(gyre: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("short")
    key.chmod(0o600)
    open_key = tmp_path / "open"
    open_key.write_text(secrets.token_hex(32))
    open_key.chmod(0o640)
    two = "0=tcp:127.0.0.1:1,1=tcp:127.0.0.1:2"
    serve = ["serve", "--store-dir", str(tmp_path / "there"), str(tmp_path)]
    for words, said in [
        ([*serve, "--nodes", two], "--nodes needs --key-file"),
        ([*serve, "--nodes", two, "--key-file", str(key)], "holds no key"),
        ([*serve, "--nodes", two, "--key-file", str(open_key)], "others than its user can read the key"),
        ([*serve, "--nodes", "0=tcp:a:1,0=tcp:b:1", "--key-file", str(key)], "two nodes with the number 0"),
        ([*serve, "--node", "3", "--nodes", two, "--key-file", str(key)], "--node"),
        ([*serve, "--job", "a/b"], "a name without /"),
        (["cat", "--store-dir", str(tmp_path / "there"), "x"], "no daemon of a store runs"),
    ]:
        done = subprocess.run([gyre, "store", *words], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode in (1, 2), words
        assert said in done.stderr or "holds no key" in done.stderr, done.stderr
        assert len(done.stderr.strip().splitlines()) <= 2
    with contextlib.suppress(FileNotFoundError):
        assert not list((tmp_path / "there").iterdir())


def test_two_daemons_do_not_share_a_folder(gyre: Path, tmp_path: Path) -> None:
    write_files(tmp_path / "set", {"a": b"a"})
    with StoreNodes(gyre, tmp_path, 1, str(tmp_path / "set")) as nodes:
        nodes.start()
        second = subprocess.run(
            [gyre, "store", "serve", "--store-dir", nodes.store_dir(0), tmp_path / "set"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert second.returncode == 2
        assert "another `gyre store serve` has" in second.stderr
        assert nodes.read(0, "a") == b"a"
