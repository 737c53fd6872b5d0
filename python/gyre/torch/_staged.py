"""Operations on tensors of a device: the same operation runs on twins of them in pinned host memory, so that its rules,
its errors and the bits of its results are those of CPU tensors (ADR 114).

The call waits on the host until the device has computed the tensors. The handle's wait() sends the results back, for
which the caller's current stream waits, not the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import torch

from gyre._devices.staging import Landing, Pair, is_present, say_once, to_host, twin_of
from gyre._runtime import Runtime
from gyre._tensors import memory
from gyre._tensors.memory import check_overwritable, exchangeable
from gyre._torch_private import parts_of_sparse
from gyre.torch.handle import Handle


def is_on_device(tensor: object) -> TypeGuard[torch.Tensor]:
    """Whether it is a tensor of a device that this process has."""
    return isinstance(tensor, torch.Tensor) and not tensor.is_cpu and is_present(tensor.device.type)


def check_tensor(tensor: object, action: str) -> torch.Tensor:
    """As gyre._tensors.memory.check_tensor(), for tensors of a device too."""
    if exchangeable(tensor):
        return tensor
    if is_on_device(tensor) and tensor.layout == torch.strided:
        memory.check_tensor(torch.empty(0, dtype=tensor.dtype, device="cpu"), action)
        return tensor
    return memory.check_tensor(tensor, action)


def check_in_place(tensor: object, action: str) -> torch.Tensor:
    """As gyre._tensors.memory.check_in_place(), for tensors of a device too."""
    return check_overwritable(check_tensor(tensor, action), action)


class StagedHandle(Handle):
    """The handle of an operation on twins, whose results go on to devices when it is waited for."""

    __slots__ = ("_landing",)

    def __init__(self, runtime: Runtime, on_host: Handle, send_on: Callable[[Any, list[Pair]], Any]) -> None:
        """`send_on` makes the result of what `on_host` has brought, and adds the tensors to be written to a list."""
        self._landing: Landing | None = None

        def finish(_: object) -> Any:
            pairs: list[Pair] = []
            result = send_on(on_host.wait(), pairs)
            self._landing = Landing(pairs)
            return result

        super().__init__(runtime, [], None, finish, before=on_host)

    def wait(self) -> Any:
        """As Handle.wait(), until the result is in host memory. The caller's current stream waits for the rest."""
        result = super().wait()
        assert self._landing is not None
        self._landing.land()
        return result


def _brought_to_host(
    runtime: Runtime, tensors: Sequence[torch.Tensor], action: str, *, keep_others: bool
) -> list[torch.Tensor]:
    """Their twins; for those of the CPU a copy, or themselves (`keep_others`)."""
    twins = [
        twin_of(tensor) if not tensor.is_cpu else tensor if keep_others else tensor.detach().clone()
        for tensor in tensors
    ]
    pairs = [(twin, tensor) for twin, tensor in zip(twins, tensors, strict=True) if not tensor.is_cpu]
    if runtime.rank == 0:
        say_once(pairs[0][1].device.type)
    to_host(pairs, action)
    return twins


def _new_like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format, requires_grad=False)


def reduced(
    runtime: Runtime,
    tensors: Sequence[torch.Tensor],
    action: str,
    on_host: Callable[[list[torch.Tensor]], Handle],
    *,
    in_place: bool,
) -> StagedHandle:
    """An operation whose results are like the tensors, some of which are of a device. `on_host`: its form in place. The
    handle's result is the list of results."""
    twins = _brought_to_host(runtime, tensors, action, keep_others=in_place)

    def send_on(_: object, pairs: list[Pair]) -> list[torch.Tensor]:
        results = []
        for twin, tensor in zip(twins, tensors, strict=True):
            result = tensor if in_place else twin if tensor.is_cpu else _new_like(tensor)
            if not tensor.is_cpu:
                pairs.append((twin, result))
            results.append(result)
        return results

    return StagedHandle(runtime, on_host(twins), send_on)


def reduced_one(
    runtime: Runtime,
    tensor: torch.Tensor,
    action: str,
    on_host: Callable[[torch.Tensor], Handle],
    *,
    in_place: bool,
) -> StagedHandle:
    """reduced(), of one tensor; the handle's result is its."""
    twin = _brought_to_host(runtime, [tensor], action, keep_others=True)[0]

    def send_on(_: object, pairs: list[Pair]) -> torch.Tensor:
        result = tensor if in_place else _new_like(tensor)
        pairs.append((twin, result))
        return result

    return StagedHandle(runtime, on_host(twin), send_on)


def run_reduced(
    runtime: Runtime,
    tensor: torch.Tensor,
    action: str,
    on_host: Callable[[torch.Tensor], object],
    *,
    in_place: bool,
) -> torch.Tensor:
    """reduced_one() and its wait(); `on_host` returns when it is done."""
    twin = _brought_to_host(runtime, [tensor], action, keep_others=True)[0]
    on_host(twin)
    result = tensor if in_place else _new_like(tensor)
    Landing([(twin, result)]).land()
    return result


def gathered(
    runtime: Runtime,
    tensors: Sequence[torch.Tensor],
    action: str,
    on_host: Callable[[list[torch.Tensor]], Handle],
) -> StagedHandle:
    """An operation whose results have other shapes: a list of them, of which some go to a device."""
    twins = _brought_to_host(runtime, tensors, action, keep_others=True)

    def send_on(results: Sequence[torch.Tensor], pairs: list[Pair]) -> list[torch.Tensor]:
        return [_sent_on(result, tensor.device, pairs) for result, tensor in zip(results, tensors, strict=True)]

    return StagedHandle(runtime, on_host(twins), send_on)


def gathered_one(
    runtime: Runtime, tensor: torch.Tensor, action: str, on_host: Callable[[torch.Tensor], Handle]
) -> StagedHandle:
    """gathered(), of one tensor. If there is more in the result (splits), it stays in host memory."""
    twin = _brought_to_host(runtime, [tensor], action, keep_others=True)[0]

    def send_on(result: Any, pairs: list[Pair]) -> Any:
        if isinstance(result, tuple):
            return (_sent_on(result[0], tensor.device, pairs), *result[1:])
        return _sent_on(result, tensor.device, pairs)

    return StagedHandle(runtime, on_host(twin), send_on)


def _sent_on(result: torch.Tensor, device: torch.device, pairs: list[Pair]) -> torch.Tensor:
    """The engine's memory is not pinned: a copy from there would wait."""
    if device.type == "cpu":
        return result
    pairs.append((twin_of(result).copy_(result), torch.empty_like(result, device=device)))
    return pairs[-1][1]


def sparse(
    runtime: Runtime, tensor: torch.Tensor, action: str, on_host: Callable[[torch.Tensor], Handle]
) -> StagedHandle:
    """The sum of sparse tensors, of which this rank's is on a device."""
    device = tensor.device
    indices, values = _brought_to_host(runtime, parts_of_sparse(tensor.detach()), action, keep_others=True)
    twin = torch.sparse_coo_tensor(
        indices, values, tensor.shape, device="cpu", is_coalesced=tensor.is_coalesced(), check_invariants=False
    )

    def send_on(total: torch.Tensor, pairs: list[Pair]) -> torch.Tensor:
        indices, values = (_sent_on(part, device, pairs) for part in (total.indices(), total.values()))
        return torch.sparse_coo_tensor(
            indices, values, total.shape, device=device, is_coalesced=True, check_invariants=False
        )

    return StagedHandle(runtime, on_host(twin), send_on)
