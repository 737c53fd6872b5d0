"""Workers in containers: which image, and what of this machine they see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gyre.errors import InvalidArgumentError, NotFoundError, UnsupportedError
from gyre.jobs import Client
from gyre.workers._jobs import PATIENCE_SECONDS
from gyre.workers._worker import Container, JobPlace

PYTHON = "python3"
"""The one of the image."""

Image = str | Mapping[str, Any]


@dataclass(frozen=True)
class _Mount:
    """A folder of this machine that jobs of the cluster see."""

    name: str
    folder: Path


def container_of(image: Image | None, place: JobPlace | None, gpus: int, script: str) -> Container | None:
    """None: the workers run in no container. InvalidArgumentError, UnsupportedError; the errors of gyre.jobs.Client,
    because the server is asked what its containers see."""
    if image is None or place is None:
        return None
    if not isinstance(image, str | Mapping):
        raise InvalidArgumentError(f"image is {image!r}; a name such as 'python:3.12-slim' is needed, or a mapping")
    settings = {"imageSourceRegistry": {"image": image}} if isinstance(image, str) else dict(image)
    if not image:
        raise InvalidArgumentError("image is empty; the name of one is needed, such as 'python:3.12-slim'")
    if gpus > 0:
        raise UnsupportedError("nvidia_gpu is for workers without image: GPUs are not passed into containers yet")
    cluster = _ask_server(place)
    folder = Path.cwd()
    mounts = _mounts_of(cluster)
    # Of several the innermost: nothing is mounted below it.
    around = [mount for mount in mounts if folder.is_relative_to(mount.folder)]
    mount = max(around, key=lambda one: len(one.folder.parts), default=None)
    if script and (mount is None or not Path(script).resolve().is_relative_to(mount.folder)):
        seen = ", ".join(str(one.folder) for one in mounts) or "none"
        raise InvalidArgumentError(
            f"a container sees those folders alone that its cluster mounts ({seen}), and {Path(script).resolve()} "
            "has to be in the one that you launch from; make the cluster with --mount NAME=DIR, or give code instead"
        )
    return Container(settings, *((str(mount.folder), mount.name) if mount is not None else ("", "")))


def _ask_server(place: JobPlace) -> Mapping[str, Any]:
    """About its cluster."""
    try:
        client = Client(place.server, patience=PATIENCE_SECONDS)
    except NotFoundError as failure:
        raise NotFoundError(f"workers in containers are jobs of a job server that root runs; {failure}") from failure
    with client:
        return client.cluster(place.cluster)


def _mounts_of(cluster: Mapping[str, Any]) -> list[_Mount]:
    settings = cluster["properties"].get("gyreSettings") or {}
    return [_Mount(name, Path(folder).resolve()) for name, folder in (settings.get("mounts") or {}).items()]
