"""A worker as a job of the job service, on a node of this machine."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gyre.errors import Error
from gyre.jobs import Client
from gyre.workers._keeper import KEY
from gyre.workers._limits import cores_in_container
from gyre.workers._worker import JobPlace, Request

_EXPERIMENT = "workers"
PATIENCE_SECONDS = 30.0
_KEEPER = Path(__file__).parent / "_keeper.py"

Show = Callable[[list[str], bool], None]
Finish = Callable[[int | None, str], None]


class JobProcess:
    """A job of one node, whose program is the keeper. Its logs are followed by two threads."""

    def __init__(self, place: JobPlace, request: Request, control: str, key: str, worker: str, session: str) -> None:
        """Submits the job. Error if the server refuses it or cannot be reached."""
        self._place = place
        # As a text, because the job's user may not be able to read Gyre's files.
        program = [request.python, "-I", "-S", "-c", _KEEPER.read_text(encoding="utf-8"), control, worker]
        properties: dict[str, Any] = {
            "nodeCount": 1,
            "gpusPerNode": request.gpus,
            "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_TEMP_DIR",
            "gyreSettings": {"program": program, "processesPerNode": 1},
            "secrets": [{"name": KEY, "value": key}],
        }
        if request.container is not None:
            properties |= {
                "containerSettings": dict(request.container.settings),
                "cpusPerNode": cores_in_container(request.cpu),
                "memoryPerNode": f"{int(request.memory * 1024)}m",
            }
        with self._client() as client:
            name = f"{worker}-{session}"
            self._job = client.submit(properties, name=name, experiment=_EXPERIMENT, cluster=place.cluster, strict=True)

    def follow(self, show: Show, finish: Finish) -> None:
        """Calls `show` with the lines of output, and whether they are stderr's; at the end `finish` with the exit code,
        None if there is none, and what the service says of the failure. On threads of its own."""
        errors = threading.Thread(target=self._follow_log, args=("stderr.txt", show), daemon=True)
        errors.start()

        def follow() -> None:
            self._follow_log("stdout.txt", show)
            errors.join()
            try:
                with self._client() as client:
                    ended = client.wait(self._job)
                    finish(ended.exit_code, ended.error)
            except Error as failure:
                finish(None, str(failure))

        threading.Thread(target=follow, daemon=True).start()

    def stop(self) -> None:
        with contextlib.suppress(Error), self._client() as client:  # It may have ended.
            client.stop(self._job)

    def kill(self) -> None:
        self.stop()

    def _follow_log(self, file: str, show: Show) -> None:
        rest = ""
        with contextlib.suppress(Error), self._client() as client:  # follow() reports what is wrong with the job.
            for text in client.logs(self._job, file):
                *lines, rest = (rest + text).split("\n")
                show(lines, file == "stderr.txt")
        if rest:
            show([rest], file == "stderr.txt")

    def _client(self) -> Client:
        return Client(self._place.server, patience=PATIENCE_SECONDS)
