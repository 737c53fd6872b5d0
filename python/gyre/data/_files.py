"""Files of object stores, web servers and this machine as Python's file objects."""

from __future__ import annotations

import io
import os

from gyre.core import _core

_BUFFER_BYTES = 1 << 20


class _RawFile(io.RawIOBase):
    def __init__(self, name: str | os.PathLike[str]) -> None:
        super().__init__()
        self._file = _core.DataFile(os.fsencode(name))
        self._position = 0

    @property
    def name(self) -> str:
        return self._file.name

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size}[whence]
        if start + offset < 0:
            raise ValueError(f"position {start + offset} lies before the beginning of the file")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer).cast("B")
        found = self._file.read(self._position, len(view))
        view[: len(found)] = found
        self._position += len(found)
        return len(found)

    def readall(self) -> bytes:
        """At once: io.RawIOBase reads 8 KiB at a time, each of which could be a request."""
        rest = self._file.read(self._position, self._file.size)
        self._position += len(rest)
        return rest


def open_file(name: str | os.PathLike[str]) -> io.BufferedReader:
    """Opens a file for reading by its URL ("az://data/train.csv", "s3://bucket/key", "https://host/file") or path, as a
    binary file object, which pandas.read_csv, torch.load and others take. It is read in ranges, all of them of one
    version: a file that changes meanwhile is an error. Credentials come from the environment, as for `gyre stage`.

    Raises gyre.errors.Error: NOT_FOUND, AUTHENTICATION, IO, CORRUPT_DATA.
    """
    return io.BufferedReader(_RawFile(name), _BUFFER_BYTES)
