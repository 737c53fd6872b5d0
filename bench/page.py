"""The page compared with TensorBoard: the same Chromium, and values of 64 ranks; the page also has a log of 1 GB.
And, of the page alone, the timeline of 64 ranks."""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
GYRE = ROOT / "build" / "release" / "bin" / "gyre"
RANKS = 64
STEPS_IN_BLOCK = 80
BEGAN_US = 1_750_000_000_000_000
BETWEEN_US = 63  # The largest difference of one byte.
LONGEST_WAIT_SECONDS = 60


def zigzag(number: int) -> bytes:
    """A non-negative difference of docs/formats/metrics.md."""
    left, out = number * 2, bytearray()
    while left >= 128:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes([*out, left])


def crc32c(blocks: np.ndarray) -> np.ndarray:
    """Of each row; a byte of all rows at a time."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(0x82F63B78), table >> 1).astype(np.uint32)
    crc = np.full(len(blocks), 0xFFFFFFFF, dtype=np.uint32)
    for column in np.ascontiguousarray(blocks.T):
        crc = table[(crc ^ column) & 255] ^ crc >> 8
    return crc ^ np.uint32(0xFFFFFFFF)


def body_of(first_step: int, values: np.ndarray) -> bytes:
    """A block of samples: for each step, one of each rank."""
    samples = np.zeros((*values.shape, 12), dtype=np.uint8)
    samples[..., 1] = np.arange(RANKS)
    samples[:, 0, 2] = 2
    samples[..., 3] = 2 * BETWEEN_US
    samples[..., 4:] = values.astype("<f8")[..., None].view(np.uint8)
    new_names = b"\x01\x0atrain/loss" if first_step == 0 else b"\x00"
    time_us = BEGAN_US + first_step * RANKS * BETWEEN_US
    head = b"\x00\x00" + zigzag(first_step) + zigzag(time_us) + samples[0, 0, 4:].tobytes()
    return b"\x01" + new_names + head + samples.tobytes()[12:]


def write_metrics(file: Path, steps: int) -> None:
    random = np.random.default_rng(1)
    bodies = []
    for first in range(0, steps, STEPS_IN_BLOCK):
        step = np.arange(first, min(first + STEPS_IN_BLOCK, steps))[:, None]
        values = 2 / (1 + step / 5000) + 0.002 * np.arange(RANKS) + random.normal(0, 0.05, (len(step), RANKS))
        bodies.append(body_of(first, values))
    checksums: dict[int, int] = {}
    for size in {len(body) for body in bodies}:
        places = [place for place, body in enumerate(bodies) if len(body) == size]
        rows = np.frombuffer(b"".join(size.to_bytes(4, "little") + bodies[place] for place in places), dtype=np.uint8)
        checksums.update(zip(places, crc32c(rows.reshape(len(places), -1)).tolist(), strict=True))
    with file.open("wb") as out:
        out.write(b"gyremet1")
        for place, body in enumerate(bodies):
            out.write(len(body).to_bytes(4, "little") + checksums[place].to_bytes(4, "little") + body)


LOG_WRITER = """
import sys, time
line = "".join(f"step {i:6} loss 0.1234567 accuracy 0.98 images/s 1234.5 and more to read\\n" for i in range(10000))
for _ in range(int(sys.argv[1]) // len(line) + 1): sys.stdout.write(line)
sys.stdout.flush(); open("written", "w").close(); time.sleep(3600)
"""


def wait_for(what: str, found: Any) -> Any:
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while time.monotonic() < deadline:
        if result := found():
            return result
        time.sleep(0.1)
    raise TimeoutError(what)


@contextmanager
def our_page(folder: Path, log_bytes: int) -> Iterator[str]:
    """The recorded run is compared with one that has written the log."""
    (folder / "writer.py").write_text(LOG_WRITER)
    options = ["-n", "1", "--page", "--log-dir", "logs", "--compare", "recorded.metrics"]
    command = [GYRE, "run", *options, "--", sys.executable, "writer.py", str(log_bytes)]
    with (folder / "errors").open("wb") as errors:
        job = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=errors)
    try:
        wait_for("the log", (folder / "written").exists)
        link = wait_for("the link", lambda: re.search(r"one browser: (\S+)", (folder / "errors").read_text()))
        yield link[1]
    finally:
        job.terminate()
        job.wait()


def write_traces(folder: Path, steps: int) -> None:
    """What 64 ranks write of so many steps of 10 ms (docs/guide/page.md), each with its own luck."""
    for rank in range(RANKS):
        random = np.random.default_rng(rank)
        head = {"name": "gyre", "start_time_since_epoch_in_micros": BEGAN_US + rank * BETWEEN_US}
        events: list[dict[str, Any]] = [{"name": "process_name", "ph": "M", "pid": 0, "args": head}]
        for row, name in ((1, "gyre: program"), (2, "gyre: open lane"), (3, "optimizer.0")):
            events.append({"name": "process_name", "ph": "M", "pid": row, "ts": 0, "args": {"name": name}})
        for step, (data, compute, exchange) in enumerate(
            random.integers((200, 3000, 1500), (900, 5000, 3000), (steps, 3))
        ):
            at = step * 10_000
            called, ended = at + data + compute, at + data + compute + exchange
            parts = f"wait {exchange // 3} copy {exchange // 8} reduce {exchange // 6} send {exchange // 5}"
            events.append({"ph": "X", "pid": 1, "tid": 0, "ts": at, "dur": data, "name": "WAIT_FOR_DATA"})
            events.append({"ph": "B", "pid": 3, "tid": 0, "ts": called - 500, "name": "NEGOTIATE_ALLREDUCE"})
            events.append({"ph": "E", "pid": 3, "tid": 0, "ts": called})
            for pid, name, detail in ((2, "COLLECTIVE", parts), (1, "WAIT_FOR_EXCHANGE", "optimizer.0")):
                span = {"ph": "X", "pid": pid, "tid": 0, "ts": called, "dur": ended - called, "name": name}
                events.append({**span, "args": {"detail": detail}})
        lines = ",\n".join(json.dumps(event, separators=(",", ":"), default=int) for event in events)
        (folder / f"recorded-{rank}").write_text(f"[\n{lines}\n]\n")


@contextmanager
def page_of_timelines(folder: Path) -> Iterator[str]:
    """Its ranks write at once what ranks would have written in some minutes."""
    options = ["-n", str(RANKS), "--page", "--timeline", "trace-{rank}.json"]
    script = 'cp "recorded-$GYRE_RANK" "trace-$GYRE_RANK.json"; exec sleep 3600'
    with (folder / "errors").open("wb") as errors:
        command = [GYRE, "run", *options, "--", "sh", "-c", script]
        job = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=errors)
    try:
        link = wait_for("the link", lambda: re.search(r"one browser: (\S+)", (folder / "errors").read_text()))
        yield link[1]
    finally:
        job.terminate()
        job.wait()


@contextmanager
def tensorboard(folder: Path) -> Iterator[str]:
    """Ready when it has read everything, which is not part of what is measured."""
    export = [GYRE, "metrics", "export", "recorded.metrics", "--format", "tensorboard", "--to", "curves"]
    subprocess.run(export, cwd=folder, check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", "curves", "--port", str(port)]
    with (folder / "tensorboard").open("wb") as output:
        server = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    try:
        link = f"http://127.0.0.1:{port}/"
        wait_for("TensorBoard", lambda: b"Press CTRL+C" in (folder / "tensorboard").read_bytes())
        time.sleep(10)
        yield link
    finally:
        server.terminate()
        server.wait()


def measure(which: str, link: str) -> dict[str, Any]:
    modules = ROOT / ".venv" / "browser" / "node_modules"
    words = ["node", ROOT / "bench" / "page.mjs", modules, which, link]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, timeout=2 * LONGEST_WAIT_SECONDS)
    row = {"bench": "page", "program": which, **json.loads(done.stdout), "load": round(os.getloadavg()[0], 1)}
    print(json.dumps(row), flush=True)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench page", description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--log-bytes", type=int, default=1_000_000_000)
    parser.add_argument("--timeline-steps", type=int, default=10_000)
    parser.add_argument("--only", choices=("charts", "timeline"), help="One half of it")
    parser.add_argument("--json", metavar="FILE", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        rows = []
        if arguments.only != "timeline":
            write_metrics(folder / "recorded.metrics", arguments.steps)
            with our_page(folder, arguments.log_bytes) as link:
                rows.append(measure("gyre", link))
            with tensorboard(folder) as link:
                rows.append(measure("tensorboard", link))
        if arguments.only != "charts":
            write_traces(folder, arguments.timeline_steps)
            with page_of_timelines(folder) as link:
                rows.append(measure("timeline", link))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
