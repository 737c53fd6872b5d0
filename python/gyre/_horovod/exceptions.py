"""horovod.common.exceptions."""

from __future__ import annotations

from gyre.errors import Error

__all__ = [
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "get_version_mismatch_message",
]

#: The base class of all failures of Gyre.
HorovodInternalError = Error


class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818  Horovod's name.
    """Never raised: the ranks of a job do not change. Scripts for elastic training name it in `except`."""

    def __init__(self, skip_sync: bool) -> None:
        super().__init__(skip_sync)
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """Never raised: Gyre is not compiled for one version of a framework."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    return f"built for {name} {installed_version}, but version {version} is installed"
