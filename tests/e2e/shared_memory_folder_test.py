"""Containers come with a /dev/shm that is small, read-only or absent: jobs run, and `gyre doctor` says what it costs.

Each case is a mount namespace of its own with another /dev/shm.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs_root

PACKAGE = Path(__file__).resolve().parents[2] / "python"
READ_ONLY = "mount -t tmpfs -o ro,size=4g tmpfs /dev/shm"
SMALL = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
# A folder of /dev without it.
ABSENT = "mount -t tmpfs tmpfs /mnt && cp -a /dev/null /dev/zero /dev/urandom /dev/fd /mnt && mount --move /mnt /dev"

TRAINING = """
import torch, torch.distributed as dist
import gyre.distributed
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gyre")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(512, 512))
for _ in range(3):
    model(torch.full((4, 512), dist.get_rank() + 1.0)).sum().backward()
print("gradient", model.module.weight.grad.mean().item(), flush=True)
dist.destroy_process_group()
"""


def run_with(mount: str, command: list[str]) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": str(PACKAGE), "GYRE_PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}
    whole = ["unshare", "--mount", "sh", "-ec", f'{mount}; exec "$@"', "sh", *command]
    return subprocess.run(whole, capture_output=True, text=True, timeout=240, check=False, env=variables)


@pytest.mark.parametrize(
    ("mount", "words"),
    [
        (READ_ONLY, "read-only; Gyre needs it for DistributedDataParallel's buckets alone, and copies them now"),
        (SMALL, "those of all ranks here up to 32 MiB, larger ones are copied"),
        (ABSENT, "No such file or directory; Gyre needs it for DistributedDataParallel's buckets alone"),
    ],
)
def test_the_doctor_says_what_is_true_of_it(gyre: Path, mount: str, words: str) -> None:
    done = run_with(mount, [str(gyre), "doctor", "--no-self-test", "-o", "json"])
    assert done.returncode == 0, done.stdout + done.stderr
    found = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}["/dev/shm"]
    assert found["state"] == "note"
    assert words in found["text"]
    assert found["remedy"]


@pytest.mark.parametrize("mount", [READ_ONLY, ABSENT])
def test_ddp_trains_without_it(gyre: Path, mount: str) -> None:
    done = run_with(mount, [str(gyre), "run", "-n", "2", "--", sys.executable, "-c", TRAINING])
    assert done.returncode == 0, done.stdout + done.stderr
    # 3 passes, 4 rows, of ones on one rank and twos on the other.
    assert sorted(done.stdout.splitlines()) == ["[0] gradient 18.0", "[1] gradient 18.0"]
