"""`python -c SCRIPT` without the import of torch, which takes longer than most tests: a fork of a process that has
torch runs the script, for programs of jobs that somebody else starts (`gyre run`, say).

`python forked_script.py FOLDER SCRIPT` asks a template for that fork, passes on its environment, folder, output and
inherited descriptors, and ends as the fork ends. If it is killed, the fork is too. The fork is another process:
tests of a rank's own process (its number, its parent, signals that it handles) start `python -c`.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PROGRAM = str(Path(__file__).resolve())
LARGEST_REQUEST_BYTES = 1 << 17
MOST_DESCRIPTORS = 8
LONGEST_START_SECONDS = 300.0
# Two, so that neighbouring ranks have sets of different order, as those of a real job do.
TEMPLATES = 2


def ask(folder: str, script: str) -> int:
    """The exit code of the fork; a signal's number, negative."""
    environment = dict(os.environ)
    inherited = [name for name in environment if name.startswith("GYRE_") and name.endswith("_FD")]
    request = {"environment": environment, "folder": os.getcwd(), "inherited": inherited, "script": script}
    template = int(environment.get("GYRE_RANK", "0")) % TEMPLATES
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as template_socket:
        template_socket.connect(f"{folder}/{template}")
        descriptors = [1, 2, *(int(environment[name]) for name in inherited)]
        socket.send_fds(template_socket, [json.dumps(request).encode()], descriptors)
        return int(template_socket.recv(100))


def end_with(code: int) -> None:
    """Ends this process as another one has ended."""
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def become(request: dict[str, object], descriptors: list[int]) -> None:
    """In the fork: takes on what `python -c` would have been given."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(descriptors[0], 1)
    os.dup2(descriptors[1], 2)
    environment = dict(request["environment"])
    for name, descriptor in zip(request["inherited"], descriptors[2:], strict=True):
        os.set_inheritable(descriptor, True)
        environment[name] = str(descriptor)
    os.chdir(str(request["folder"]))
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c"]


def keep(asker: socket.socket) -> str:
    """In the template's child: forks the program, and ends it with the process that has asked for it. Returns in the
    fork, and there only: its script."""
    text, descriptors, _, _ = socket.recv_fds(asker, LARGEST_REQUEST_BYTES, MOST_DESCRIPTORS)
    request = json.loads(text)
    pid = os.fork()
    if pid == 0:
        asker.close()
        become(request, descriptors)
        return request["script"]
    for descriptor in descriptors:
        os.close(descriptor)
    ended = os.pidfd_open(pid)
    if ended not in select.select([ended, asker], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):  # Of one that was killed.
        asker.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def serve(path: str) -> str:
    """Forks for everybody who connects, until stdin is closed. Returns in the programs' processes only: the script."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen(64)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody asks how a keeper ended.
        print("ready", flush=True)
        while True:
            ready = select.select([listener, sys.stdin], [], [])[0]
            if listener not in ready:
                os._exit(0)
            asker, _ = listener.accept()
            threads = len(os.listdir("/proc/self/task"))
            assert threads == 1, f"{threads} threads: a fork would have only one of them"
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                return keep(asker)
            asker.close()


@contextmanager
def templates(folder: Path, environment: Mapping[str, str], imports: Sequence[str] = ()) -> Iterator[None]:
    """Which `python forked_script.py FOLDER` asks. `imports`: their modules, in place of rank_main.SLOW_IMPORTS."""
    started = [
        subprocess.Popen(
            [sys.executable, "-X", "faulthandler", PROGRAM, "--template", str(folder / str(number)), *imports],
            env={**environment, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(TEMPLATES)
    ]
    try:
        for template in started:
            assert template.stdout is not None
            assert select.select([template.stdout], [], [], LONGEST_START_SECONDS)[0], "a template does not start"
            assert template.stdout.readline() == b"ready\n", "a template has ended; its output tells why"
        yield
    finally:
        for template in started:
            template.communicate(timeout=LONGEST_START_SECONDS)


if __name__ == "__main__":
    if sys.argv[1] != "--template":
        end_with(ask(*sys.argv[1:3]))
    from rank_main import SLOW_IMPORTS

    for module in sys.argv[3:] or SLOW_IMPORTS:
        importlib.import_module(module)
    # A fork that ends looks for garbage: not in all that it shares with us, which it would have to copy for that.
    gc.collect()
    gc.freeze()
    exec(compile(serve(sys.argv[2]), "<string>", "exec"), {"__name__": "__main__"})
