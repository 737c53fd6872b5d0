"""Limits of time that are promised are measured by a Stopwatch: it must leave out what the machine is late by."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from machine import free_port

SUPPORT = Path(__file__).resolve().parents[1] / "support"
SCRIPT = """
import sys
from machine import Stopwatch
with Stopwatch() as watch:
    print("ready", flush=True)
    sys.stdin.read()
print(watch.elapsed_seconds, watch.seconds)
"""


def test_a_machine_that_stands_still_is_not_counted() -> None:
    command = [sys.executable, "-c", SCRIPT]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(SUPPORT)}
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        process.send_signal(signal.SIGCONT)
        process.stdin.close()
        elapsed, counted = map(float, process.stdout.read().split())
    assert elapsed >= 0.5
    assert counted <= elapsed - 0.45


def test_a_free_port_is_none_that_the_kernel_gives_away() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert free_port() < lowest
