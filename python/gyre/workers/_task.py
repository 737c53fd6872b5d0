"""The program of a run_cluster task: `python -m gyre.workers._task SOCKET ID ROLE INDEX ADDRESS FRAMEWORK MODULE`."""

from __future__ import annotations

import importlib
import json
import os
import secrets
import socket
import sys
import traceback
from types import ModuleType
from typing import Any

from gyre.workers._keeper import KEY, connect, send
from gyre.workers._objects import OURS, TENSORFLOW, framework_here, make_objects

# Below the ports that Linux gives to outgoing connections: a port that TensorFlow is about to bind stays free.
_LOWEST_PORT = 10_000
_HIGHEST_PORT = 32_000
_TRIES = 200


class _ReportedError(Exception):
    """Reported already."""


class _Task:
    def __init__(self, arguments: list[str]) -> None:
        path, worker, self.role, index, self.address, self.framework, self.module_name = arguments
        self.index = int(index)
        self._socket, _ = connect(path, {"task": worker})
        self._file = self._socket.makefile("rb")
        os.environ.pop(KEY, None)

    def send(self, message: dict[str, Any]) -> None:
        send(self._socket, message)

    def receive(self) -> dict[str, Any]:
        """The session's next message. SystemExit if the session has gone, which ends this process anyway."""
        line = self._file.readline()
        if not line:
            sys.exit(1)
        message: dict[str, Any] = json.loads(line)
        return message

    def attempt(self, phase: str, what: Any) -> Any:
        """The value of what(). Reports an exception, and shows it in this task's output."""
        try:
            return what()
        except Exception as failure:
            _show(failure)
            message = f"{type(failure).__name__}: {failure}" if str(failure) else type(failure).__name__
            self.send({"failure": {"phase": phase, "message": message}})
            raise _ReportedError from failure

    def load(self) -> ModuleType | None:
        if not self.module_name:
            return None
        module = importlib.import_module(self.module_name)
        if self.role == "worker" and not callable(getattr(module, "run", None)):
            raise AttributeError(
                f"{self.module_name} ({module.__file__}) has no function run(cluster, server, task_index)"
            )
        return module

    def run(self) -> None:
        module = self.attempt("start", self.load)
        self.attempt("start", self.choose_framework)
        listener = self.attempt("start", self.listen)
        self.send({"address": f"{self.address}:{listener.getsockname()[1]}", "framework": self.framework})
        spec = self.receive()["cluster"]
        cluster, server = self.attempt(
            "connect", lambda: make_objects(self.framework, spec, self.role, self.index, listener)
        )
        self.send({"ready": True})
        self.receive()  # All tasks are ready.
        if self.role == "worker" and module is not None:
            self.attempt("run", lambda: module.run(cluster, server, self.index))
            # The server stays: TensorFlow's sessions of other workers, even new ones, connect to all tasks.
            self.send({"returned": True})
            self.receive()
        elif hasattr(module, "serve") and self.framework == OURS:
            self.attempt("run", lambda: module.serve(cluster, server, self.index))
        else:
            server.join()

    def choose_framework(self) -> None:
        if not self.framework:
            self.framework = framework_here()
        if self.framework == TENSORFLOW:
            importlib.import_module("tensorflow")

    def listen(self) -> socket.socket:
        """A socket at a port that no other task has."""
        listener = socket.socket()
        if self.framework == OURS:
            listener.bind((self.address, 0))
            listener.listen()
            return listener
        for _ in range(_TRIES):
            try:
                # TensorFlow listens on all addresses.
                listener.bind(("", _LOWEST_PORT + secrets.randbelow(_HIGHEST_PORT - _LOWEST_PORT)))
                return listener
            except OSError:
                continue
        raise OSError(f"no free port from {_LOWEST_PORT} to {_HIGHEST_PORT} in {_TRIES} tries")


def _show(failure: Exception) -> None:
    """The traceback, from the first line that is not of this file on."""
    trace = failure.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    traceback.print_exception(type(failure), failure, trace)


def drop_empty_proxies() -> None:
    """gRPC takes an empty proxy variable for a proxy."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "grpc_proxy", "all_proxy", "ALL_PROXY"):
        if os.environ.get(name) == "":
            del os.environ[name]


def main() -> int:
    drop_empty_proxies()
    sys.path.insert(0, "")
    try:
        _Task(sys.argv[1:]).run()
    except _ReportedError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
