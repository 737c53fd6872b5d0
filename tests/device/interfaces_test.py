"""NCCL chooses a network interface by itself, on hosts with Docker's bridge often one that leads nowhere: Gyre names
the one by which the hosts have met. On emulated hosts with several links, without NCCL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hosts import Hosts

PACKAGE = Path(__file__).resolve().parents[2] / "python"
PROGRAM = """
import os, sys, types
from gyre._devices.interfaces import name_for_nccl
name_for_nccl(types.SimpleNamespace(underlying_store=types.SimpleNamespace(host=sys.argv[1])))
print(os.environ.get("NCCL_SOCKET_IFNAME", ""))
"""


def chosen(hosts: Hosts, host: int, towards: str, **environment: str) -> str:
    process = hosts.start(
        host,
        [sys.executable, "-c", PROGRAM, towards],
        stdout=subprocess.PIPE,
        environment={"PYTHONPATH": str(PACKAGE), "GYRE_INTERFACES": "", "NCCL_SOCKET_IFNAME": "", **environment},
    )
    output, _ = process.communicate(timeout=60)
    return output.decode().strip()


@pytest.mark.needs_root
@pytest.mark.needs_programs("ip", "ethtool")
def test_nccl_gets_the_interface_by_which_the_hosts_have_met() -> None:
    with Hosts.create(2, "1gbit", links=2) as hosts:
        for link in range(2):
            address = hosts.address(0, link)
            assert [chosen(hosts, host, address) for host in range(2)] == [f"=eth{link}"] * 2
        assert chosen(hosts, 1, hosts.address(0), NCCL_SOCKET_IFNAME="ib0") == "ib0"
        assert chosen(hosts, 1, hosts.address(0), GYRE_INTERFACES="eth1,eth0") == "=eth1,eth0"
        assert chosen(hosts, 0, "127.0.0.1") == ""
