"""The page of a job over hosts with networks of their own: what it says of their ranks, and of a host that is lost."""

from __future__ import annotations

import http.cookiejar
import json
import os
import re
import signal
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hosts import Hosts, run_tool
from running_job import Job, StartJob, wait_until

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_programs("ip", "ethtool")]
# Stands in for ssh: the last number of an address is the host's, from 1.
REACH = """#!/bin/sh
while [ $# -gt 2 ]; do shift; done
exec ip netns exec NAME-host$((${1##*.} - 1)) sh -c "$2"
"""
SPEAKER = ["sh", "-c", "echo rank $GYRE_RANK is up; echo 10 percent; exec sleep 1000"]


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with Hosts.create(2, "1gbit") as created:
        yield created


def page_of(job: Job) -> Callable[[str], bytes]:
    """Asks for what is below its API, as the browser does that has opened the link."""
    link = re.compile(r"the page of this job, for one browser: (\S+)")
    wait_until("the link", lambda: link.search(job.stderr) is not None)
    found = link.search(job.stderr)
    assert found is not None
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    with browser.open(found[1], timeout=20) as answer:
        leads_to = re.search(r'href="(/[^"]+/)page"', answer.read().decode())
    assert leads_to is not None
    place = urllib.parse.urljoin(found[1], leads_to[1])

    def get(path: str) -> bytes:
        with browser.open(f"{place}api/{path}", timeout=20) as answer:
            body: bytes = answer.read()
            return body

    return get


def test_ranks_and_logs_of_all_hosts_are_there_and_a_lost_host_is_named(
    start_job: StartJob, hosts: Hosts, tmp_path: Path
) -> None:
    reach = tmp_path / "reach"
    reach.write_text(REACH.replace("NAME", hosts.name))
    reach.chmod(0o700)
    names = [hosts.address(host) for host in range(2)]
    places = ["--ssh", str(reach), "-H", ",".join(f"{name}:2" for name in names)]
    job = start_job(*places, "--page", "--", *SPEAKER, env=dict(os.environ), timeout=60)
    get = page_of(job)

    def now() -> dict[str, Any]:
        described: dict[str, Any] = json.loads(get("now"))
        return described

    logs = [f"rank {rank} is up\n10 percent\n" for rank in range(4)]
    wait_until("all have written", lambda: now()["logs"] == {str(rank): len(logs[rank]) for rank in range(4)})
    assert [get(f"ranks/{rank}/log").decode() for rank in range(4)] == logs
    ranks = {each["rank"]: each for each in now()["job"]["ranks"]}
    assert [ranks[rank]["host"] for rank in range(4)] == [names[0], names[0], names[1], names[1]]
    assert {each["phase"] for each in ranks.values()} == {"running"}

    for process in run_tool("ip", "netns", "pids", hosts.namespace(1)).split():
        if b"--agent" in Path("/proc", process, "cmdline").read_bytes():
            os.kill(int(process), signal.SIGKILL)
            break
    wait_until("the end", lambda: now()["job"]["exit_code"] is not None)
    job_at_end = now()["job"]
    assert job_at_end["exit_code"] == 255
    assert f"lost the connection to host {names[1]}" in job_at_end["report"]
    assert job_at_end["first_failed_rank"] is None
    phases = {each["rank"]: each["phase"] for each in job_at_end["ranks"]}
    assert phases == {0: "stopped", 1: "stopped", 2: "lost", 3: "lost"}
    assert job.wait() == 255
