"""Where this process's program is now, as shown for every rank in a stall report."""

from __future__ import annotations

import linecache
import signal
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

_PACKAGE = str(Path(__file__).parent)
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})

# How many threads besides the main one are described, and how long a line of source may be.
_MOST_THREADS = 2
_LONGEST_LINE = 80
# Packages whose functions add nothing to the program's own line.
_TELL_NOTHING = ("gyre", "torch")


def describe() -> str:
    """ "train.py:41 in main(): `loss.backward()`" for the main thread, and what other threads wait for in Gyre."""
    frames = sys._current_frames()
    # This function's own frame would keep `frames`, and with it all of their contents, alive until a garbage
    # collection.
    frames.pop(threading.get_ident(), None)
    main = threading.main_thread()
    positions = [_position(frames[main.ident])] if main.ident in frames else []
    others = [
        f"thread '{thread.name}' at {_position(frames[thread.ident])}"
        for thread in threading.enumerate()
        if thread is not main and thread.ident in frames and _is_of_a_program_in_gyre(frames[thread.ident])
    ]
    return "; ".join(positions + others[:_MOST_THREADS])


# Loops of libraries, which never call the program or a collective operation: the module, and the outermost function.
_LIBRARY_LOOPS = {
    ("tqdm._monitor", "run"),
    ("multiprocessing.queues", "_feed"),
    ("tensorboard.summary.writer.event_file_writer", "run"),
    ("torch.utils.data._utils.pin_memory", "_pin_memory_loop"),
}
# By the code of such a loop of Gyre: whether its thread, with this frame, can do nothing before another gives it work.
_own_loops: dict[CodeType, Callable[[FrameType], bool]] = {}


def register_loop(loop: CodeType, is_idle: Callable[[FrameType], bool]) -> None:
    """Threads that run `loop` are known: while `is_idle` says so of its frame, they bring nothing by themselves."""
    _own_loops[loop] = is_idle


# Each returns the numbers of threads that a library has started for itself.
_library_threads: list[Callable[[], list[int]]] = []
register_library_threads = _library_threads.append


def threads() -> list[tuple[int, str, bool]]:
    """All threads that run Python: their number, their name and place, and whether they only serve a library; and those
    of others that are known to do so."""
    frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)
    found = [
        (
            thread.native_id or 0,
            f"'{thread.name}' at {_position(frames[thread.ident])}",
            _serves_library(thread, frames),
        )
        for thread in threading.enumerate()
        if thread.ident in frames
    ]
    # It runs in the main thread, even while that waits. Whether a timer runs is of no use: it may just have expired.
    alarm = callable(signal.getsignal(signal.SIGALRM))
    found += [(0, "the program's handler of SIGALRM", False)] if alarm else []
    return found + [(number, "of a library", True) for numbers in _library_threads for number in numbers()]


def _serves_library(thread: threading.Thread, frames: dict[int, FrameType]) -> bool:
    assert thread.ident is not None
    stack = list(_stack(frames[thread.ident]))
    for frame in stack:
        is_idle = _own_loops.get(frame.f_code)
        if is_idle is not None:
            return is_idle(frame)
    if not all(frame.f_code.co_filename.startswith(_LIBRARIES) for frame in stack):
        return False
    return any((frame.f_globals.get("__name__"), frame.f_code.co_name) in _LIBRARY_LOOPS for frame in stack)


class PlaceInProgram(NamedTuple):
    """A line of the user's own code."""

    code: CodeType
    instruction: int  # To find the line takes long.

    def __str__(self) -> str:
        lines = (line for first, end, line in self.code.co_lines() if first <= self.instruction < end)
        return f"{self.code.co_filename}:{next(lines, None)} in {_function_of(self.code)}"


# By id(), because a code's hash takes long: most calls come through the same few functions.
_known_codes: dict[int, tuple[CodeType, bool]] = {}


def place_in_program(innermost: FrameType | None) -> PlaceInProgram | None:
    """The innermost line of the user's own code from here outwards; None if there is none on this thread's stack. For
    every call of a program: it takes about a microsecond."""
    frame = innermost
    while frame is not None:
        code = frame.f_code
        known = _known_codes.get(id(code))
        if known is None:
            known = _known_codes[id(code)] = (code, _is_of_the_user(frame))
        if known[1]:
            return PlaceInProgram(code, frame.f_lasti)
        frame = frame.f_back
    return None


def stacklevel_of_program() -> int:
    """The stacklevel for a warnings.warn() in the caller that points to the innermost line of the user's own code."""
    for level, frame in enumerate(_stack(sys._getframe(1)), start=1):
        if _is_of_the_user(frame):
            return level
    return 1


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    """From the innermost frame outwards."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_of_a_program_in_gyre(innermost: FrameType) -> bool:
    """Whether a thread belongs to the program and has called Gyre."""
    frames = list(_stack(innermost))
    return any(frame.f_code.co_filename.startswith(_PACKAGE) for frame in frames) and any(map(_is_of_the_user, frames))


def _is_of_the_user(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return not name.startswith((_PACKAGE, "<", *_LIBRARIES))


def _position(innermost: FrameType) -> str:
    """The innermost line of the user's own code, and what it has called."""
    for frame in _stack(innermost):
        if _is_of_the_user(frame):
            hidden = frame is innermost or innermost.f_globals.get("__name__", "").partition(".")[0] in _TELL_NOTHING
            called = "" if hidden else f", in {_function(innermost)}"
            return f"{_location(frame)}{_source(frame)}{called}"
    program = (frame for frame in _stack(innermost) if not frame.f_code.co_filename.startswith(_PACKAGE))
    return _location(next(program, innermost))


def _location(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {_function(frame)}"


def _function(frame: FrameType) -> str:
    return _function_of(frame.f_code)


def _function_of(code: CodeType) -> str:
    name = code.co_qualname if sys.version_info >= (3, 11) else code.co_name
    return name if name.startswith("<") else f"{name}()"


def _source(frame: FrameType) -> str:
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno, frame.f_globals).strip()
    return f": `{line[:_LONGEST_LINE]}`" if line else ""
