"""The workers of this process: starting them, hearing from them, showing their output, ending them."""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import hmac
import json
import os
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from gyre.errors import Error, NotFoundError
from gyre.workers._folder import make_folder, remove_stale_folders
from gyre.workers._jobs import JobProcess
from gyre.workers._keeper import address_of, parts_of_hello, parts_of_order, prove
from gyre.workers._limits import limits_in_container, limits_in_job, make_limits, remove_stale_cgroups
from gyre.workers._local import GRACE_SECONDS, LocalProcess
from gyre.workers._machine import Addresses, Gpus
from gyre.workers._order import SOCKET, jobs_socket, make_order
from gyre.workers._programs import change_path, write_horovodrun
from gyre.workers._ssh import SshAccess, find_server
from gyre.workers._strangers import Strangers
from gyre.workers._worker import UNKNOWN, JobPlace, Process, Request, Worker

_LONGEST_MESSAGE = 1 << 20
_PAUSE_WHEN_EXHAUSTED_SECONDS = 0.1
# To the session's thread.
_LOOK = b"l"
_CLOSE = b"c"
_AT_MEMORY_LIMIT = "because the job reached its memory limit"  # In the error of a job.
_NO_SUCH_COMMAND = 127  # As a shell says it.
_LAUNCHERS_PREFIX = "[0] "  # `gyre run` names its only rank.


class _Connection:
    """Of a keeper, or of a task of run_cluster."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.received = b""
        self.worker: Worker | None = None
        self.nonce = ""  # For the proof that a job knows the session's key.


class _Stream:
    """A launcher's stdout or stderr."""

    def __init__(self, worker: Worker, file: IO[bytes], is_error: bool) -> None:
        self.worker = worker
        self.file = file
        self.is_error = is_error
        self.received = b""


class Session:
    """All workers that this process has launched. Thread-safe. One daemon thread of its own handles what comes from
    them; the session ends with the process, and its workers with it, however the process ends."""

    def __init__(self) -> None:
        self.id = secrets.token_hex(8)
        self.changed = threading.Condition()
        self._workers: dict[str, Worker] = {}
        self._connections: dict[str, socket.socket] = {}  # Of tasks, by worker.
        self._open_streams: dict[str, int] = {}
        self._addresses = Addresses()
        self._gpus = Gpus()
        self._ssh: SshAccess | None = None
        self._ssh_was_tried = False
        self._notes: set[str] = set()
        self._setup = threading.Lock()
        remove_stale_folders(Path(tempfile.gettempdir()))
        remove_stale_cgroups()
        self.folder, self._lock = make_folder()
        self._fallbacks = self.folder / "bin"
        with contextlib.suppress(NotFoundError):  # Without `gyre` no worker of this machine starts, and says so.
            write_horovodrun(self._fallbacks)
            change_path(last=self._fallbacks)  # An installed Horovod has its own, which comes first.
        self._key = secrets.token_hex(32)
        self._jobs_socket: socket.socket | None = None
        self._strangers = Strangers[_Connection]()
        self._control = _listen(str(self.folder / SOCKET))
        self._wake_read, self._wake_write = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._control, selectors.EVENT_READ, lambda: self._accept(self._control))
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._woken)
        self._to_watch: list[tuple[Any, Callable[[], None]]] = []  # Descriptors, and what to do when they are readable.
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="gyre-workers", daemon=True)
        self._thread.start()

    # What callers do.

    def launch(self, request: Request) -> Worker:
        """Starts a worker; one that cannot be started has failed, and its message says why."""
        with self.changed:
            number = len(self._workers)
            worker = Worker(f"{request.name}-{number}", request, self._addresses.take(), "")
            worker.label = request.label or worker.id
            self._workers[worker.id] = worker
        try:
            if request.place is None:
                self._launch_here(worker)
            else:
                self._launch_job(worker, request.place)
        except (OSError, Error) as failure:
            with self.changed:
                worker.message = f"cannot launch it: {failure}"
                self._finish(worker, None)
        return worker

    def _launch_here(self, worker: Worker) -> None:
        request = worker.request
        with self._setup:
            if request.ssh and not self._ssh_was_tried:
                self._ssh_was_tried = True
                self._ssh = self._make_ssh()
        with self.changed:
            worker.gpus = self._gpus.take(request.gpus)
        worker.limits = make_limits(worker.id, request.cpu, request.memory)
        if worker.limits.data_bytes or worker.limits.cores:
            self._note("limits", f"limits of {worker.id}: {worker.limits.text}")
        process = LocalProcess(str(self.folder / SOCKET), worker.id)
        assert process.popen.stdout is not None
        assert process.popen.stderr is not None
        self._has_process(worker, process)
        with self.changed:
            self._open_streams[worker.id] = 2
            for file, is_error in ((process.popen.stdout, False), (process.popen.stderr, True)):
                stream = _Stream(worker, file, is_error)
                self._to_watch.append((file, functools.partial(self._read_output, stream)))
        self._wake()

    def _launch_job(self, worker: Worker, place: JobPlace) -> None:
        worker.address = UNKNOWN
        worker.has_node = False
        request = worker.request
        if request.container is None:
            worker.limits = limits_in_job(worker.id, request.cpu, request.memory)
        else:
            worker.limits = limits_in_container(request.cpu, request.memory)
        name = jobs_socket(self.id)
        with self.changed:
            worker.status = "scheduling"
            if self._jobs_socket is None:
                listener = self._jobs_socket = _listen(name)
                self._to_watch.append((listener, lambda: self._accept(listener)))
        self._wake()
        process = JobProcess(place, request, name, self._key, worker.id, self.id)
        self._has_process(worker, process)

        def finish(code: int | None, error: str) -> None:
            with self.changed:
                worker.launcher_lines.extend([error] if error else [])
                self._finish(worker, code, over_memory=_AT_MEMORY_LIMIT in error)

        process.follow(lambda lines, is_error: self._show(worker, is_error, lines), finish)

    def _has_process(self, worker: Worker, process: Process) -> None:
        with self.changed:
            worker.process = process
            if worker.asked_to_stop:
                process.stop()

    def workers(self) -> list[Worker]:
        with self.changed:
            return list(self._workers.values())

    def find(self, worker: str) -> Worker | None:
        with self.changed:
            return self._workers.get(worker)

    def wait(self, condition: Callable[[], bool], deadline: float | None) -> bool:
        """Until the condition holds, which is checked at every change of a worker; False at the deadline, a moment of
        time.monotonic()."""
        with self.changed:
            while not condition():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self.changed.wait(left)
        return True

    def stop(self, workers: Iterable[Worker]) -> None:
        """Ends them, and returns when they have ended."""
        workers = list(workers)
        with self.changed:
            for worker in workers:
                if not worker.has_ended and worker.exit_code is None:
                    worker.asked_to_stop = True
                    if worker.process is not None:
                        worker.process.stop()

        def ended() -> bool:
            return all(worker.has_ended for worker in workers)

        # The launcher kills what is left after the grace period.
        while not self.wait(ended, time.monotonic() + 2 * GRACE_SECONDS):
            with self.changed:
                for worker in workers:
                    if not worker.has_ended and worker.process is not None:
                        worker.process.kill()

    def send(self, worker: Worker, message: Mapping[str, Any]) -> None:
        """To the worker's task of run_cluster. A task that is gone is noticed otherwise."""
        with self.changed, contextlib.suppress(OSError, KeyError):
            self._connections[worker.id].sendall(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        """Ends all workers and removes what the session has made."""
        self.stop(self.workers())
        os.write(self._wake_write, _CLOSE)
        self._thread.join()
        if self._ssh is not None:
            change_path(remove=self._ssh.programs)
        change_path(remove=self._fallbacks)
        shutil.rmtree(self.folder, ignore_errors=True)

    def forget(self) -> None:
        """Closes all descriptors: at the session's end, and in a fork of its process, which would keep it alive."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, int):
                os.close(key.fileobj)
            else:
                key.fileobj.close()  # type: ignore[attr-defined]
        self._selector.close()
        os.close(self._wake_write)
        os.close(self._lock)

    # What the session's thread does.

    def _loop(self) -> None:
        while not self._closed:
            for key, _ in self._selector.select():
                key.data()
        self.forget()

    def _wake(self) -> None:
        os.write(self._wake_write, _LOOK)

    def _woken(self) -> None:
        self._closed = _CLOSE in os.read(self._wake_read, 4096)
        with self.changed:
            to_watch, self._to_watch = self._to_watch, []
        for file, action in to_watch:
            self._selector.register(file, selectors.EVENT_READ, action)

    def _accept(self, listener: socket.socket) -> None:
        try:
            accepted = listener.accept()[0]
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                self._note("exhausted", f"workers have to wait until this process can accept them: {error.strerror}")
                time.sleep(_PAUSE_WHEN_EXHAUSTED_SECONDS)  # The connection still waits, so the listener stays ready.
            return
        with contextlib.suppress(OSError):
            connection = _Connection(accepted)
            if listener is self._jobs_socket:
                connection.nonce = secrets.token_hex(16)
                connection.socket.sendall(json.dumps({"nonce": connection.nonce}).encode() + b"\n")
                superfluous = self._strangers.add(connection)
                if superfluous is not None:
                    self._drop(superfluous)
            self._selector.register(connection.socket, selectors.EVENT_READ, lambda: self._read_messages(connection))

    def _read_messages(self, connection: _Connection) -> None:
        try:
            piece = connection.socket.recv(1 << 16)
            *lines, connection.received = (connection.received + piece).split(b"\n")
            for line in lines:
                self._take(connection, json.loads(line))
        except Exception:  # Whatever it says, it is not a worker of ours: any user can connect to the jobs' socket.
            piece = b""
        if not piece or len(connection.received) > _LONGEST_MESSAGE:
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        """Also one that was dropped earlier in the same round of events."""
        if connection.socket.fileno() < 0:
            return
        self._strangers.discard(connection)
        self._selector.unregister(connection.socket)
        connection.socket.close()

    def _take(self, connection: _Connection, message: dict[str, Any]) -> None:
        with self.changed:
            if connection.worker is None:
                self._greet(connection, message)
                return
            worker = connection.worker
            if self._connections.get(worker.id) is connection.socket:
                worker.task |= message
            elif "running" in message:
                worker.was_running = True
                worker.status = "running"
                worker.process_id = message["process"]
                if worker.request.ssh and self._ssh is not None:
                    worker.ssh_port = self._ssh.port if message["ssh"] else None
                    if not message["ssh"]:
                        self._note("sshd", f"{worker.id} cannot be reached by ssh: {self._ssh.log_of(worker.id)}")
            elif "not_started" in message:
                worker.message = message["not_started"]
            else:
                worker.exit_code, worker.signal = message["exit_code"], message["signal"]
            self.changed.notify_all()

    def _greet(self, connection: _Connection, hello: dict[str, Any]) -> None:
        """The first message of a connection. ValueError: it is not from one of our workers."""
        if connection.nonce:
            said = {name: value for name, value in hello.items() if name not in ("nonce", "proof")}
            proof = prove(self._key, *parts_of_hello(connection.nonce, str(hello["nonce"]), said))
            if not hmac.compare_digest(str(hello["proof"]).encode(), proof.encode()):
                raise ValueError("it does not know the session's key")
        worker = connection.worker = self._workers[hello.get("worker") or hello["task"]]
        self._strangers.discard(connection)
        if "worker" not in hello:
            self._connections[worker.id] = connection.socket
            return
        if connection.nonce:
            worker.address = str(hello["address"])
            worker.has_node = True
            worker.status = "starting"
        order = json.dumps(make_order(worker, self.id, self.folder, self._ssh))
        proof = prove(self._key, *parts_of_order(str(hello["nonce"]), worker.id, order)) if connection.nonce else ""
        connection.socket.sendall(json.dumps({"order": order, "proof": proof}).encode() + b"\n")

    def _read_output(self, stream: _Stream) -> None:
        piece = os.read(stream.file.fileno(), 1 << 16)
        *lines, stream.received = (stream.received + piece).split(b"\n")
        if not piece and stream.received:
            lines.append(stream.received)
        self._show(stream.worker, stream.is_error, [line.decode(errors="replace") for line in lines])
        if piece:
            return
        self._selector.unregister(stream.file)
        stream.file.close()
        self._open_streams[stream.worker.id] -= 1
        if self._open_streams[stream.worker.id] == 0:
            assert isinstance(stream.worker.process, LocalProcess)
            code = stream.worker.process.popen.wait()
            with self.changed:
                self._finish(stream.worker, code)

    def _show(self, worker: Worker, is_error: bool, lines: list[str]) -> None:
        shown = []
        for line in lines:
            text = line.removeprefix(_LAUNCHERS_PREFIX)
            if line.startswith(_LAUNCHERS_PREFIX):
                worker.lines.append(text)
                shown.append(f"[{worker.label}] {text}\n")
            else:
                worker.launcher_lines.append(text)  # About its rank 0, which the user does not know.
        if shown:
            _print("".join(shown), sys.stderr if is_error else sys.stdout)

    def _finish(self, worker: Worker, launcher_code: int | None, over_memory: bool = False) -> None:
        """Under the lock: nothing of the worker runs any more."""
        over_memory = worker.limits.remove() or over_memory
        self._gpus.give_back(worker.gpus)
        worker.gpus = ()
        if worker.exit_code is None and launcher_code is not None:
            worker.exit_code = launcher_code if launcher_code >= 0 else 128 - launcher_code
        if worker.asked_to_stop:
            worker.status = "stopped"
            worker.message = worker.message or "it was stopped"
        elif worker.exit_code == 0 and worker.was_running:
            worker.status = "succeeded"
        else:
            worker.status = "failed"
            worker.message = worker.message or _explain(worker, over_memory)
        self._connections.pop(worker.id, None)
        self.changed.notify_all()

    def _make_ssh(self) -> SshAccess | None:
        server = find_server()
        if server is None:
            self._note("ssh", "workers cannot be reached by ssh: sshd, ssh or ssh-keygen is missing (openssh-server)")
            return None
        try:
            access = SshAccess(self.folder / "ssh", self._addresses.network, server)
        except (OSError, KeyError, subprocess.SubprocessError) as failure:  # KeyError: a user id without a name.
            self._note("ssh", f"workers cannot be reached by ssh: {failure}")
            return None
        # So that this process's `ssh`, and that of `gyre run -H`, knows the workers' keys.
        change_path(first=access.programs)
        return access

    def _note(self, subject: str, text: str) -> None:
        """Once per subject in a session."""
        with self.changed:
            is_new = subject not in self._notes
            self._notes.add(subject)
        if is_new:
            _print(f"[gyre.workers] {text}\n", sys.stderr)


def _explain(worker: Worker, over_memory: bool) -> str:
    if over_memory:
        return f"it exceeded its memory limit of {worker.request.memory:g} GB, and the kernel killed a process of it"
    if worker.signal:
        return f"it was killed by {worker.signal}"
    if not worker.was_running and worker.request.container is not None and worker.exit_code == _NO_SUCH_COMMAND:
        return f"its image has no {worker.request.python}; name its Python with python, or take an image that has one"
    if not worker.was_running:
        last = worker.launcher_lines[-1] if worker.launcher_lines else f"exit code {worker.exit_code}"
        return f"it ended before its program was started: {last}"
    last_line = next((line for line in reversed(worker.lines) if line.strip()), "")
    return f"it exited with code {worker.exit_code}" + (f"; its last line: {last_line}" if last_line else "")


def _listen(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address_of(path))
    listener.listen(1024)
    return listener


def _print(text: str, file: IO[str]) -> None:
    with contextlib.suppress(OSError, ValueError):  # Nobody reads it any more.
        file.write(text)
        file.flush()


_session: Session | None = None
_creation = threading.Lock()


def current() -> Session:
    """This process's session, made when it is first needed."""
    global _session  # noqa: PLW0603
    with _creation:
        if _session is None:
            _session = Session()
            atexit.register(_close_at_exit)
        return _session


def existing() -> Session | None:
    return _session


def close() -> None:
    """Ends this process's session, if there is one; the next worker begins another."""
    global _session
    session, _session = _session, None
    if session is not None:
        session.close()


def _close_at_exit() -> None:
    if _session is not None:
        # A second Ctrl-C must not leave anything behind.
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        close()


def _forget() -> None:
    """In a fork of this process: the workers are its parent's."""
    global _session, _creation  # noqa: PLW0603
    if _session is not None:
        _session.forget()
    _session = None
    _creation = threading.Lock()


os.register_at_fork(after_in_child=_forget)
