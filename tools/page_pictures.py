"""Makes the pictures of docs/guide/page.md anew, from a training on the digits with four ranks:

    ./dev build && .venv/bin/python tools/page_pictures.py

Needs what ./dev setup test installs (Chromium, playwright-core). Takes a minute; look at each picture afterwards.
"""

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "guide" / "pictures"
DIGITS = ROOT / "out" / "digits"
BIN = ROOT / "build" / "release" / "bin"
LONGEST_WAIT_SECONDS = 60


def link_in(output: Path) -> str:
    """What the launcher has printed."""
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while time.monotonic() < deadline:
        found = re.search(r"for one browser: (\S+)", output.read_text(encoding="utf-8"))
        if found:
            return found[1]
        time.sleep(0.05)
    raise TimeoutError(output.read_text(encoding="utf-8"))


def main() -> int:
    if not (DIGITS / ".complete").exists():
        subprocess.run(
            [sys.executable, "-m", "gyre.datasets", "digits", "--out", DIGITS], cwd=ROOT / "python", check=True
        )
        (DIGITS / ".complete").touch()
    FOLDER.mkdir(exist_ok=True)
    training: list[Path | str] = [
        BIN / "gyre-cifar10",
        "--data-dir",
        "digits",
        "--batch-size",
        "16",
        "--lr",
        "0.001",
        "--epochs",
        "100",
    ]
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "digits").symlink_to(DIGITS)
        output = Path(scratch) / "output"
        with output.open("wb") as stream:
            options = ["-n", "4", "--page", "--timeline", "trace.json"]
            command: list[Path | str] = [BIN / "gyre", "run", *options, "--", *training]
            job = subprocess.Popen(command, cwd=scratch, stdout=stream, stderr=stream)
        try:
            modules = Path(sys.prefix) / "browser" / "node_modules"
            script = ROOT / "tests" / "browser" / "page_pictures.mjs"
            subprocess.run(["node", script, modules, link_in(output), FOLDER], check=True)
        finally:
            job.terminate()
            job.wait()
    for picture in sorted(FOLDER.glob("page*.png")):
        print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size // 1024} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
