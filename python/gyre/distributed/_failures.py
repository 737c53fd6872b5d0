"""The errors of process groups: Gyre's errors, which here are torch.distributed's too, with the phrases that scripts
look for.

A script that catches `torch.distributed.DistBackendError`, or looks for "timed out" in the message, was written for
another backend and must keep working.
"""

from __future__ import annotations

import torch.distributed as dist

from gyre import errors

_TIMED_OUT = "timed out"


def _both(own: type[errors.Error], *of_torch: type[Exception]) -> type[errors.Error]:
    """A class with the name of Gyre's that also derives from each of torch's."""
    return type(own.__name__, (own, *of_torch), {"__doc__": own.__doc__, "__module__": own.__module__})


_CLASSES: dict[type[errors.Error], type[errors.Error]] = {
    errors.MismatchError: _both(errors.MismatchError, dist.DistBackendError),
    errors.TimeoutError: _both(errors.TimeoutError, dist.DistBackendError),
    errors.PeerLostError: _both(errors.PeerLostError, dist.DistBackendError, dist.DistNetworkError),
    errors.PeerLeftError: _both(errors.PeerLeftError, dist.DistBackendError, dist.DistNetworkError),
    errors.AbortedError: _both(errors.AbortedError, dist.DistBackendError),
    errors.AuthenticationError: _both(errors.AuthenticationError, dist.DistBackendError),
    errors.ShutDownError: _both(errors.ShutDownError, dist.DistBackendError),
    errors.Error: _both(errors.Error, dist.DistBackendError),
}
# torch's stores raise DistStoreError if a rank does not come to the rendezvous.
_RendezvousTimeout = _both(errors.TimeoutError, dist.DistBackendError, dist.DistStoreError)


def _worded(failure: errors.Error) -> str:
    text = str(failure)
    if isinstance(failure, errors.TimeoutError) and _TIMED_OUT not in text.lower():
        return f"Operation {_TIMED_OUT}: {text}"
    return text


def _remade(class_: type[errors.Error], failure: errors.Error) -> errors.Error:
    made = class_(_worded(failure))
    made.code = failure.code
    return made.with_traceback(failure.__traceback__)


def of_torch(failure: errors.Error) -> errors.Error:
    """`failure` as a process group raises it: of the same Gyre class, with the same code. An invalid argument is a
    ValueError in torch too, and stays as it is."""
    class_ = _CLASSES.get(type(failure))
    return failure if class_ is None else _remade(class_, failure)


def of_torch_rendezvous(failure: errors.Error) -> errors.Error:
    """The same for a group that could not be made."""
    if type(failure) is errors.TimeoutError:
        return _remade(_RendezvousTimeout, failure)
    return of_torch(failure)


class _RaisedAsTorchDoes:
    """Stateless, so one instance is enough. A generator-based context manager would cost a microsecond per message."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, errors.Error):
            raise of_torch(error) from None


# For `with`: errors raised within are converted by of_torch().
raised_as_torch_does = _RaisedAsTorchDoes()
