"""The process between the launcher and a worker's program: `python -I -S _keeper.py SOCKET ID`.

It gets its order from the session, applies the limits, starts the worker's ssh server and program, and reports how the
program ended. If the session disappears, it ends the program.

It is run by its path, or as a text in a job, and imports only the standard library, so that it starts in milliseconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any

ABSTRACT = "@"  # Begins the name of a socket that is no file (unix(7)).
KEY = "GYRE_WORKER_KEY"  # In a job, where other users can connect to the session's socket.
MARKER = "GYRE_LAUNCH"  # Of gyre/base/launch_contract.h: the launcher ends whatever has it.
GRACE_SECONDS = 5.0
LONGEST_SSH_START_SECONDS = 10.0
_LONGEST_LINE = 16 << 20
_SET_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of <sys/prctl.h>.
_NOT_STARTED = 127

Order = dict[str, Any]


def main() -> int:
    socket_path, worker = sys.argv[1:3]
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    # SIGCHLD only has to wake poll(). A stop request can come before there is anything to stop.
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda *_: None)
    # A job's node has an address of its own; a worker of this machine was given one.
    hello = {"worker": worker, "address": os.environ.get("AZ_BATCH_HOST_LIST", "").partition(",")[0]}
    try:
        control, nonce = connect(socket_path, hello)
        order = _receive_order(control, nonce, worker)
    except OSError:
        order = None
    if order is None:
        print("the worker's session has ended", file=sys.stderr)
        return 1
    return _Keeper(control, order, wake_read).run()


def connect(path: str, hello: Order) -> tuple[socket.socket, str]:
    """A connection to the session, which has been sent `hello`; if there is a KEY, with a proof that this process knows
    it. The text: what the session must prove its order with. OSError."""
    control = socket.socket(socket.AF_UNIX)
    control.connect(address_of(path))
    nonce = os.urandom(16).hex()
    if KEY in os.environ:
        line = receive_line(control)
        proof = prove(os.environ[KEY], *parts_of_hello(json.loads(line)["nonce"], nonce, hello))
        hello = {**hello, "nonce": nonce, "proof": proof}
    send(control, hello)
    return control, nonce


def address_of(path: str) -> str:
    return "\0" + path[1:] if path.startswith(ABSTRACT) else path


def _receive_order(control: socket.socket, nonce: str, worker: str) -> Order | None:
    """None if there is none: the session has gone, or what answered is not the session."""
    line = receive_line(control)
    if not line:
        return None
    message = json.loads(line)
    if KEY in os.environ and message["proof"] != prove(
        os.environ[KEY], *parts_of_order(nonce, worker, message["order"])
    ):
        return None
    order: Order = json.loads(message["order"])
    return order


# Each side signs what it is, what it says and the other side's nonce. Without the first part, a process that answers in
# the session's place could have one worker sign the order of another one; without the names, swap two workers.
def parts_of_hello(session_nonce: str, own_nonce: str, hello: Order) -> tuple[str, ...]:
    return ("a worker's hello", session_nonce, own_nonce, json.dumps(hello, sort_keys=True))


def parts_of_order(worker_nonce: str, worker: str, order: str) -> tuple[str, ...]:
    return ("the session's order", worker_nonce, worker, order)


def prove(key: str, *parts: str) -> str:
    import hmac  # noqa: PLC0415  Takes milliseconds; only jobs need it.

    return hmac.new(key.encode(), json.dumps(parts).encode(), "sha256").hexdigest()


def send(control: socket.socket, message: Order) -> None:
    with contextlib.suppress(OSError):  # The session is gone; whoever waits for it notices that.
        control.sendall(json.dumps(message).encode() + b"\n")


def receive_line(control: socket.socket) -> bytes:
    """A line that nothing follows until it is answered; empty if the session has gone."""
    text = b""
    while not text.endswith(b"\n") and len(text) < _LONGEST_LINE:
        piece = control.recv(1 << 16)
        if not piece:
            return b""
        text += piece
    return text


class _Keeper:
    def __init__(self, control: socket.socket, order: Order, wake: int) -> None:
        self._control = control
        self._order = order
        self._wake = wake
        self._program = 0
        self._status: int | None = None
        self._server = 0
        self._kill_at: float | None = None  # When the program has had its grace period.
        self._is_orphan = False  # The session has gone.

    def run(self) -> int:
        # The server comes first: it is then in its worker's cgroup before anything can log in.
        if self._order["sshd"]:
            _adopt_orphans()
            self._server = _spawn(self._ssh_server())
        try:
            if self._order["shared"]:
                _show_folder(*self._order["shared"])
            self._program = _spawn(self._order, own_group=True)
        except OSError as failure:
            send(self._control, {"not_started": str(failure)})
            self._end_server()
            return _NOT_STARTED
        send(self._control, {"running": True, "process": self._program, "ssh": self._ssh_answers()})
        self._wait()
        assert self._status is not None
        code = os.waitstatus_to_exitcode(self._status)
        self._end_server()
        if self._is_orphan:
            self._remove_what_the_session_made()
        ended_by = signal.Signals(-code).name if code < 0 else None
        send(self._control, {"exit_code": code if code >= 0 else 128 - code, "signal": ended_by})
        return code if code >= 0 else 128 - code

    def _ssh_server(self) -> Order:
        command = [*self._order["sshd"]["command"]]
        variables = {**self._order["sshd"]["variables"], MARKER: os.environ.get(MARKER, "")}
        words = [f'"{name}={value}"' for name, value in variables.items() if '"' not in value and "\n" not in value]
        return {
            **self._order,
            "command": [*command, "-o", f"SetEnv {' '.join(words)}"],
            "log": self._order["sshd"]["log"],
        }

    def _ssh_answers(self) -> bool:
        """Whether the ssh server accepts connections; waits until it does."""
        if not self._server:
            return False
        place = (self._order["sshd"]["address"], self._order["sshd"]["port"])
        deadline = time.monotonic() + LONGEST_SSH_START_SECONDS
        while time.monotonic() < deadline:
            self._reap()
            if not self._server or self._status is not None:
                return False
            try:
                socket.create_connection(place, timeout=1).close()
                return True
            except OSError:
                time.sleep(0.01)
        return False

    def _wait(self) -> None:
        """Until the program has ended. Passes signals on to it, and ends it if the session disappears."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(self._control, select.POLLIN)
        self._reap()
        while self._status is None:
            left = None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic()) * 1000
            for descriptor, _ in poll.poll(left):
                if descriptor == self._wake:
                    self._pass_on(os.read(self._wake, 512))
                elif not self._control.recv(1 << 16):
                    poll.unregister(self._control)
                    self._is_orphan = True
                    self._pass_on(bytes([signal.SIGTERM]))
                    self._kill_at = time.monotonic() + GRACE_SECONDS
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._signal(signal.SIGKILL)
                self._kill_at = time.monotonic() + GRACE_SECONDS
            self._reap()

    def _pass_on(self, numbers: bytes) -> None:
        for number in numbers:
            if number != signal.SIGCHLD:
                self._signal(number)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._program, number)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                process, status = os.waitpid(-1, os.WNOHANG)
                if process == 0:
                    return
                if process == self._program:
                    self._status = status
                elif process == self._server:
                    self._server = 0

    def _remove_what_the_session_made(self) -> None:
        import shutil  # noqa: PLC0415  Only where the session was killed.

        deadline = time.monotonic() + GRACE_SECONDS
        for folder in self._order["cgroups"]:
            while os.path.exists(folder) and time.monotonic() < deadline:
                with contextlib.suppress(OSError), open(f"{folder}/cgroup.procs") as file:
                    for process in map(int, file.read().split()):
                        if process > 0:  # 0: it belongs to a PID namespace around ours; as a number it would be us.
                            os.kill(process, signal.SIGKILL)
                try:
                    os.rmdir(folder)
                except OSError:
                    time.sleep(0.005)  # The kernel is still removing a process.
        shutil.rmtree(self._order["session_folder"], ignore_errors=True)

    def _end_server(self) -> None:
        """Ends the ssh server and its connections. They overwrite their environments, so the launcher cannot find them
        by its marker; as orphans they become children of this process."""
        if not self._order["sshd"]:
            return
        children = _children()
        while children:
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, 0)
            children = _children()


def _show_folder(folder: str, mount: str) -> None:
    """In a container: what the cluster mounts has the path there that it has outside, which programs and scripts know.
    OSError."""
    if os.path.isdir(folder) and not os.path.islink(folder) and not os.listdir(folder):
        os.rmdir(folder)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    try:
        os.symlink(os.path.join(os.environ["AZ_BATCHAI_MOUNT_ROOT"], mount), folder)
    except FileExistsError:
        raise OSError(f"the image has a {folder} of its own, where this machine's has to appear") from None


def _adopt_orphans() -> None:
    import ctypes  # noqa: PLC0415  Takes milliseconds; only workers with an ssh server need it.

    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _children() -> list[int]:
    """The children of this process, zombies included."""
    own = os.getpid()
    found: list[int] = []
    with contextlib.suppress(OSError):
        if os.readlink("/proc/self") != str(own):
            return found  # The numbers there are those of another PID namespace.
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{entry}/stat") as file:
            # The name before the last parenthesis can contain anything.
            if int(file.read().rpartition(")")[2].split()[1]) == own:
                found.append(int(entry))
    return found


def _spawn(order: Order, own_group: bool = False) -> int:
    """Starts the order's command within its limits; returns its process id. OSError says what could not be done."""
    report_read, report_write = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            _become(order, own_group, report_write)
        except OSError as failure:
            os.write(report_write, f"{failure.filename or order['command'][0]}: {failure.strerror}".encode())
        finally:
            os._exit(_NOT_STARTED)
    os.close(report_write)
    with os.fdopen(report_read, "rb") as report:
        text = report.read()
    if text:
        os.waitpid(process, 0)
        raise OSError(text.decode(errors="replace"))
    return process


def _become(order: Order, own_group: bool, report: int) -> None:
    if own_group:
        os.setpgid(0, 0)
    for folder in order["cgroups"]:
        with open(f"{folder}/cgroup.procs", "w") as file:
            file.write("0")
    if order["data_bytes"]:
        resource.setrlimit(resource.RLIMIT_DATA, (order["data_bytes"], order["data_bytes"]))
    if order["cores"]:
        count, first = order["cores"]
        usable = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, [usable[(first + i) % len(usable)] for i in range(count)])
    if order["folder"] is not None:
        os.chdir(order["folder"])
    for number in (signal.SIGPIPE, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    if "log" in order:
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 2)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != report:
            with contextlib.suppress(OSError):
                os.close(int(name))
    environment = _environment(order)
    os.execvpe(order["command"][0], order["command"], environment)


def _environment(order: Order) -> dict[str, str]:
    """The session's, in a job the node's, with the order's variables."""
    base = order["environment"]
    if base is None:
        base = {name: value for name, value in os.environ.items() if name not in (*order["dropped"], KEY)}
    # A task of run_cluster connects to the session, too, and takes the key out of its environment at once.
    kept = (MARKER, KEY) if order["is_task"] else (MARKER,)
    return {**base, **order["variables"], **{name: os.environ[name] for name in kept if name in os.environ}}


if __name__ == "__main__":
    sys.exit(main())
