"""What is said about several hosts rests on hosts that are really apart, on links that really have their rate, and on a
machine that is as before when they are gone.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import hosts as hosts_module
import pytest
from hosts import Hosts, HostsError, all_names, existing_namespaces, run_ranks
from running_job import wait_until

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_programs("ip", "ethtool")]
TOOLS = Path(hosts_module.__file__).parent


def names_of(hosts: Hosts) -> list[str]:
    return [name for name in existing_namespaces() if name.startswith(hosts.name)]


def test_ranks_share_memory_within_a_host_and_only_there(gyre: Path) -> None:
    probe = gyre.parent.parent / "tests" / "cluster" / "gyre_join_probe"
    with Hosts.create(2, "100mbit") as hosts:
        finished = run_ranks(hosts, [2, 1], [str(probe)], timeout_s=240)
    assert [rank.returncode for rank in finished] == [0, 0, 0], finished
    places = [re.findall(r"rank=(\d) size=3 local=(\d)/(\d)", rank.stdout)[0] for rank in finished]
    assert places == [("0", "0", "2"), ("1", "1", "2"), ("2", "0", "1")]


def test_ranks_may_lie_on_hosts_in_any_order(gyre: Path) -> None:
    probe = gyre.parent.parent / "tests" / "cluster" / "gyre_join_probe"
    with Hosts.create(2, "100mbit") as hosts:
        finished = run_ranks(hosts, [], [str(probe)], host_of_rank=[1, 0, 1], timeout_s=240)
    assert [rank.returncode for rank in finished] == [0, 0, 0], finished
    assert ["local=0/2" in finished[0].stdout, "local=0/1" in finished[1].stdout] == [True, True]
    assert "local=1/2" in finished[2].stdout


def test_links_answer_and_are_no_faster_than_their_rate() -> None:
    with Hosts.create(3, "100mbit") as hosts:
        reports = hosts.check(seconds=0.2)
        assert [(report.source, report.target) for report in reports] == [(0, 1), (1, 2), (2, 0)]
        assert all(0 < report.share <= 1.1 and report.round_trip_us > 0 for report in reports), reports
        # One transfer out, of 0.2 s; what left is counted with its headers.
        assert hosts.bytes_sent(0) > 0.95 * 100e6 / 8 * 0.2


# Prints who decides how fast a stream may be, on the side of the host that it runs on.
STREAM = """
import socket, sys
side, address = sys.argv[1:]
if side == "serve":
    server = socket.create_server((address, 7000))
    print("ready", flush=True)
    stream, _ = server.accept()
else:
    stream = socket.create_connection((address, 7000))
print(stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\\0").decode(), flush=True)
"""


def test_streams_are_as_fast_as_linux_lets_them_be_whatever_the_machine_prefers() -> None:
    with Hosts.create(2, links=2) as hosts:
        address = hosts.address(1, 1)
        with hosts.start(1, [sys.executable, "-c", STREAM, "serve", address], stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            connect = hosts.command_on(0, [sys.executable, "-c", STREAM, "connect", address])
            connected = subprocess.run(connect, capture_output=True, text=True, timeout=60, check=True)
            assert (server.stdout.readline(), connected.stdout) == (b"cubic\n", "cubic\n")


def test_a_link_that_nothing_shapes_is_found() -> None:
    with Hosts.create(2, "1mbit") as hosts:
        for namespace, device in ((hosts.namespace(0), "eth0"), (hosts.switch, "port1-0")):
            subprocess.run(["tc", "-n", namespace, "qdisc", "del", "dev", device, "root"], check=True)
        with pytest.raises(HostsError, match=r"host 0 to host 1: .* nothing shapes this link"):
            hosts.check(seconds=0.5)


def test_two_sets_stand_side_by_side_and_each_is_gone_after_its_use() -> None:
    with Hosts.create(1) as first:
        with Hosts.create(2) as second:
            assert len(names_of(first)) == 2
            assert len(names_of(second)) == 3
        assert names_of(second) == []
        assert len(names_of(first)) == 2
    assert names_of(first) == []
    assert not {first.name, second.name} & set(all_names())


def test_a_failure_leaves_nothing_behind() -> None:
    def fail_with_a_process_running(hosts: Hosts) -> None:
        nonlocal sleeper
        with hosts:
            sleeper = hosts.start(1, ["sleep", "1000"])
            raise ZeroDivisionError

    sleeper: subprocess.Popen[bytes] | None = None
    hosts = Hosts.create(2)
    with pytest.raises(ZeroDivisionError):
        fail_with_a_process_running(hosts)
    assert names_of(hosts) == []
    assert sleeper is not None
    assert sleeper.wait(10) == -signal.SIGKILL


def test_hosts_of_a_killed_process_are_cleared_away_by_the_next_one() -> None:
    script = "import hosts, time; h = hosts.Hosts.create(1); print(h.name, flush=True); time.sleep(1000)"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(TOOLS)}
    ) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert name in all_names()
        process.kill()
    with Hosts.create(1):
        assert name not in all_names()
        assert not any(namespace.startswith(name) for namespace in existing_namespaces())


def test_the_command_line_keeps_hosts_until_they_are_taken_down() -> None:
    def tool(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(TOOLS / "hosts.py"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)

    name = tool("up", "--hosts", "2", "--rate", "50mbit").stdout.strip()
    try:
        with Hosts.create(1):  # Clears what is abandoned; this is not.
            assert name in tool("list").stdout.split()
        shown = tool("exec", name, "1", "--", "ip", "-br", "address", "show", "eth0")
        assert "10.77.0.2/24" in shown.stdout
        assert tool("exec", name, "0", "--", "false").returncode == 1
        assert "no host 2" in tool("exec", name, "2", "--", "true").stderr
    finally:
        tool("down", name)
    assert name not in tool("list").stdout.split()
    assert "there are no hosts called" in tool("down", name).stderr


def test_a_rank_that_hangs_is_ended_and_named() -> None:
    with Hosts.create(2) as hosts:
        with pytest.raises(HostsError, match=r"ranks \[0, 1\] had not ended"):
            run_ranks(hosts, [1, 1], ["sleep", "1000"], timeout_s=0.5)
        pids = [["ip", "netns", "pids", hosts.namespace(host)] for host in range(2)]
        wait_until(
            "the hosts are empty",
            lambda: not any(subprocess.run(one, capture_output=True, check=True).stdout for one in pids),
        )


@pytest.mark.parametrize("rate", ["", "100", "fast", "0mbit", "1mbit; rm"])
def test_a_rate_that_is_none_is_refused(rate: str) -> None:
    with pytest.raises(HostsError, match="is no rate"):
        Hosts.create(2, rate)
