"""What the tests of `gyre stage` share: calling it, and comparing folders with what sources hold."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MIB = 1 << 20
NOTHING: Mapping[str, str] = {}


def run_stage(
    gyre: Path, *words: str | Path, environment: Mapping[str, str] = NOTHING, given: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(gyre), "stage", *map(str, words)],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment},
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def receipt_of(folder: Path) -> dict[str, Any]:
    receipt = json.loads((folder / ".gyre-stage/receipt.json").read_text())
    assert isinstance(receipt, dict)
    return receipt


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below, but for what gyre stage keeps for itself."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".gyre-stage" not in path.parts
    }


def some_files(seed: int, count: int = 12, largest: int = 200_000) -> dict[str, bytes]:
    generator = random.Random(seed)
    names = [f"part_{i:03d}.bin" for i in range(count - 2)] + ["empty", "ü & <x>.txt"]
    return {name: b"" if name == "empty" else generator.randbytes(generator.randrange(1, largest)) for name in names}


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, body in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(body)
