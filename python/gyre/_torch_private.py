"""torch's private names: all that Gyre uses, and what for.

Nothing else in the package uses one (tests/python/torch_private_test.py checks this), and each has a test there, so
that a change in torch is found before it reaches users. If one is missing, the program ends with a message that names
torch's version; it never continues with different results.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import json
import operator
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, cast

import torch
from torch.autograd import graph
from torch.multiprocessing.reductions import StorageWeakRef

from gyre.errors import UnsupportedError

# torch also calls these methods of a process group. Ours has each of them, under torch's name.
PROCESS_GROUP_METHODS = (
    "_allgather_base",
    "_device_types",
    "_end_coalescing",
    "_get_backend",
    "_get_backend_name",
    "_get_sequence_number_for_group",
    "_reduce_scatter_base",
    "_set_sequence_number_for_group",
    "_start_coalescing",
)


def _missing(name: str, purpose: str) -> UnsupportedError:
    return UnsupportedError(
        f"torch {torch.__version__} has no {name}, which Gyre needs {purpose}; "
        "docs/guide/torch_versions.md names the versions of torch that work"
    )


# autograd


def at_end_of_backward(callback: Callable[[], None]) -> None:
    """Calls `callback` when the current backward pass has ended."""
    queue = getattr(getattr(torch.autograd.Variable, "_execution_engine", None), "queue_callback", None)
    if queue is None:
        raise _missing("torch.autograd.Variable._execution_engine.queue_callback", "to end a step's exchange")
    queue(callback)


def current_backward() -> int:
    """The number of the backward pass that the calling hook runs in, unique in this process; negative outside one."""
    number = getattr(torch._C, "_current_graph_task_id", None)
    if number is None:
        raise _missing("torch._C._current_graph_task_id", "to tell simultaneous backward passes apart")
    return int(number())


@functools.cache
def backward_code() -> CodeType:
    """The code object of the Python function that runs autograd's engine."""
    code: CodeType | None = getattr(getattr(graph, "_engine_run_backward", None), "__code__", None)
    if code is None:
        raise _missing("torch.autograd.graph._engine_run_backward", "to see which backward() a hook runs in")
    return code


version_of: Callable[[torch.Tensor], int] = operator.attrgetter("_version")
"""How often the tensor has been changed in place."""


# Optimizers and modules

try:
    BatchNorm = torch.nn.modules.batchnorm._BatchNorm
except AttributeError as failure:
    raise _missing("torch.nn.modules.batchnorm._BatchNorm", "for SyncBatchNorm") from failure


def steps_under_another_class(optimizer: torch.optim.Optimizer) -> None:
    """Tells learning-rate schedulers not to warn that `optimizer` never steps."""
    optimizer.__dict__["_opt_called"] = True


def check_scaler_has_asked() -> None:
    """For an optimizer's step() that has not waited for the reduced gradients yet. torch.amp.GradScaler reads an
    optimizer's `_step_supports_amp_scaling` before it looks for infinities, and DistributedOptimizer waits when it is
    read. A scaler that calls step() without reading it has decided by this rank's gradients alone."""
    file = torch.amp.GradScaler.step.__code__.co_filename
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == file:
            raise UnsupportedError(
                f"the GradScaler of torch {torch.__version__} looks for infinite gradients without consulting "
                "the optimizer, before the ranks' gradients are reduced; call optimizer.synchronize() before "
                "scaler.step(optimizer)"
            )
        frame = frame.f_back


# Storages


def can_share_storages() -> bool:
    """Whether storages can be moved into shared memory; otherwise the ranks of a host copy."""
    return hasattr(torch.UntypedStorage, "_share_fd_cpu_") and hasattr(torch.UntypedStorage, "_cdata")


def storage_identity(storage: torch.UntypedStorage) -> int:
    """Unique as long as a weak_storage() of it is alive."""
    return int(storage._cdata)


def weak_storage(storage: torch.UntypedStorage) -> Any:
    """With expired()."""
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def move_to_shared_memory(storage: torch.UntypedStorage) -> int:
    """The descriptor of the file behind it, which torch closes with the storage."""
    descriptor: int = storage._share_fd_cpu_()[0]
    return descriptor


# References


def _references_are_counted() -> bool:
    """Whether everything that shares a tensor's memory shows in the reference counts of the tensor and its storage, in
    Python and in C++, and disappears from them once it is gone."""
    tensor = torch.zeros(2)
    storage = tensor.untyped_storage()

    def count() -> int:
        in_cpp = tensor._use_count() + torch._C._storage_Use_Count(storage._cdata)  # type: ignore[attr-defined]
        return int(sys.getrefcount(tensor) + sys.getrefcount(storage) + in_cpp)

    sharers: list[Callable[[torch.Tensor], object]] = [
        lambda it: it,
        torch.Tensor.detach,
        torch.Tensor.numpy,
        torch.Tensor.untyped_storage,
        torch.Tensor.__dlpack__,
        torch.utils.dlpack.from_dlpack,
    ]
    try:
        alone = count()
        for share in sharers:
            sharer = share(tensor)
            shared = count()
            del sharer
            if shared <= alone or count() != alone:
                return False
    except (AttributeError, TypeError, RuntimeError):
        return False
    return True


def reference_counts() -> tuple[Callable[[torch.Tensor], int], Callable[[int], int]]:
    """How many references C++ has to a tensor, and to the storage of this storage_identity() while it is alive. If
    torch no longer reports them as expected, every count returned is different, so all memory counts as shared: slower,
    with the same results."""
    if _references_are_counted():
        return torch.Tensor._use_count, torch._C._storage_Use_Count  # type: ignore[attr-defined]
    warnings.warn(
        f"torch {torch.__version__} does not say whether a tensor's memory is shared: gyre.torch copies each step's "
        "gradients once more, in case the program has kept them",
        stacklevel=3,
    )
    numbers = itertools.count()
    return lambda tensor: next(numbers), lambda storage: 0  # noqa: ARG005


# torch.distributed


def backend_options(name: str, timeout: Any) -> Any:
    """torch's options of a backend."""
    import torch.distributed as dist  # noqa: PLC0415  Some torches are built without it.

    options = getattr(getattr(dist, "_Backend", None), "Options", None)
    if options is None:
        raise _missing("torch.distributed._Backend.Options", "for a process group's options")
    return options(name, timeout)


@dataclass(frozen=True)
class GroupPlace:
    """A process group's place among others, as torch describes it to whoever makes one."""

    store: Any
    rank: int
    size: int
    timeout: Any
    name: str
    global_ranks: tuple[int, ...]


def backends_being_made() -> dict[str, str] | None:
    """{"cpu": "gyre", "cuda": "nccl"}: the backends of the group that torch makes further up on this thread's stack;
    None if torch makes groups in another way."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_new_process_group_helper" and "backend_config" in frame.f_locals:
            backends: dict[str, str] = frame.f_locals["backend_config"].get_device_backend_map()
            return dict(backends)
        frame = frame.f_back
    return None


def vendors_backend(class_: Any, place: GroupPlace) -> Any:
    """A ProcessGroupNCCL, or what is built like it, as torch makes it for a group of its own."""
    options = class_.Options()
    options._timeout = place.timeout
    options.global_ranks_in_group = list(place.global_ranks)
    options.group_name = place.name
    backend = class_(place.store, place.rank, place.size, options)
    backend._set_sequence_number_for_group()
    return backend


def gloo_backend(place: GroupPlace) -> Any:
    """Waits for all ranks."""
    import torch.distributed as dist  # noqa: PLC0415  Some torches are built without it.

    backend = dist.ProcessGroupGloo(place.store, place.rank, place.size, timeout=place.timeout)
    backend._set_sequence_number_for_group()
    return backend


def plugin_backend(name: str, place: GroupPlace) -> Any:
    """One that was registered with torch.distributed.Backend.register_backend()."""
    import torch.distributed as dist  # noqa: PLC0415  Some torches are built without it.

    plugins = getattr(dist.Backend, "_plugins", None)
    options_of = getattr(dist.distributed_c10d, "_DistributedBackendOptions", None)
    if plugins is None or options_of is None:
        raise _missing("Backend._plugins and _DistributedBackendOptions", "to make the backend of a device")
    plugin = plugins.get(name.upper())
    if plugin is None:
        raise UnsupportedError(f"torch.distributed knows no backend '{name}'")
    if not plugin.extended_api:
        return plugin.creator_fn(place.store, place.rank, place.size, place.timeout)
    options = options_of()
    options.store = place.store
    options.group_rank = place.rank
    options.group_size = place.size
    options.timeout = place.timeout
    options.group_id = place.name
    options.global_ranks_in_group = list(place.global_ranks)
    return plugin.creator_fn(options, None)


# Of a process group, as torch 2.13 calls them and as earlier versions do.
_EARLIER_METHODS = {
    "all_gather_single": "_allgather_base",
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced",
    "all_to_all_single": "alltoall_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
}


def method_of(group: Any, name: str) -> Callable[..., Any]:
    """A method of one of torch's process groups, by its name in torch 2.13."""
    found = getattr(group, name, None)
    return cast("Callable[..., Any]", getattr(group, _EARLIER_METHODS.get(name, name)) if found is None else found)


def hold(group: Any, device_type: str, name: str, backend: Any) -> None:
    """Makes a process group, a Python one included, find this C++ backend for a device."""
    kinds = type(group).BackendType
    register = getattr(group, "_register_backend", None)
    if register is None:
        raise _missing("ProcessGroup._register_backend", "to give a device to its backend")
    register(torch.device(device_type), getattr(kinds, name.upper(), kinds.CUSTOM), backend)


def group_over(backend: Any, device_type: str, name: str, place: GroupPlace) -> Any:
    """The process group that torch would make for this C++ backend alone, but in none of torch's tables."""
    import torch.distributed as dist  # noqa: PLC0415  Some torches are built without it.

    new_group: Any = dist.ProcessGroup
    group = new_group(place.store, place.rank, place.size)
    group._set_default_backend(getattr(new_group.BackendType, name.upper(), new_group.BackendType.CUSTOM))
    hold(group, device_type, name, backend)
    group._set_group_name(place.name)
    return group


def flight_record() -> str:
    """What torch's flight recorder knows of its backends, where it is on: "" otherwise. For people."""
    module = getattr(torch._C, "_distributed_c10d", None)
    for name in ("_dump_nccl_trace_json", "_dump_fr_trace_json"):
        dump = getattr(module, name, None)
        if dump is None:
            continue
        try:
            status = json.loads(dump())["pg_status"]
        except (RuntimeError, ValueError, KeyError, TypeError):
            continue
        groups = "; ".join(
            f"group {group}: enqueued {one['last_enqueued_collective']}, started {one['last_started_collective']}, "
            f"completed {one['last_completed_collective']}"
            for group, one in status.items()
        )
        if groups:
            return f" (torch's flight recorder, numbers of the last collectives: {groups})"
    return ""


def premultiplier(operation: Any) -> float:
    """Of a ReduceOp that is a PREMUL_SUM."""
    try:
        return float(operation.__getstate__()[1])
    except (AttributeError, IndexError, TypeError) as failure:
        raise _missing("factor in a PREMUL_SUM's state", "to multiply by it") from failure


def rendezvous_handlers() -> dict[str, Any]:
    """torch's rendezvous handlers, by the scheme of init_method; None if they are kept elsewhere."""
    rendezvous = importlib.import_module("torch.distributed.rendezvous")
    handlers: dict[str, Any] = getattr(rendezvous, "_rendezvous_handlers", {})
    return handlers


def backend_being_initialised() -> str | None:
    """What init_process_group() was called with, further up on this thread's stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "init_process_group" and "backend" in frame.f_locals:
            return str(frame.f_locals["backend"])
        frame = frame.f_back
    return None


# sparse tensors


def parts_of_sparse(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The indices and values of a sparse tensor that may have several entries for one place: torch's public functions
    add them up first, with the floating-point state that the thread happens to have."""
    try:
        return tensor._indices(), tensor._values()
    except AttributeError as failure:
        raise _missing("Tensor._indices and Tensor._values", "to sum sparse tensors") from failure


# torch.compile

_kept_out = False


def keep_out_of_graphs() -> None:
    """Tells torch.compile's tracer, if torch has loaded it, not to trace Gyre's functions: it would follow an operation
    into the engine's handles, and fail. Cheap enough for every operation; torch loads the tracer late."""
    global _kept_out  # noqa: PLW0603 - the tracer's rules are the process's too
    if _kept_out or "torch._dynamo.trace_rules" not in sys.modules:
        return
    _kept_out = True
    add = getattr(sys.modules["torch._dynamo.trace_rules"], "add", None)
    if add is None:
        missing = _missing("torch._dynamo.trace_rules.add", "to keep its functions out of compiled graphs")
        warnings.warn(f"{missing}; functions that call Gyre cannot be compiled", stacklevel=3)
    else:
        add("gyre")
