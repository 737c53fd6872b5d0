"""The test device in Python: `sim_device.load()` gives this process two devices, "sim:0" and "sim:1". See tests/device.

Its memory cannot be forked, so that a rank loads it, never the process of which ranks are forks. Nothing of it runs on
time alone: see set_schedule() and SCHEDULES.

With GYRE_TEST_DEVICE=cuda the tests use this machine's GPUs in its place, and NCCL in place of the stand-in; checks
that look into the simulated device are left out (simulated_only()). One GPU is enough: see share_one_device().
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import sys
import time
import types
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils import backend_registration

ROOT = Path(__file__).resolve().parents[2]
NAME = os.environ.get("GYRE_TEST_DEVICE", "sim")
SIMULATED = NAME == "sim"
LIBRARY = "standin" if SIMULATED else "nccl"
# Name, and the arguments of set_schedule(): nothing runs until the host waits, or streams advance at random.
SCHEDULES = {"lazy": (0.0, 0), "random": (0.3, 7)} if SIMULATED else {"hardware": ()}
# Backends of torch.distributed: Gyre with the device's library, and through host memory.
BACKENDS = ("gyre", f"{NAME}:gyre")
NAMED_BACKEND = f"cpu:gyre,{NAME}:{LIBRARY}"
needs_simulation = pytest.mark.skipif(not SIMULATED, reason="looks into the simulated device")


def simulated_only(checks: Sequence[Callable[[], None]]) -> list[Callable[[], None]]:
    """Those that count what the simulated device does, or need two devices."""
    return list(checks) if SIMULATED else []


def _library() -> Path:
    """Of the build whose `gyre` is in PATH."""
    program = shutil.which("gyre")
    build = Path(program).resolve().parents[1] if program else ROOT / "build" / "release"
    return build / "tests" / "device" / "gyre_test_device.so"


class _CurrentStream:
    """`with torch.sim.stream(one):`, as torch.cuda has it."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self._stream = stream

    def __enter__(self) -> torch.Stream | None:
        if self._stream is not None:
            self._stream.__enter__()
        return self._stream

    def __exit__(self, *raised: Any) -> None:
        if self._stream is not None:
            self._stream.__exit__(*raised)


class _Device:
    """`with torch.sim.device(1):`"""

    def __init__(self, device: Any) -> None:
        self._index = device if isinstance(device, int) else torch.device(device).index

    def __enter__(self) -> None:
        self._before = torch.accelerator.current_device_index()
        torch.accelerator.set_device_index(self._index)

    def __exit__(self, *raised: object) -> None:
        torch.accelerator.set_device_index(self._before)


def _stream(device: Any = None, priority: int = 0) -> torch.Stream:
    return torch.Stream(_device(device), priority=priority)


def _event(*arguments: object, **options: object) -> torch.Event:
    del arguments, options
    return torch.Event(_device(None))


def _device(device: Any) -> torch.device:
    index = torch.accelerator.current_device_index() if device is None else device
    return torch.device(NAME, index) if isinstance(index, int) else torch.device(index)


def _device_module(devices: int) -> types.ModuleType:
    """torch.sim: the functions that torch looks for in the module of a device."""
    module = types.ModuleType(f"torch.{NAME}")
    for name, function in {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: devices,
        "current_device": torch.accelerator.current_device_index,
        "set_device": lambda device: torch.accelerator.set_device_index(_device(device).index),
        "device": _Device,
        "current_stream": torch.accelerator.current_stream,
        "default_stream": lambda device=None: torch.Stream(
            stream_id=0, device_index=_device(device).index, device_type=20
        ),
        "set_stream": torch.accelerator.set_stream,
        "stream": _CurrentStream,
        "synchronize": torch.accelerator.synchronize,
        "Stream": _stream,
        "Event": _event,
        "get_amp_supported_dtype": lambda: [torch.bfloat16, torch.float16],
        "_is_in_bad_fork": lambda: False,
        "manual_seed_all": lambda seed: None,  # noqa: ARG005 - random kernels draw from the CPU's generator
        "get_rng_state": lambda device=None: torch.zeros(1, dtype=torch.uint8),  # noqa: ARG005
        "set_rng_state": lambda state, device=None: None,  # noqa: ARG005
    }.items():
        setattr(module, name, function)
    return module


@functools.cache
def load() -> Any:
    """Makes the device known to torch, and returns its control: set_schedule(), counters(), pin(), unpin()."""
    assert SIMULATED, f"a test that looks into the simulated device runs on {NAME}; see simulated_only()"
    library = _library()
    assert library.exists(), f"{library} has not been built; run `./dev build release gyre_test_device` first"
    spec = importlib.util.spec_from_file_location("gyre_test_device", library)
    assert spec is not None
    assert spec.loader is not None
    control = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(control)
    backend_registration.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, _device_module(control.devices))
    backend_registration.generate_methods_for_privateuse1_backend()
    return control


def follow(schedule: str) -> None:
    """load(), under one of SCHEDULES."""
    if SIMULATED:
        load().set_schedule(*SCHEDULES[schedule])
    else:
        # So that the same network has nearly the same numbers on both.
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False


def share_one_device() -> None:
    """Lets NCCL serve ranks that use one GPU, which takes them for ranks of several hosts then, and keeps Gyre from
    finding it out."""
    from gyre._devices import meeting  # noqa: PLC0415  Only tests on hardware need it.

    os.environ["NCCL_HOSTID"] = f"rank {os.environ['GYRE_RANK']}"
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    meeting.identity_of = lambda device: ""  # noqa: ARG005


# How gyre.torch exchanges the device's tensors: through host memory, or by the stand-in for NCCL.
CARRIERS = ("staged", "delegated")


def begin() -> None:
    """follow(), as $SCHEDULE and $CARRIER say."""
    follow(os.environ["SCHEDULE"])
    if os.environ["CARRIER"] == "delegated":
        register_stand_in()


class DrawnOnTheCpu(TorchFunctionMode):
    """Random tensors of the CPU's generators, on the default device: other devices refuse them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if options.get("generator") is None:
            return func(*args, **options)
        return func(*args, device="cpu", **options).to(torch.get_default_device())


def device(number: int) -> torch.device:
    """Of the simulated two; of the machine's GPUs."""
    return torch.device(NAME, number % (2 if SIMULATED else torch.accelerator.device_count()))


def trained_alike(ours: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Of a network: equal() on the simulated device, which computes as the CPU does; other kernels round otherwise."""
    if SIMULATED:
        return equal(ours, wanted)
    return torch.allclose(ours.cpu().float(), wanted.float(), rtol=1e-3, atol=1e-3)


def equal(ours: torch.Tensor, wanted: torch.Tensor) -> bool:
    """To the bit; what the device's library has added up, which rounds in other places, nearly."""
    ours = ours.cpu()
    if os.environ["CARRIER"] == "staged" or not wanted.is_floating_point():
        return torch.equal(ours, wanted) and ours.dtype == wanted.dtype
    tolerance = max(1e-5, 8 * torch.finfo(wanted.dtype).eps)
    alike = ours.dtype == wanted.dtype and ours.shape == wanted.shape
    return alike and torch.allclose(ours, wanted, rtol=tolerance, atol=tolerance)


def leave_out(wait: str, file: str, caller: str) -> None:
    """From now on, what `caller` in `file` calls in gyre._devices.staging, one of its waits, does nothing."""
    from gyre._devices import staging  # noqa: PLC0415  Only tests of it need it.

    original = getattr(staging, wait)

    def left_out_there(*arguments: Any) -> None:
        code = sys._getframe(1).f_code
        if (code.co_filename, code.co_name) != (file, caller):
            original(*arguments)

    setattr(staging, wait, left_out_there)


def register_stand_in() -> None:
    """load(), with the stand-in for NCCL as the default backend of this device, as NCCL is for cuda."""
    import torch.distributed as dist  # noqa: PLC0415  Only tests of it need it.

    if not SIMULATED:
        share_one_device()
    elif "standin" not in dist.Backend.backend_list:
        dist.Backend.register_backend("standin", load().stand_in, devices=[NAME])


def join_group(size: int, timeout: timedelta = timedelta(seconds=60)) -> None:
    """This rank's world, over the backend $BACKEND on a device that follows $SCHEDULE."""
    import gyre.distributed  # noqa: F401, PLC0415  Makes the backend known.
    import torch.distributed as dist  # noqa: PLC0415  As above.

    follow(os.environ["SCHEDULE"])
    register_stand_in()
    rank = int(os.environ["GYRE_RANK"])
    dist.init_process_group(os.environ["BACKEND"], store=meet(rank), rank=rank, world_size=size, timeout=timeout)


def own_device() -> torch.device:
    """Ranks differ, and their current device stays the first one."""
    import torch.distributed as dist  # noqa: PLC0415  As above.

    return device(dist.get_rank())


def meet(rank: int) -> Any:
    """torch's store for ranks that share a folder. A FileStore would be slow: every message of a stand-in is in it."""
    import torch.distributed as dist  # noqa: PLC0415  Only tests of it need it.

    place, made = Path("port"), Path("port.made")
    open_store: Any = getattr(dist, "TCPStore")  # noqa: B009  Not in the stubs.
    if rank == 0:
        store = open_store("localhost", 0, is_master=True, wait_for_workers=False)
        made.write_text(str(store.port))
        made.rename(place)
        return store
    until = time.monotonic() + 60
    while not place.exists():
        assert time.monotonic() < until, "rank 0 has opened no store"
        time.sleep(0.01)
    return open_store("localhost", int(place.read_text()), is_master=False)


def said(words: str) -> str:
    """The line of any rank's output that has these words, once there is one."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for output in Path.cwd().glob("body_*"):
            for line in output.read_text().splitlines():
                if words in line:
                    return line
        time.sleep(0.05)
    raise AssertionError(f"nobody has said {words}")
