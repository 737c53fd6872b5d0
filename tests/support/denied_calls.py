"""System calls that the kernel refuses, as in a container with a seccomp profile.

`python denied_calls.py process_vm_readv,pidfd_getfd -- COMMAND…` runs a command without them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Sequence

# Numbers of system calls, by machine: of x86-64, and of those that use the generic table.
_NUMBERS = {
    "memfd_create": (319, 279),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "process_vm_readv": (310, 270),
}
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_SET_NO_NEW_PRIVILEGES, _SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _FAIL_WITH = 0x7FFF0000, 0x00050000
_OFFSET_OF_NUMBER, _OFFSET_OF_ARCHITECTURE = 0, 4


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def deny(names: Sequence[str], error: int = errno.EPERM) -> None:
    """From now on these calls of this process, and of the processes that it makes, fail with `error`."""
    architecture, column = _ARCHITECTURES[platform.machine()]
    program = [
        _instruction(_LOAD_WORD, _OFFSET_OF_ARCHITECTURE),
        _instruction(_JUMP_IF_EQUAL, architecture, if_true=1),
        _instruction(_RETURN, _ALLOW),
        _instruction(_LOAD_WORD, _OFFSET_OF_NUMBER),
    ]
    for name in names:
        program.append(_instruction(_JUMP_IF_EQUAL, _NUMBERS[name][column], if_false=1))
        program.append(_instruction(_RETURN, _FAIL_WITH | error))
    program.append(_instruction(_RETURN, _ALLOW))
    code = ctypes.create_string_buffer(b"".join(program))
    filter_program = _Program(len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
    if libc.prctl(_SET_SECCOMP, _MODE_FILTER, ctypes.byref(filter_program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_SECCOMP")


if __name__ == "__main__":
    deny(sys.argv[1].split(","))
    os.execvp(sys.argv[3], sys.argv[3:])
