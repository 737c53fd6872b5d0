"""What a rank of a test runs. `python rank_main.py TEST_FILE FUNCTION` calls that function of that file.

`python rank_main.py --template FD [MODULE...]` imports what takes seconds, then forks itself for every request on the
socket FD: the fork is a rank as the first form makes one, only sooner. See rank_template.py.
"""

import gc
import importlib.util
import json
import os
import socket
import sys
from pathlib import Path

LARGEST_REQUEST_BYTES = 1 << 20
# One by one because of what they cost, not because a rank needs all of them. torch._dynamo: every torch optimizer does.
SLOW_IMPORTS = (
    "numpy",
    "pytest",
    "torch",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torch.distributed.tensor",
)


def call(path: str, function: str) -> None:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    getattr(module, function)()


def become_a_rank(request: dict[str, object], descriptors: list[int]) -> list[str]:
    """In the fork: takes on what a fresh process would have been given. Returns what it has to call."""
    environment = dict(request["environment"])
    output, *others = descriptors
    for name, descriptor in zip(request["descriptors"], others, strict=True):
        os.set_inheritable(descriptor, True)
        environment[name] = str(descriptor)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(environment)
    return request["call"]


def serve(control: socket.socket) -> list[str]:
    """Answers requests until nobody is left to ask, and then ends the process. Returns in the forks only."""
    while True:
        text, descriptors, _, _ = socket.recv_fds(control, LARGEST_REQUEST_BYTES, 8)
        if not text:
            os._exit(0)  # Nothing here is worth tidying up.
        request = json.loads(text)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            control.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        threads = len(os.listdir("/proc/self/task"))
        assert threads == 1, f"{threads} threads: a fork would have only one of them"
        pid = os.fork()
        if pid == 0:
            control.close()
            return become_a_rank(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(str(pid).encode())


def main() -> None:
    if sys.argv[1] != "--template":
        call(*sys.argv[1:3])
        return
    for name in sys.argv[3:] or SLOW_IMPORTS:
        importlib.import_module(name)
    # A fork that ends looks for garbage: not in all that it shares with us, which it would have to copy for that.
    gc.collect()
    gc.freeze()
    call(*serve(socket.socket(fileno=int(sys.argv[2]))))


if __name__ == "__main__":
    main()
