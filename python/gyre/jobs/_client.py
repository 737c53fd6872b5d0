"""What scripts and notebooks do with a job server."""

from __future__ import annotations

import codecs
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from gyre.errors import Error, InvalidArgumentError, NotFoundError, TimeoutError
from gyre.jobs._code_archive import archive_code
from gyre.jobs._connection import find_connection
from gyre.jobs._session import ServerError, Session, path_of

DEFAULT = "default"
_LONGEST_NAME = 64
_READ_AT_ONCE = 1 << 20
_DOWNLOAD_AT_ONCE = 8 << 20
_MOST_DOWNLOADS_OF_A_CHANGING_FILE = 5
_SHORTEST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 1.0
_NOT_FOUND = 404
_NO_SUCH_RANGE = 416


@dataclass(frozen=True)
class Job:
    """A job as it was when it was asked for. `resource` is all that the server says of it."""

    workspace: str
    experiment: str
    name: str
    resource: Mapping[str, Any]

    @property
    def state(self) -> str:
        """queued, running, terminating, succeeded or failed."""
        return str(self.resource["properties"]["executionState"])

    @property
    def has_ended(self) -> bool:
        return self.state in ("succeeded", "failed")

    @property
    def exit_code(self) -> int | None:
        """None until it has ended, and where no program of it has."""
        code = self.resource["properties"]["executionInfo"]["exitCode"]
        return None if code is None else int(code)

    @property
    def error(self) -> str:
        """Why it failed: "JobFailed: …"; empty where it did not."""
        errors = self.resource["properties"]["executionInfo"]["errors"]
        return "; ".join(f"{error['code']}: {error['message']}" for error in errors)


@dataclass(frozen=True)
class RemoteFile:
    """A file or directory of a job. `path` is the one below its output directory."""

    path: str
    is_directory: bool
    size: int


class Client:
    """A job server as one of its users sees it. `server` and `token`: as `find_connection` takes them; without them the
    server that the verbs of `gyre` find. `patience`: for how many seconds a server that is away is asked again. Not
    thread-safe."""

    def __init__(
        self,
        server: str | None = None,
        token: str | None = None,
        *,
        workspace: str | None = None,
        patience: float = 300.0,
    ) -> None:
        self.workspace = workspace or os.environ.get("GYRE_WORKSPACE") or DEFAULT
        self._session = Session(find_connection(server, token), patience)

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def submit(
        self,
        job: Mapping[str, Any] | str | os.PathLike[str] | None = None,
        *,
        command: Sequence[str] | None = None,
        nodes: int | None = None,
        processes: int = 1,
        name: str | None = None,
        experiment: str = DEFAULT,
        cluster: str | None = None,
        environment: Mapping[str, str] | None = None,
        code: str | os.PathLike[str] | None = None,
    ) -> Job:
        """Queues a job: the properties of a job.json, the file (JSON), or a `command` that runs under `gyre run` with
        so many `processes` on each of so many `nodes`. Without `cluster`, and where the job names none, the workspace's
        only one. `code`: a folder, in a copy of which the job runs on every node; .gyreignore, else .gitignore, leaves
        files out."""
        if (job is None) == (command is None):
            raise InvalidArgumentError("submit() takes a job or a command")
        properties = _properties_of_command(command, processes) if command is not None else _properties_of(job)
        if nodes is not None:
            properties["nodeCount"] = nodes
        if environment:
            given = [one for one in properties.get("environmentVariables", []) if one["name"] not in environment]
            added = [{"name": key, "value": value} for key, value in environment.items()]
            properties["environmentVariables"] = given + added
        if cluster is not None or not properties.get("cluster"):
            properties["cluster"] = {"id": cluster or self._only_cluster()}
        place = (self.workspace, experiment, name or _new_name(_stem_of(job, command)))
        self._session.json("PUT", path_of("workspaces", self.workspace, "experiments", experiment))
        query = None if code is None else {"code": self._upload(code)}
        resource = self._session.json("PUT", self._path(place), query, {"properties": properties})
        return Job(*place, resource)

    def _upload(self, folder: str | os.PathLike[str]) -> str:
        """Unless the server has it already; its SHA-256."""
        archive = archive_code(folder)
        place = path_of("workspaces", self.workspace, "code", archive.sha256)
        try:
            self._session.json("GET", place)
        except ServerError as missing:
            if missing.status != _NOT_FOUND:
                raise
            self._session.json("PUT", place, body=archive.data)
        return archive.sha256

    def job(self, name: str, experiment: str = DEFAULT) -> Job:
        """ServerError with the code JobNotFound where there is none."""
        place = (self.workspace, experiment, name)
        return Job(*place, self._session.json("GET", self._path(place)))

    def jobs(
        self, *, experiment: str | None = None, cluster: str | None = None, state: str | None = None
    ) -> Iterator[Job]:
        """The newest first, as they are asked for."""
        query = {"order": "newest"}
        query |= {
            key: value for key, value in {"experiment": experiment, "cluster": cluster, "state": state}.items() if value
        }
        for resource in self._session.list(path_of("workspaces", self.workspace, "jobs"), query):
            yield Job(self.workspace, resource["id"].split("/")[4], resource["name"], resource)

    def refresh(self, job: Job) -> Job:
        """The job as it is now."""
        place = (job.workspace, job.experiment, job.name)
        return Job(*place, self._session.json("GET", self._path(place)))

    def wait(self, job: Job, *, timeout: float | None = None, changed: Callable[[Job], None] | None = None) -> Job:
        """The job once it has ended. `changed` is called with it in each new state. TimeoutError after `timeout`
        seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        state = ""
        pause = _SHORTEST_PAUSE_SECONDS
        while True:
            job = self.refresh(job)
            if job.state != state:
                state, pause = job.state, _SHORTEST_PAUSE_SECONDS
                if changed is not None:
                    changed(job)
            if job.has_ended:
                return job
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"job '{job.name}' is still {job.state} after {timeout} s")
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def why(self, job: Job) -> str:
        """Why it waits and what would start it; why it failed."""
        answer = self._session.json("GET", self._path_of(job) + "/why")
        return " ".join([f"{answer['reason']}: {answer['message']}", *answer["remedies"]])

    def stop(self, job: Job) -> Job:
        """Ends a job that waits or runs; it fails."""
        self._session.json("POST", self._path_of(job) + "/terminate")
        return self.refresh(job)

    def delete(self, job: Job) -> None:
        """Deletes its record; its files stay. Deletion goes on after the call."""
        self._session.json("DELETE", self._path_of(job))

    def logs(self, job: Job, file: str = "stdout.txt", *, follow: bool = True) -> Iterator[str]:
        """The text of a log as it is written, until the job has ended: all of it, in whole characters, across restarts
        of the server. Bytes that are no UTF-8 become U+FFFD."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for data in self._log_bytes(job, file, follow):
            if text := decoder.decode(data):
                yield text
        if text := decoder.decode(b"", final=True):
            yield text

    def files(
        self, job: Job, output: str = "stdouterr", path: str = "", *, recursive: bool = False
    ) -> list[RemoteFile]:
        """What lies in an output directory (an id of outputDirectories, or stdouterr for the logs)."""
        query = {"outputdirectoryid": output, **({"directory": path} if path else {})}
        found: list[RemoteFile] = []
        for item in self._session.list(self._path_of(job) + "/files", query):
            name = item["name"]
            if name in ("", ".", "..") or "/" in name:
                continue  # No server of ours says so.
            is_directory = item["fileType"] == "directory"
            one = RemoteFile(
                f"{path}/{name}" if path else name, is_directory, item["properties"].get("contentLength", 0)
            )
            found.append(one)
            if recursive and is_directory:
                found += self.files(job, output, one.path, recursive=True)
        return found

    def download(
        self, job: Job, output: str = "stdouterr", path: str = "", to: str | os.PathLike[str] = "."
    ) -> list[Path]:
        """Copies a file, or all files of a directory, below the folder `to`; each is there once it is complete. Returns
        where they are."""
        try:
            wanted = [one.path for one in self.files(job, output, path, recursive=True) if not one.is_directory]
        except ServerError as error:
            if error.status != _NOT_FOUND or not path:
                raise
            wanted = [path]
        return [self._download(job, output, one, Path(to) / one) for one in wanted]

    def _download(self, job: Job, output: str, path: str, target: Path) -> Path:
        if any(segment in ("", ".", "..") for segment in path.split("/")):
            raise InvalidArgumentError(f"{path!r} is not a path below an output directory")
        source = self._path_of(job) + path_of("files", output, *path.split("/"))
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(target.name + ".part")
        try:
            for _ in range(_MOST_DOWNLOADS_OF_A_CHANGING_FILE):
                if self._copy(source, part):
                    return part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        raise Error(f"{path!r} changes while it is downloaded; try again once the job has ended")

    def _copy(self, source: str, part: Path) -> bool:
        """False when the file has changed on the way."""
        version = None
        with part.open("wb") as file:
            while True:
                data, now = self._read(source, file.tell(), _DOWNLOAD_AT_ONCE)
                if data and version not in (None, now):
                    return False
                version = now
                file.write(data)
                if len(data) < _DOWNLOAD_AT_ONCE:
                    return True

    def _read(self, source: str, begin: int, most: int) -> tuple[bytes, str | None]:
        """Bytes of a file from `begin` on, and which version of it this is."""
        try:
            response = self._session.send("GET", source, headers={"Range": f"bytes={begin}-{begin + most - 1}"})
            with response:
                return response.read(), response.headers["ETag"]
        except ServerError as error:
            if error.status != _NO_SUCH_RANGE:
                raise
            return b"", None

    def _log_bytes(self, job: Job, file: str, follow: bool) -> Iterator[bytes]:
        source = self._path_of(job) + path_of("files", "stdouterr", file)
        identity, begin, seen = "", 0, False
        pause = _SHORTEST_PAUSE_SECONDS
        while True:
            # First of all: what was written before the end is then sure to be listed below.
            ended = self.refresh(job).has_ended
            now, size = self._log_size(job, file)
            if now is not None:
                seen = True
                if now != identity or size < begin:  # Another attempt's.
                    identity, begin = now, 0
                while begin < size and (data := self._read(source, begin, min(_READ_AT_ONCE, size - begin))[0]):
                    begin += len(data)
                    pause = _SHORTEST_PAUSE_SECONDS
                    yield data
            if ended or not follow:
                if not seen and not follow:
                    raise NotFoundError(f"job '{job.name}' has no log {file!r} yet")
                return
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _log_size(self, job: Job, file: str) -> tuple[str | None, int]:
        """Which file this is, and its size; None where there is none yet."""
        try:
            for item in self._session.list(self._path_of(job) + "/files", {"outputdirectoryid": "stdouterr"}):
                if item["name"] == file and item["fileType"] == "file":
                    return item["properties"]["fileId"], item["properties"]["contentLength"]
        except ServerError as error:
            if error.status != _NOT_FOUND:
                raise
        return None, 0

    def _only_cluster(self) -> str:
        names = [one["name"] for one in self._session.list(path_of("workspaces", self.workspace, "clusters"))]
        if len(names) == 1:
            return str(names[0])
        if not names:
            raise NotFoundError(f"workspace '{self.workspace}' has no cluster; `gyre cluster create NAME --target N`")
        raise InvalidArgumentError(f"name a cluster: {', '.join(names)}")

    @staticmethod
    def _path(place: tuple[str, str, str]) -> str:
        workspace, experiment, job = place
        return path_of("workspaces", workspace, "experiments", experiment, "jobs", job)

    def _path_of(self, job: Job) -> str:
        return self._path((job.workspace, job.experiment, job.name))


def _properties_of(job: Mapping[str, Any] | str | os.PathLike[str] | None) -> dict[str, Any]:
    if isinstance(job, Mapping):
        return dict(job.get("properties", job))
    assert job is not None
    text = Path(job).read_text(encoding="utf-8")
    try:
        content = json.loads(text)
    except ValueError as failure:
        raise InvalidArgumentError(f"{os.fspath(job)} is not valid JSON: {failure}") from failure
    return dict(content.get("properties", content))


def _properties_of_command(command: Sequence[str], processes: int) -> dict[str, Any]:
    settings = {"program": list(command), "processesPerNode": processes}
    return {"nodeCount": 1, "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_TEMP_DIR", "gyreSettings": settings}


def _stem_of(job: Mapping[str, Any] | str | os.PathLike[str] | None, command: Sequence[str] | None) -> str:
    """What a job is called: its file, its script, else its program."""
    if command is not None:
        return Path(next((word for word in command if word.endswith((".py", ".sh"))), command[0])).stem
    return Path(job).stem if isinstance(job, str | os.PathLike) else "job"


def _new_name(stem: str) -> str:
    """A name that no other submission has."""
    suffix = f"-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    plain = re.sub(r"[^A-Za-z0-9_-]", "-", stem) or "job"
    return plain[: _LONGEST_NAME - len(suffix)] + suffix
