"""A core dump of a rank is written into files that others read: no key may be in it. Looks through the memory of living
ranks that a dump would contain."""

from __future__ import annotations

import hmac
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import gyre.distributed
import gyre.torch as hvd
import pytest
import torch
import torch.distributed as dist
from machine import free_port
from rank_template import RankTemplate
from running_job import wait_until

PACKAGE = Path(gyre.distributed.__file__).parent.parent.parent
LARGEST_PIECE = 1 << 26


def stay() -> None:
    """Until the test has seen enough."""
    Path(f"ready-{os.environ['RANK']}").touch()
    until = time.monotonic() + 120
    while not Path("enough").exists() and time.monotonic() < until:
        time.sleep(0.01)


def rank_of_a_process_group() -> None:
    dist.init_process_group("gyre")
    dist.all_reduce(torch.ones(1000))
    dist.new_group([0, 1])
    dist.monitored_barrier()
    stay()
    dist.destroy_process_group()


def rank_of_a_job() -> None:
    hvd.init()
    hvd.allreduce(torch.ones(1000))
    stay()
    hvd.shutdown()


def dumped_memory(process: int) -> Iterator[tuple[str, bytes]]:
    """The writable memory that a core dump of the process would contain, by the lines of /proc/PID/smaps."""
    head = ""
    with Path(f"/proc/{process}/smaps").open() as maps, Path(f"/proc/{process}/mem").open("rb", 0) as memory:
        for line in maps:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                head = line.strip()
            elif line.startswith("VmFlags:") and " wr " in line and " dd" not in line and " io " not in line:
                start, end = (int(number, 16) for number in head.split()[0].split("-"))
                for at in range(start, end, LARGEST_PIECE):
                    memory.seek(at)
                    try:
                        # Some more, for what lies across the border.
                        yield head, memory.read(min(LARGEST_PIECE + 64, end - at))
                    except OSError:  # Not readable, such as [vvar].
                        break


@pytest.fixture(scope="module")
def template() -> Iterator[RankTemplate]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GYRE_")}
    running = RankTemplate({**kept, "PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1"})
    yield running
    running.close()


def derived(secret: bytes, purpose: str) -> bytes:
    return hmac.digest(secret, purpose.encode(), "sha256")


@pytest.mark.parametrize("body", [rank_of_a_process_group, rank_of_a_job])
def test_no_key_is_in_memory_that_a_core_dump_contains(template: RankTemplate, tmp_path: Path, body: object) -> None:
    secret = secrets.token_bytes(32)
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_bytes(secret)
    port = free_port()
    job_id = f"gyre job torchrun none 127.0.0.1 {port} 0"
    shared = derived(secret, "gyre torch secret")
    keys = [
        secret,
        shared,
        *(derived(shared, f"gyre torch {what}") for what in ("store", "group")),
        derived(secret, job_id),
    ]
    ranks = []
    for rank in range(2):
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(PACKAGE),
            "OMP_NUM_THREADS": "1",
            "GYRE_KEY_FILE": str(key),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        with (tmp_path / f"output-{rank}").open("wb") as output:
            ranks.append(template.fork([__file__, body.__name__], environment, tmp_path, output, {}))  # type: ignore[attr-defined]
    try:
        wait_until("the ranks are ready", lambda: all((tmp_path / f"ready-{rank}").exists() for rank in range(2)))
        looked_at = 0
        for rank in ranks:
            for head, memory in dumped_memory(rank.pid):
                looked_at += len(memory)
                assert not any(one in memory for one in keys), head
        assert looked_at > 1 << 20
    finally:
        (tmp_path / "enough").touch()
        codes = [rank.wait() for rank in ranks]
    assert codes == [0, 0], [(tmp_path / f"output-{rank}").read_text() for rank in range(2)]
