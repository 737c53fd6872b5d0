"""The job server's client for scripts and notebooks."""

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
    """A job's state at the time of the request. `resource` is everything that the server reports about it."""

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
        """None until the job has ended, or if none of its programs has exited."""
        code = self.resource["properties"]["executionInfo"]["exitCode"]
        return None if code is None else int(code)

    @property
    def error(self) -> str:
        """Why it failed: "JobFailed: …"; empty if it did not fail."""
        errors = self.resource["properties"]["executionInfo"]["errors"]
        return "; ".join(f"{error['code']}: {error['message']}" for error in errors)


@dataclass(frozen=True)
class RemoteFile:
    """A file or directory of a job. `path` is the one below its output directory."""

    path: str
    is_directory: bool
    size: int


class Client:
    """A job server as seen by one of its users. `server` and `token`: see `find_connection`; by default the server
    that the commands of `gyre` find. `patience`: for how many seconds requests to an unreachable server are retried.
    Not thread-safe."""

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
        gpus_per_node: int | None = None,
        cpus_per_node: int | None = None,
        memory_per_node: str | None = None,
        timeline: bool = False,
        processes: int | None = None,
        servers: int | None = None,
        restarts: int | None = None,
        retries: int | None = None,
        name: str | None = None,
        experiment: str = DEFAULT,
        cluster: str | None = None,
        environment: Mapping[str, str] | None = None,
        code: str | os.PathLike[str] | None = None,
        requirements: str | os.PathLike[str] | Sequence[str] | None = None,
        output: Sequence[str] = (),
        strict: bool = False,
    ) -> Job:
        """Queues a job: the properties of a job.json, the file (JSON), or a `command` that runs under `gyre run`
        with this number of `processes` (1) on each of `nodes` nodes, and this number of parameter `servers` (0) for
        all of them; if it fails it is started again, at most `restarts` (0) times; after failures that are not its own
        there are at most `retries` (0) further attempts, and 19 more after lost nodes, unless it is given as 0. Without
        `cluster`, and if the job names none, it uses the only cluster of the workspace. `gpus_per_node`: only this job
        sees them; without a number it has its nodes' share. `cpus_per_node`, `memory_per_node` ("16gb"): what the job
        may use at most on each node. `timeline`: each rank writes one, for the job's page. `code`: a folder; the job
        runs in a copy of it on every node. .gyreignore, or else .gitignore, excludes files. `requirements`: a pip
        requirements file, or its lines; each node makes a virtual environment of them, which is kept for later jobs.
        `output`: patterns ("*.pt", "results") of the files that the job writes there, to keep as directory "work".
        `strict`: what the server would warn of, such as a name that it does not know, is an error."""
        if (job is None) == (command is None):
            raise InvalidArgumentError("submit() takes either a job or a command")
        settings = {"processesPerNode": processes, "servers": servers, "restarts": restarts, "retries": retries}
        given_settings = {key: value for key, value in settings.items() if value is not None}
        if job is not None and given_settings:
            raise InvalidArgumentError(
                "processes, servers, restarts and retries are for a command; a job has them in gyreSettings"
            )
        properties = _properties_of_command(command, given_settings) if command is not None else _properties_of(job)
        if nodes is not None:
            properties["nodeCount"] = nodes
        if gpus_per_node is not None:
            properties["gpusPerNode"] = gpus_per_node
        if cpus_per_node is not None:
            properties["cpusPerNode"] = cpus_per_node
        if memory_per_node is not None:
            properties["memoryPerNode"] = memory_per_node
        if timeline:
            properties["timeline"] = True
        if requirements is not None:
            properties["requirements"] = _requirements_in(requirements)
        if output:
            properties["outputFiles"] = [*properties.get("outputFiles", []), *output]
        if environment:
            given = [one for one in properties.get("environmentVariables", []) if one["name"] not in environment]
            added = [{"name": key, "value": value} for key, value in environment.items()]
            properties["environmentVariables"] = given + added
        if cluster is not None or not properties.get("cluster"):
            properties["cluster"] = {"id": cluster or self._only_cluster()}
        place = (self.workspace, experiment, name or _new_name(_stem_of(job, command)))
        self._session.json("PUT", path_of("workspaces", self.workspace, "experiments", experiment))
        query = {} if code is None else {"code": self._upload(code)}
        if strict:
            query["strict"] = "true"
        resource = self._session.json("PUT", self._path(place), query or None, {"properties": properties})
        return Job(*place, resource)

    def _upload(self, folder: str | os.PathLike[str]) -> str:
        """Uploads it unless the server has it already; returns its SHA-256."""
        from gyre.core import _core  # noqa: PLC0415  All else works without the extension module.

        archive = _core.archive_code(os.fsencode(folder))
        place = path_of("workspaces", self.workspace, "code", archive.sha256)
        try:
            self._session.json("GET", place)
        except ServerError as missing:
            if missing.status != _NOT_FOUND:
                raise
            self._session.json("PUT", place, body=archive.data)
        return archive.sha256

    def job(self, name: str, experiment: str = DEFAULT) -> Job:
        """ServerError with the code JobNotFound if there is no such job."""
        place = (self.workspace, experiment, name)
        return Job(*place, self._session.json("GET", self._path(place)))

    def jobs(
        self, *, experiment: str | None = None, cluster: str | None = None, state: str | None = None
    ) -> Iterator[Job]:
        """Newest first; pages are requested as needed."""
        query = {"order": "newest"}
        query |= {
            key: value for key, value in {"experiment": experiment, "cluster": cluster, "state": state}.items() if value
        }
        for resource in self._session.list(path_of("workspaces", self.workspace, "jobs"), query):
            yield Job(self.workspace, resource["id"].split("/")[4], resource["name"], resource)

    def refresh(self, job: Job) -> Job:
        """The job's current state."""
        place = (job.workspace, job.experiment, job.name)
        return Job(*place, self._session.json("GET", self._path(place)))

    def wait(self, job: Job, *, timeout: float | None = None, changed: Callable[[Job], None] | None = None) -> Job:
        """Waits until the job has ended, and returns it. `changed` is called with it in each new state. TimeoutError
        after `timeout` seconds."""
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
        """Why it waits and what would start it, or why it failed."""
        answer = self._session.json("GET", self._path_of(job) + "/why")
        return " ".join([f"{answer['reason']}: {answer['message']}", *answer["remedies"]])

    def stop(self, job: Job) -> Job:
        """Stops a waiting or running job, which then counts as failed."""
        self._session.json("POST", self._path_of(job) + "/terminate")
        return self.refresh(job)

    def retry(self, job: Job) -> Job:
        """Queues a job again that has failed, as it was submitted. A job with secrets is submitted again instead."""
        self._session.json("POST", self._path_of(job) + "/retry")
        return self.refresh(job)

    def delete(self, job: Job) -> None:
        """Deletes its record; its files stay. Deletion continues after the call."""
        self._session.json("DELETE", self._path_of(job))

    def logs(self, job: Job, file: str = "stdout.txt", *, follow: bool = True) -> Iterator[str]:
        """The text of a log as it is written, until the job has ended: all of it, in whole characters, across
        restarts of the server. Bytes that are not valid UTF-8 become U+FFFD."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for data in self._log_bytes(job, file, follow):
            if text := decoder.decode(data):
                yield text
        if text := decoder.decode(b"", final=True):
            yield text

    def files(
        self, job: Job, output: str = "stdouterr", path: str = "", *, recursive: bool = False
    ) -> list[RemoteFile]:
        """The files in an output directory (an id of outputDirectories, or stdouterr for the logs)."""
        query = {"outputdirectoryid": output, **({"directory": path} if path else {})}
        found: list[RemoteFile] = []
        for item in self._session.list(self._path_of(job) + "/files", query):
            name = item["name"]
            if name in ("", ".", "..") or "/" in name:
                continue  # Our server never does this.
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
        """Copies a file, or all files of a directory, below the folder `to`; each file appears once it is complete.
        Returns their paths."""
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
        """False if the file has changed meanwhile."""
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
        """Bytes of a file from `begin` on, and the file's version."""
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
            # Read first: everything that was written before the end is then sure to be listed below.
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
        """The file's identity and size; None if there is none yet."""
        try:
            for item in self._session.list(self._path_of(job) + "/files", {"outputdirectoryid": "stdouterr"}):
                if item["name"] == file and item["fileType"] == "file":
                    return item["properties"]["fileId"], item["properties"]["contentLength"]
        except ServerError as error:
            if error.status != _NOT_FOUND:
                raise
        return None, 0

    def cluster(self, name: str | None = None) -> Mapping[str, Any]:
        """All that the server reports about a cluster of the workspace; without a name, the only one."""
        path = path_of("workspaces", self.workspace, "clusters", name or self._only_cluster())
        resource: Mapping[str, Any] = self._session.json("GET", path)
        return resource

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


def _requirements_in(given: str | os.PathLike[str] | Sequence[str]) -> list[str]:
    """The lines, or those of the file of that name."""
    if not isinstance(given, str | os.PathLike):
        return list(given)
    file = Path(os.fspath(given))
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"{file} is not UTF-8 text ({error}); save it as UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


def _properties_of_command(command: Sequence[str], settings: Mapping[str, int]) -> dict[str, Any]:
    return {
        "nodeCount": 1,
        "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_TEMP_DIR",
        "gyreSettings": {"program": list(command), **settings},
    }


def _stem_of(job: Mapping[str, Any] | str | os.PathLike[str] | None, command: Sequence[str] | None) -> str:
    """A job's name: that of its file or its script, else of its program."""
    if command is not None:
        return Path(next((word for word in command if word.endswith((".py", ".sh"))), command[0])).stem
    return Path(job).stem if isinstance(job, str | os.PathLike) else "job"


def _new_name(stem: str) -> str:
    """A name that is unique among submissions."""
    suffix = f"-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    plain = re.sub(r"[^A-Za-z0-9_-]", "-", stem) or "job"
    return plain[: _LONGEST_NAME - len(suffix)] + suffix
