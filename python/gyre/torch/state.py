"""Broadcasts of one rank's state: parameters, optimizer state, plain data."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from gyre._job.process_sets import ProcessSet, global_process_set, root_in, runtime_of
from gyre._operations import Kind
from gyre._runtime import Runtime
from gyre.errors import CorruptDataError, Error, InvalidArgumentError, MismatchError
from gyre.torch import _delegated, _plain_data, _staged
from gyre.torch._staged import check_tensor
from gyre.torch._submissions import Batch, OneTimeName, broadcast_submission, describe, gathering_submission, submit_one
from gyre.torch.handle import Handle

NamedTensors = Mapping[str, Any] | Iterable[tuple[str, torch.Tensor] | torch.Tensor]


def broadcast_parameters(params: NamedTensors, root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """Overwrites this rank's tensors with those of `root_rank`, all in one exchange.

    `params`: model.state_dict(), model.named_parameters(), or a list of tensors; the same names, shapes and types on
    every rank, else MismatchError. Anything that is not a tensor raises InvalidArgumentError.
    """
    runtime = runtime_of(process_set)
    root = root_in(process_set, root_rank, "broadcast_parameters")
    targets = []
    for name, tensor in _named(params):
        action = describe(Kind.BROADCAST, name)
        if not isinstance(tensor, torch.Tensor):
            raise InvalidArgumentError(f"{action}: cannot broadcast a {type(tensor).__name__} as a parameter")
        target = check_tensor(tensor, action).detach()
        targets.append((f"parameters.{name}", target))
    _broadcast_together(runtime, targets, root, "broadcast_parameters")


def _broadcast_together(
    runtime: Runtime,
    named: list[tuple[str, torch.Tensor]],
    root: int,
    action: str,
    *,
    through_host: bool = False,
) -> None:
    """In place, in one exchange. `through_host`: wherever the ranks' tensors are."""
    tensors = [tensor for _, tensor in named]

    def on_host(targets: list[torch.Tensor]) -> Handle:
        batch = Batch(runtime)
        for (name, _), target in zip(named, targets, strict=True):
            batch.submissions.append(broadcast_submission(runtime, target, target, OneTimeName(name), root))
        return batch.submit()

    if any(map(_staged.is_on_device, tensors)):

        def stage(_: str | None) -> Handle:
            return _staged.reduced(runtime, tensors, action, on_host, in_place=True)

        names = [OneTimeName(name) for name, _ in named]
        delegated = None
        if not through_host:
            delegated = _delegated.broadcast(runtime, tensors, names, root, action, stage, in_place=True, one=False)
        (stage(None) if delegated is None else delegated).wait()
    else:
        on_host(tensors).wait()


def _named(params: NamedTensors) -> list[tuple[str, Any]]:
    if isinstance(params, Mapping):
        return sorted(params.items())
    if not isinstance(params, Iterable) or isinstance(params, torch.Tensor):
        raise InvalidArgumentError(
            f"broadcast_parameters: expected model.state_dict(), model.named_parameters() or a list of tensors, not a "
            f"{type(params).__name__}"
        )
    return [item if isinstance(item, tuple) else (str(index), item) for index, item in enumerate(params)]


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Makes this rank's optimizer identical to `root_rank`'s: the state of every parameter and the options of every
    group.

    Works for every class of torch.optim, even if only the root has stepped yet: missing state is created, state that
    the root does not have is dropped. Options must be plain data (numbers, strings, None, lists, tensors); nothing is
    pickled. MismatchError if the groups have different numbers of parameters than the root's.

    Parameters of an optimizer that had no state here get zeros as their gradients, as in Horovod (which then makes a
    step with them; Gyre does not): sparse ones for SparseAdam, and with SGD for the embeddings of `model` that have
    sparse gradients.
    """
    runtime = runtime_of(process_set)
    root = root_in(process_set, root_rank, "broadcast_optimizer_state")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidArgumentError(f"expected a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if model is not None and not isinstance(model, torch.nn.Module):
        raise InvalidArgumentError(f"broadcast_optimizer_state: model must be a module, not {type(model).__name__}")
    had_state = bool(optimizer.state)
    described = _optimizer_tree(optimizer) if runtime.rank == root else None
    device = next((parameter.device for parameter in _parameters(optimizer) if not parameter.is_cpu), None)
    described = _broadcast_plain(runtime, described, root, "optimizer_state", device=device)
    problem = _difference(optimizer, described, runtime.rank, root)
    _agree(runtime, problem)
    if runtime.rank != root:
        _apply(optimizer, described)
    if not had_state:
        _zero_gradients(optimizer, model)


def _zero_gradients(optimizer: torch.optim.Optimizer, model: torch.nn.Module | None) -> None:
    modules = [] if model is None or not isinstance(optimizer, torch.optim.SGD) else model.modules()
    sparse = {
        id(parameter)
        for module in modules
        if isinstance(module, torch.nn.Embedding) and module.sparse
        for parameter in module.parameters()
    }
    for parameter in _parameters(optimizer):
        if parameter.requires_grad:
            zeros = torch.zeros_like(parameter, requires_grad=False)
            is_sparse = isinstance(optimizer, torch.optim.SparseAdam) or id(parameter) in sparse
            parameter.grad = zeros.to_sparse(1) if is_sparse else zeros


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _optimizer_tree(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    groups = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    state = {i: dict(optimizer.state[p]) for i, p in enumerate(_parameters(optimizer)) if p in optimizer.state}
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    return {"class": type(optimizer).__name__, "sizes": sizes, "groups": groups, "state": state}


def _difference(optimizer: torch.optim.Optimizer, described: Any, rank: int, root_rank: int) -> str:
    """The reason why this rank cannot take over the root's state; empty if it can."""
    theirs = (described["class"], described["sizes"])
    ours = (type(optimizer).__name__, [len(group["params"]) for group in optimizer.param_groups])
    if ours == theirs:
        return ""
    return (
        f"broadcast of the optimizer's state: rank {root_rank} has a {theirs[0]} whose groups hold {theirs[1]} "
        f"parameters, rank {rank} a {ours[0]} whose groups hold {ours[1]}"
    )


def _agree(runtime: Runtime, problem: str) -> None:
    """Raises the first rank's problem on every rank, so that no rank continues alone."""
    text = torch.frombuffer(bytearray(problem.encode() + b"\n"), dtype=torch.uint8)
    name = OneTimeName(f"agree.{runtime.next_number('agree')}")
    gathering = gathering_submission(runtime, Kind.ALLGATHER, text, name)
    gathered, _ = submit_one(runtime, gathering).wait()
    lines = bytes(gathered.tolist()).decode().splitlines()
    first = next((line for line in lines if line), None)
    if first is not None:
        raise MismatchError(first)


def _apply(optimizer: torch.optim.Optimizer, described: Any) -> None:
    for group, options in zip(optimizer.param_groups, described["groups"], strict=True):
        for key in [key for key in group if key != "params" and key not in options]:
            del group[key]
        for key, value in options.items():
            group[key] = _in_place_of(group.get(key), value)
    for index, parameter in enumerate(_parameters(optimizer)):
        values = described["state"].get(index)
        if values is None:
            optimizer.state.pop(parameter, None)
            continue
        own = optimizer.state[parameter]
        merged = {key: _in_place_of(own.get(key), _beside(parameter, key, value)) for key, value in values.items()}
        own.clear()
        own.update(merged)


def _beside(parameter: torch.Tensor, key: object, value: Any) -> Any:
    """State of a parameter's shape is where this rank's parameter is; numbers like Adam's "step" stay on the CPU."""
    if not isinstance(value, torch.Tensor) or value.device == parameter.device:
        return value
    moves = not value.is_cpu or (value.shape == parameter.shape and key != "step")
    return value.to(parameter.device) if moves else value


def _in_place_of(own: Any, value: Any) -> Any:
    """`value`, written into the existing tensor if that is like it, because the program may refer to it."""
    alike = isinstance(own, torch.Tensor) and isinstance(value, torch.Tensor)
    if alike and own.shape == value.shape and own.dtype == value.dtype:
        with torch.no_grad():
            own.copy_(value)
        return own
    return value


def _broadcast_plain(
    runtime: Runtime,
    value: Any,
    root_rank: int,
    what: str,
    *,
    allow_pickle: bool = False,
    device: torch.device | None = None,
) -> Any:
    """Broadcasts the root's value: a description first, then its tensors in one exchange. `device`: see decode()."""
    is_root = runtime.rank == root_rank
    stem = f"{what}.{runtime.next_number(what)}"
    # If the value cannot be sent, for whatever reason (pickling runs the object's own code), the other ranks must not
    # be left waiting: a negative size tells them, and this rank raises the error afterwards.
    failure: Exception | None = None
    encoded = _plain_data.Encoded()
    if is_root:
        try:
            encoded = _encoded(value, what.replace("_", " "), allow_pickle=allow_pickle)
        except Exception as error:
            failure = error
    size = -1 if failure is not None else len(encoded.text)
    announced = int(_broadcast_one(runtime, torch.tensor(size, device="cpu"), root_rank, f"{stem}.size"))
    if failure is not None:
        raise failure
    if announced < 0:
        raise InvalidArgumentError(
            f"rank {root_rank} cannot send its {what.replace('_', ' ')}; its own message says why"
        )
    if announced > _plain_data.MAX_TEXT_BYTES:
        raise CorruptDataError(f"{what}: rank {root_rank} announced {announced} bytes of description")
    return _broadcast_described(runtime, value, encoded, announced, root_rank, stem, device)


def _broadcast_described(
    runtime: Runtime,
    value: Any,
    encoded: _plain_data.Encoded,
    size: int,
    root_rank: int,
    stem: str,
    device: torch.device | None,
) -> Any:
    is_root = runtime.rank == root_rank
    text = torch.empty(size, dtype=torch.uint8, device="cpu")
    if is_root:
        text = torch.frombuffer(bytearray(encoded.text), dtype=torch.uint8)
    _broadcast_one(runtime, text, root_rank, f"{stem}.description")
    tensors = encoded.tensors
    if not is_root:
        value, tensors = _plain_data.decode(text.numpy().tobytes(), device)
    targets = [(f"{stem}.tensor.{index}", tensor.detach()) for index, tensor in enumerate(tensors)]
    _broadcast_together(runtime, targets, root_rank, "broadcast", through_host=True)
    return value


def _broadcast_one(runtime: Runtime, tensor: torch.Tensor, root_rank: int, name: str) -> torch.Tensor:
    """In place."""
    submission = broadcast_submission(runtime, tensor, tensor, OneTimeName(name), root_rank)
    result: torch.Tensor = submit_one(runtime, submission).wait()
    return result


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    allow_pickle: bool = False,
) -> Any:
    """The root's `obj` on every rank. Plain data: None, bool, numbers, str, bytes, list, tuple, set, dict, NumPy
    arrays, tensors; nothing is pickled, so received data is never executed. InvalidArgumentError on every rank for
    anything else, unless `allow_pickle` is given on every rank: then such an object is pickled, which lets the
    sender run code on every rank."""
    runtime = runtime_of(process_set)
    root = root_in(process_set, root_rank, "broadcast_object")
    return _broadcast_any(runtime, obj, root, name or "object", allow_pickle)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set, *, allow_pickle: bool = False
) -> list[Any]:
    """Every rank's `obj`, in rank order, each a copy; plain data, or anything with `allow_pickle`: see
    broadcast_object()."""
    runtime = runtime_of(process_set)
    stem = name or "object"
    own = runtime.rank
    gathered = [_broadcast_any(runtime, obj, root, f"{stem}.from.{root}", allow_pickle) for root in range(runtime.size)]
    gathered[own] = _copy_of(obj, stem, allow_pickle)
    return gathered


def _copy_of(obj: Any, what: str, allow_pickle: bool) -> Any:
    """The object as another rank receives it."""
    encoded = _encoded(obj, what, allow_pickle=allow_pickle)
    value, tensors = _plain_data.decode(encoded.text)
    for tensor, own in zip(tensors, encoded.tensors, strict=True):
        tensor.copy_(own.detach())
    return _unpickled(value) if _is_pickled(value) else value


# How a pickled object is represented in plain data.
_PICKLED = "\0gyre.pickled"


def _broadcast_any(runtime: Runtime, obj: Any, root: int, what: str, allow_pickle: bool) -> Any:
    value = _broadcast_plain(runtime, obj, root, what, allow_pickle=allow_pickle)
    if runtime.rank == root or not _is_pickled(value):
        return value
    if not allow_pickle:
        raise InvalidArgumentError(
            f"{what}: the object that came is pickled, and this rank has not allowed that; pass allow_pickle=True on "
            "every rank if you trust all of them"
        )
    return _unpickled(value)


def _is_pickled(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and value[0] == _PICKLED


def _unpickled(value: tuple[str, torch.Tensor]) -> Any:
    return pickle.loads(value[1].numpy().tobytes())


def _encoded(obj: Any, what: str, *, allow_pickle: bool) -> _plain_data.Encoded:
    """As plain data; if that is not possible, pickled, if that is allowed."""
    try:
        return _plain_data.encode(obj, what)
    except Error:
        if not allow_pickle:
            raise
    content = torch.frombuffer(bytearray(pickle.dumps(obj)), dtype=torch.uint8)
    return _plain_data.encode((_PICKLED, content), what)
