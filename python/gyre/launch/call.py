"""The program of gyre.run()'s ranks: `python -m gyre.launch.call FOLDER`."""

from __future__ import annotations

import inspect
import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

import cloudpickle

from gyre.errors import InvalidArgumentError
from gyre.launch.function import CALL_FILE


def main() -> int:
    folder = Path(sys.argv[1])
    rank = os.environ["GYRE_RANK"]
    try:
        function, args, kwargs = pickle.loads((folder / CALL_FILE).read_bytes())
        result = _pickled(function(*args, **kwargs))
    except Exception:
        _write(folder / f"failure-{rank}.txt", traceback.format_exc().encode(errors="backslashreplace"))
        raise
    _write(folder / f"result-{rank}.pickle", result)
    return 0


def _pickled(result: Any) -> bytes:
    """Also of a class that only the script has."""
    try:
        dumped: bytes = cloudpickle.dumps(result)
    except Exception as error:
        advice = "; call it in another function, with asyncio.run()" if inspect.iscoroutine(result) else ""
        raise InvalidArgumentError(
            f"the function's result, {result!r}, cannot be sent to the process that called gyre.run(): {error}{advice}"
        ) from None
    return dumped


def _write(path: Path, content: bytes) -> None:
    """All or nothing: this process may be ended at any time."""
    part = path.with_suffix(".part")
    part.write_bytes(content)
    part.rename(path)


if __name__ == "__main__":
    sys.exit(main())
