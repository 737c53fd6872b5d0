"""The program of gyre.run()'s ranks: `python -m gyre.launch.call FOLDER`."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from pathlib import Path

import cloudpickle

from gyre.launch.function import CALL_FILE


def main() -> int:
    folder = Path(sys.argv[1])
    rank = os.environ["GYRE_RANK"]
    try:
        function, args, kwargs = pickle.loads((folder / CALL_FILE).read_bytes())
        result = cloudpickle.dumps(function(*args, **kwargs))  # Also of a class that only the script has.
    except Exception:
        _write(folder / f"failure-{rank}.txt", traceback.format_exc().encode(errors="backslashreplace"))
        raise
    _write(folder / f"result-{rank}.pickle", result)
    return 0


def _write(path: Path, content: bytes) -> None:
    """All or nothing: this process may be ended at any time."""
    part = path.with_suffix(".part")
    part.write_bytes(content)
    part.rename(path)


if __name__ == "__main__":
    sys.exit(main())
