"""Gyre's exceptions. One base class, `Error`; if Python has a class for the kind of failure, that is a base too."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "AbortedError",
    "AuthenticationError",
    "CallOrderError",
    "CorruptDataError",
    "Error",
    "InvalidArgumentError",
    "MismatchError",
    "NotFoundError",
    "PeerLeftError",
    "PeerLostError",
    "ShutDownError",
    "TimeoutError",
    "UnsupportedError",
    "error_from_code",
]

_BuiltinTimeoutError = TimeoutError


class Error(RuntimeError):
    """A failure that Gyre reports. `code` is a stable word ("MISMATCH", "PEER_LOST", …) for programs."""

    code: str = "INTERNAL"

    if not TYPE_CHECKING:
        # TensorFlow's tracer leaves exceptions that have this as they are; others it hides in a text of its own.
        ag_pass_through = True

    def __reduce__(self) -> tuple[object, ...]:
        return error_from_code, (self.code, str(self))


class InvalidArgumentError(Error, ValueError):
    """The caller's input is invalid: a shape, a type, a name that is already in flight."""

    code = "INVALID_ARGUMENT"


class CallOrderError(InvalidArgumentError, AssertionError):
    """Calls in an order that would lose or mix gradients; Horovod raises AssertionError for them."""


class MismatchError(Error):
    """Ranks disagree about an operation; the message shows both sides, and every rank gets it."""

    code = "MISMATCH"


class TimeoutError(Error, _BuiltinTimeoutError):
    """A deadline passed."""

    code = "TIMEOUT"


class PeerLostError(Error):
    """A rank died or its connection broke; the message names it."""

    code = "PEER_LOST"


class PeerLeftError(Error):
    """A rank shut down while others still needed it."""

    code = "PEER_LEFT"


class AbortedError(Error):
    """A rank ended the job for all ranks; the message contains its reason."""

    code = "ABORTED"


class AuthenticationError(Error):
    """Another process could not prove that it belongs to the job."""

    code = "AUTHENTICATION"


class CorruptDataError(Error, ValueError):
    """Stored or received bytes fail their checksum or format."""

    code = "CORRUPT_DATA"


class NotFoundError(Error, LookupError):
    """A file, command or name does not exist."""

    code = "NOT_FOUND"


class UnsupportedError(Error, NotImplementedError, ValueError):
    """Valid, but not available here. Horovod raises one or the other of these bases."""

    code = "UNSUPPORTED"


class ShutDownError(Error, ValueError):
    """The runtime is not running: init() was not called (a ValueError in Horovod), or shutdown() was."""

    code = "SHUT_DOWN"


_CLASSES: dict[str, type[Error]] = {
    class_.code: class_
    for class_ in (
        InvalidArgumentError,
        MismatchError,
        TimeoutError,
        PeerLostError,
        PeerLeftError,
        AbortedError,
        AuthenticationError,
        CorruptDataError,
        NotFoundError,
        UnsupportedError,
        ShutDownError,
    )
}


def error_from_code(code: str, message: str) -> Error:
    """The exception for one of the engine's codes (gyre/base/error.h); `Error` itself for a code without a class."""
    class_ = _CLASSES.get(code)
    if class_ is not None:
        return class_(message)
    error = Error(message)
    error.code = code
    return error
