"""`gyre doctor`: reports what was built and found, what is wrong, and the command that fixes it. Changes nothing."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from gyre import __version__
from gyre._command_line import Parser
from gyre.errors import Error
from gyre.launch.program import find_program

SHARED_MEMORY_FOLDER = Path("/dev/shm")
DEVICE_FOLDER = Path("/dev")
LEAST_SHARED_MEMORY_BYTES = 1 << 30
LEAST_OPEN_FILES = 1024
SELF_TEST_SECONDS = 60
# By `./dev test` and `./dev test torch 2.14.1`; docs/guide/torch_versions.md has the results.
TESTED_TORCH_VERSIONS = ("2.11", "2.13", "2.14")
REQUIRED_PACKAGES = ("numpy", "cloudpickle")  # As in pyproject.toml.


@dataclass
class Finding:
    """One line of the report. `state`: ok, note (works, but worth knowing) or wrong. `remedy`: a command, or a
    sentence."""

    name: str
    state: str
    text: str
    remedy: str = ""


def examine(*, self_test: bool = True) -> Iterator[Finding]:
    """All findings about this machine, one after the other."""
    yield Finding("python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield _packages()
    yield _engine()
    yield _program()
    yield from _torch()
    yield _keras()
    yield from _machine()
    yield from _environment()
    yield _ssh()
    yield _containers()
    yield _limits()
    if self_test:
        yield _self_test()


def _missing_packages() -> list[str]:
    return [name for name in REQUIRED_PACKAGES if importlib.util.find_spec(name) is None]


def _packages() -> Finding:
    missing = _missing_packages()
    if missing:
        remedy = f"{sys.executable} -m pip install {' '.join(missing)}"
        return Finding("packages", "wrong", f"this Python lacks {' and '.join(missing)}", remedy)
    return Finding("packages", "ok", " and ".join(REQUIRED_PACKAGES))


def _engine() -> Finding:
    try:
        from gyre.core import _core  # noqa: PLC0415  Whether it can be loaded is what is checked here.
    except ImportError as error:
        return Finding("engine", "wrong", f"its extension module cannot be loaded: {error}", _install_command())
    place = getattr(_core, "__file__", "?")
    if _core.__version__ != __version__:
        text = f"the extension module is {_core.__version__}, the package {__version__}"
        return Finding("engine", "wrong", text, _install_command())
    return Finding("engine", "ok", f"{_core.__version__} ({place})")


def _install_command() -> str:
    checkout = Path(__file__).resolve().parent.parent.parent / "dev"
    return f"{checkout} build" if checkout.exists() else f"{sys.executable} -m pip install --force-reinstall gyre-train"


def _program() -> Finding:
    try:
        program = find_program()
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=True).stdout
    except (Error, OSError, subprocess.SubprocessError) as error:
        return Finding("gyre", "wrong", str(error), _install_command())
    if said.split()[-1:] != [__version__]:
        return Finding("gyre", "wrong", f"{program} is '{said.strip()}', the package {__version__}", _install_command())
    return Finding("gyre", "ok", f"{said.strip()} ({program})")


def _keras() -> Finding:
    """Without importing it, which takes seconds."""
    versions = {}
    for name in ("keras", "tensorflow-cpu", "tensorflow"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    if "keras" not in versions:
        return Finding("keras", "note", "not installed: gyre.keras needs Keras 3")
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    if versions["keras"].partition(".")[0] != "3":
        return Finding(
            "keras", "wrong", f"{text}: gyre.keras needs Keras 3", f"{sys.executable} -m pip install 'keras>=3'"
        )
    return Finding("keras", "ok", text)


def _torch() -> Iterator[Finding]:
    if importlib.util.find_spec("torch") is None:
        text = "not installed: gyre.keras, gyre.tensorflow and gyre.data work without it, gyre.torch does not"
        yield Finding("torch", "note", text, f"{sys.executable} -m pip install 'gyre-train[torch]'")
        return
    import torch  # noqa: PLC0415  If it is missing, the rest of the report is still useful.
    import torch.distributed as dist  # noqa: PLC0415

    yield _torch_version(str(torch.__version__))
    yield _programs_with_libtorch(str(torch.__version__))
    yield from _devices()
    if not dist.is_available():
        yield Finding(
            "backend gyre", "wrong", "this torch was built without torch.distributed", "install another torch"
        )
        return
    names = {entry.value for entry in importlib.metadata.entry_points(group="torch.backends")}
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "0":
        text = "torch does not load it by itself, because TORCH_DEVICE_BACKEND_AUTOLOAD is 0"
        yield Finding("backend gyre", "note", text, "unset it, or `import gyre.distributed` in the script")
    elif "gyre.torch_backend:register" not in names:
        text = "gyre-train is not installed for this Python (PYTHONPATH alone?), so torch does not know the backend"
        yield Finding("backend gyre", "note", text, f"{_install_command()}, or `import gyre.distributed` in the script")
    elif "gyre" not in dist.Backend.backend_list:
        yield Finding("backend gyre", "wrong", "torch has not loaded it", "`import gyre.distributed` shows why")
    else:
        yield Finding("backend gyre", "ok", 'init_process_group("gyre") works without an import')


def _devices() -> Iterator[Finding]:
    """Nothing where torch knows of no device but the CPU, and the machine shows none."""
    import torch  # noqa: PLC0415  As above.

    found = torch.accelerator.current_accelerator(check_available=True)
    built_for = torch.accelerator.current_accelerator()
    if found is not None:
        yield _delegate(found.type, torch.accelerator.device_count())
        yield _locked_memory()
    elif built_for is not None:
        why = "its driver may not answer" if _nvidia_gpus() else f"{DEVICE_FOLDER} shows no NVIDIA GPU"
        remedy = "nvidia-smi shows what the driver says; containers need theirs named (Docker: --gpus all)"
        yield Finding("devices", "note", f"torch is built for '{built_for.type}', and sees none: {why}", remedy)
    elif _nvidia_gpus():
        text = f"{DEVICE_FOLDER} shows NVIDIA GPUs ({_nvidia_gpus()}), and torch is built for CPUs only"
        yield Finding("devices", "note", text, "install torch's CUDA build: https://pytorch.org/get-started/locally")


def _nvidia_gpus() -> int:
    return sum(path.name.removeprefix("nvidia").isdecimal() for path in DEVICE_FOLDER.glob("nvidia*"))


def _delegate(kind: str, count: int) -> Finding:
    from gyre._devices import delegates, tried  # noqa: PLC0415  As above.

    seen = f"torch sees {count} of type '{kind}'"
    backend = delegates.default_of(kind)
    if backend is None:
        text = f"{seen}, and has no backend for them: their tensors are exchanged through host memory"
        remedy = "see docs/guide/gpu.md"
    elif delegates.is_missing(backend):
        text = f"{seen}, and was built without {backend}, which it takes for them"
        remedy = f'install another torch, or name "{kind}:gyre", which goes through host memory'
    else:
        text = f"{seen}; their tensors go to torch's backend {backend}"
        remedy = f'init_process_group("cpu:gyre,{kind}:BACKEND") names another BACKEND'
    return Finding("devices", "note", f"{text}; {tried.tried_on(kind)} (docs/guide/gpu.md)", remedy)


def _locked_memory() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY:
        return Finding("locked memory", "ok", "no limit")
    text = f"{soft >> 10} KiB; host memory for the tensors of devices is pinned, and copies are slower if it cannot be"
    return Finding("locked memory", "note", text, "ulimit -l unlimited (Docker: --ulimit memlock=-1)")


def _torch_version(version: str) -> Finding:
    import torch  # noqa: PLC0415  As above.

    kinds = {"CUDA": "cuda", "ROCm": "hip", "XPU": "xpu"}
    built = {kind: getattr(torch.version, name, None) for kind, name in kinds.items()}
    text = next((f"{version}, built for {kind} {found}" for kind, found in built.items() if found), version)
    tested = " and ".join(TESTED_TORCH_VERSIONS)
    if _minor(version) in TESTED_TORCH_VERSIONS:
        return Finding("torch", "ok", text)
    return Finding("torch", "note", f"{text}; Gyre is tested with {tested}")


def _programs_with_libtorch(version: str) -> Finding:
    """gyre-cifar10 and gyre-bench-step, which link libtorch; its C++ interfaces change with every version."""
    try:
        from gyre.core._core import libtorch_version  # noqa: PLC0415  If it cannot be loaded, _engine() has said so.
    except ImportError:
        libtorch_version = ""
    if not libtorch_version:
        return Finding("C++ programs", "note", "gyre-cifar10 and gyre-bench-step were not built", _install_command())
    if _minor(libtorch_version) == _minor(version):
        return Finding("C++ programs", "ok", f"built for torch {libtorch_version}")
    text = (
        f"gyre-cifar10 and gyre-bench-step were built for torch {libtorch_version} and refuse torch {version}; "
        "Python scripts do not need them"
    )
    return Finding("C++ programs", "note", text, f"{sys.executable} -m pip install torch=={libtorch_version}")


def _minor(version: str) -> str:
    """ "2.13" of "2.13.0+cpu"."""
    return ".".join(version.split(".")[:2])


def _machine() -> Iterator[Finding]:
    yield Finding("cores", "ok", str(len(os.sched_getaffinity(0))))
    yield _shared_memory()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < LEAST_OPEN_FILES:
        yield Finding("open files", "note", f"at most {hard}", f"ulimit -n {LEAST_OPEN_FILES}")
    else:
        yield Finding("open files", "ok", f"{soft}")
    name = socket.gethostname()
    try:
        address = socket.getaddrinfo(name, None)[0][4][0]
    except OSError as error:
        remedy = f"add `{name}` with its address to /etc/hosts, or name the first host by its address"
        yield Finding(
            "host name", "note", f"{name} has no address ({error}); only jobs over several hosts care", remedy
        )
    else:
        yield Finding("host name", "ok", f"{name}, {address}")


def _shared_memory() -> Finding:
    """Never `wrong`: Gyre's own shared memory consists of anonymous files, which no mount limits."""
    name, needed = str(SHARED_MEMORY_FOLDER), "Gyre needs it for DistributedDataParallel's buckets alone"
    copied = f"{needed}, and copies them now; DataLoader workers of torch need it too"
    try:
        room = os.statvfs(SHARED_MEMORY_FOLDER)
    except OSError as error:
        return Finding(name, "note", f"{error.strerror}; {copied}", f"mount -t tmpfs tmpfs {name}")
    if room.f_flag & os.ST_RDONLY:
        return Finding(name, "note", f"read-only; {copied}", f"mount -o remount,rw {name}")
    if not os.access(SHARED_MEMORY_FOLDER, os.W_OK | os.X_OK):
        return Finding(name, "note", f"not writable by this user; {copied}", f"chmod 1777 {name}")
    free_mib = (room.f_bavail * room.f_frsize) >> 20
    text = f"{free_mib} MiB free; {needed}, and uses half: those of all ranks here up to {free_mib // 2} MiB"
    if free_mib >= LEAST_SHARED_MEMORY_BYTES >> 20:
        return Finding(name, "ok", text)
    return Finding(
        name, "note", f"{text}, larger ones are copied", f"mount -o remount,size=4g {name} (Docker: --shm-size=4g)"
    )


def _environment() -> Iterator[Finding]:
    key = os.environ.get("GYRE_KEY_FILE", "")
    if key:
        path = Path(key)
        if not path.is_file():
            remedy = f"head -c 32 /dev/urandom > {key} && chmod 600 {key}"
            yield Finding("GYRE_KEY_FILE", "wrong", f"'{key}' is no file", remedy)
        elif path.stat().st_mode & 0o077 or path.stat().st_uid != os.geteuid():
            yield Finding("GYRE_KEY_FILE", "wrong", f"'{key}' can be read by others", f"chmod 600 {key}")
        else:
            yield Finding("GYRE_KEY_FILE", "ok", key)
    if "GYRE_RANK" in os.environ:
        text = "GYRE_RANK is set: this is a rank of a job, and a program started here would take its seat"
        yield Finding("environment", "note", text, "unset GYRE_RANK GYRE_SIZE")


def _ssh() -> Finding:
    found = shutil.which("ssh")
    if found is None:
        return Finding("ssh", "note", "absent; `gyre run -H` needs it", "apt-get install openssh-client")
    return Finding("ssh", "ok", found)


def _containers() -> Finding:
    """What a job server on this machine would start the containers of jobs with."""
    program = "docker" if shutil.which("docker") and not shutil.which("podman") else "podman"
    wanted = ("docker", "skopeo") if program == "docker" else ("podman", "runc", "skopeo")
    missing = [name for name in wanted if shutil.which(name) is None]
    remedy = f"apt-get install {' '.join(missing)}"
    if "podman" in missing:
        text = "no podman; jobs with containerSettings cannot run on this machine"
        return Finding("containers", "note", text, remedy)
    if "skopeo" in missing:
        text = "no skopeo; the image of a job is looked up by its tag in each attempt, and not pinned to a digest"
        return Finding("containers", "note", text, remedy)
    return Finding("containers", "ok", f"{program}, skopeo")


def _limits() -> Finding:
    from gyre.workers import _limits as limits  # noqa: PLC0415  As above.

    name = "job limits"
    if os.geteuid() != 0:
        text = "cpusPerNode and memoryPerNode are enforced only by a job server that root runs"
        return Finding(name, "note", text, "sudo gyre server")
    if lacking := limits.lacking_controllers():
        text = f"this machine grants no cgroups with the {' and '.join(lacking)} controller: jobs are not limited"
        return Finding(name, "note", text, "mount cgroups, or start the container of the server with them")
    return Finding(name, "ok", "cores and memory, by cgroups")


def _self_test() -> Finding:
    """Two ranks run an allreduce, which finds problems that checks of the parts do not."""
    if _missing_packages():
        return Finding("two ranks", "note", "not tried, for want of the packages above")
    from gyre.launch.function import run  # noqa: PLC0415

    try:
        with contextlib.redirect_stdout(sys.stderr):  # The ranks' output is not part of the report.
            sums = run(_add_up, np=2, env={"GYRE_START_TIMEOUT_SECONDS": str(SELF_TEST_SECONDS)})
    except Error as error:
        return Finding("two ranks", "wrong", str(error).splitlines()[-1], "the lines above this report say more")
    if sums != [1.0, 1.0]:
        return Finding(
            "two ranks", "wrong", f"0 + 1 is {sums}", "report this, with the output of `gyre doctor -o json`"
        )
    return Finding("two ranks", "ok", "started, met and added up")


def _add_up() -> float:
    import numpy  # noqa: PLC0415

    from gyre import _runtime  # noqa: PLC0415
    from gyre._job import arrays  # noqa: PLC0415
    from gyre._operations import Kind  # noqa: PLC0415

    _runtime.init()
    runtime = _runtime.current()
    number = numpy.array(float(runtime.rank))
    arrays.run(runtime, [arrays.request(runtime, Kind.ALLREDUCE, number, target=number)])
    _runtime.shutdown()
    return float(number)


def parser() -> Parser:
    whole = Parser(prog="gyre doctor", description=__doc__)
    whole.add_argument("-o", "--output", choices=["text", "json"], default="text", help="how to write it")
    whole.add_argument("--no-self-test", action="store_true", help="do not start two ranks as a test")
    return whole


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    findings = list(examine(self_test=not options.no_self_test))
    wrong = sum(finding.state == "wrong" for finding in findings)
    if options.output == "json":
        print(json.dumps({"findings": [asdict(finding) for finding in findings], "wrong": wrong}, indent=2))
    else:
        for finding in findings:
            print(f"{finding.state:<6} {finding.name:<14} {finding.text}")
            if finding.remedy:
                print(f"{'':<6} {'':<14} fix: {finding.remedy}")
        print("nothing is wrong" if wrong == 0 else f"{wrong} wrong")
    return 1 if wrong else 0
