"""The process group behind `init_process_group("gyre")`. Collectives run in the order in which each rank calls them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from gyre.distributed import _requests
from gyre.distributed._barrier import monitored_barrier
from gyre.distributed._group_base import GroupBase
from gyre.distributed._work import WorkGroup
from gyre.errors import InvalidArgumentError
from gyre.torch._requests import Kind
from gyre.torch._tensors import check_tensor, dense, memory_of


def create(options: Any, backend_options: object) -> ProcessGroup:
    """What torch calls to make a group: the world's, or new_group's. Collective among its ranks."""
    if backend_options is not None:
        raise InvalidArgumentError("the backend gyre takes no pg_options; settings are in docs/guide/settings.md")
    return ProcessGroup(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        options.group_id,
        options.global_ranks_in_group,
    )


class ProcessGroup(GroupBase):
    """torch calls these methods through torch.distributed's functions, whose documentation says what they do.

    Every collective gets the group's next number as its name, so ranks that call different ones, or with other shapes,
    types or roots, all get gyre.errors.MismatchError with both sides in it. Thread-safe, as far as several threads can
    agree with those of other ranks about an order.
    """

    # Collectives.

    def allreduce(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> dist.Work:
        opts = opts if opts is not None else dist.AllreduceOptions()
        action, name = self._begin("all_reduce")
        tensor = _requests.one_of(tensors, action)
        function = _requests.bitwise_of(opts.reduceOp)
        if function is not None:
            return self._bitwise_allreduce(tensor, function, action, name, opts)
        return self._allreduce(tensor, _requests.reduction_of(opts.reduceOp, action), action, name, opts)

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> dist.Work:
        opts = opts if opts is not None else dist.AllreduceCoalescedOptions()
        action, name = self._begin("all_reduce_coalesced")
        if not tensors:
            raise InvalidArgumentError(f"{action}: no tensors were given")
        for tensor in tensors:
            check_tensor(tensor, action)
        reduction = _requests.reduction_of(opts.reduceOp, action)
        landed = [_requests.landing(tensor) for tensor in tensors]
        requests = []
        for number, (tensor, place) in enumerate(zip(tensors, landed, strict=True)):
            self._bring(tensor, place)
            requests.append(
                _requests.request(
                    Kind.ALLREDUCE,
                    f"{name}.{number}",
                    tensor,
                    tensor.shape,
                    source=place,
                    target=place,
                    reduction=reduction,
                )
            )

        def finish() -> None:
            for tensor, place in zip(tensors, landed, strict=True):
                _requests.copy_back(place, tensor)

        handles = self._runtime.submit(requests, together=True)
        return self._work(handles, landed, tensors, action, opts, finish)

    def broadcast(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> dist.Work:
        opts = opts if opts is not None else dist.BroadcastOptions()
        action, name = self._begin("broadcast")
        tensor = _requests.one_of(tensors, action)
        place = _requests.landing(tensor)
        if opts.rootRank == self._own_rank:
            self._bring(tensor, place)
        request = _requests.request(
            Kind.BROADCAST, name, tensor, tensor.shape, source=place, target=place, root=opts.rootRank
        )
        return self._run(request, [place], [tensor], action, opts, lambda: _requests.copy_back(place, tensor))

    def reduce(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> dist.Work:
        opts = opts if opts is not None else dist.ReduceOptions()
        action, name = self._begin("reduce")
        tensor = _requests.one_of(tensors, action)
        self._check_root(opts.rootRank, action)
        # Every rank gets the sum, only the root keeps it: the others' tensors stay as they are.
        place = dense(tensor) if opts.rootRank == self._own_rank else dense(tensor).clone()
        reduction = _requests.reduction_of(opts.reduceOp, action)
        request = _requests.request(
            Kind.ALLREDUCE, name, tensor, tensor.shape, source=place, target=place, reduction=reduction
        )

        def finish() -> None:
            if opts.rootRank == self._own_rank:
                _requests.copy_back(place, tensor)

        return self._run(request, [place], [tensor], action, opts, finish)

    def allgather(
        self, output_lists: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> dist.Work:
        action, name = self._begin("all_gather")
        tensor = _requests.one_of(inputs, action)
        if len(output_lists) != 1 or len(output_lists[0]) != self._own_size:
            raise InvalidArgumentError(f"{action}: a list of {self._own_size} tensors is needed, one for each rank")
        return self._allgather(list(output_lists[0]), tensor, action, name, opts)

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> dist.Work:
        action, name = self._begin("all_gather_into_tensor")
        check_tensor(tensor, action)
        return self._allgather([output], tensor, action, name, opts)

    def allgather_coalesced(
        self, output_lists: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> dist.Work:
        # One output list per input, each with a tensor per rank.
        if len(output_lists) != len(inputs):
            raise InvalidArgumentError(
                f"all_gather_coalesced: {len(output_lists)} lists of outputs were given for {len(inputs)} inputs"
            )
        return WorkGroup(
            [self.allgather([outputs], [tensor], opts) for outputs, tensor in zip(output_lists, inputs, strict=True)]
        )

    def all_gather_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> dist.Work:
        pairs = zip(outputs, inputs, strict=True)
        return WorkGroup([self.all_gather_single(output, tensor, opts) for output, tensor in pairs])

    def reduce_scatter(
        self, outputs: Sequence[torch.Tensor], input_lists: Sequence[Sequence[torch.Tensor]], opts: Any = None
    ) -> dist.Work:
        action, name = self._begin("reduce_scatter")
        output = _requests.one_of(outputs, action)
        if len(input_lists) != 1 or len(input_lists[0]) != self._own_size:
            raise InvalidArgumentError(f"{action}: a list of {self._own_size} tensors is needed, one for each rank")
        return self._reduce_scatter(output, list(input_lists[0]), action, name, opts)

    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> dist.Work:
        action, name = self._begin("reduce_scatter_tensor")
        return self._reduce_scatter(check_tensor(output, action), [tensor], action, name, opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> dist.Work:
        pairs = zip(outputs, inputs, strict=True)
        return WorkGroup([self.reduce_scatter_single(output, tensor, opts) for output, tensor in pairs])

    def all_to_all_single(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> dist.Work:
        action, name = self._begin("all_to_all_single")
        check_tensor(tensor, action)
        _requests.same_type([output], tensor, action)
        send = self._elements(tensor, input_splits, f"{action}: the input's")
        receive = self._elements(output, output_splits, f"{action}: the output's")
        return self._exchange([output], [tensor], send, receive, action, name, opts)

    def alltoall(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None) -> dist.Work:
        action, name = self._begin("all_to_all")
        if len(outputs) != self._own_size or len(inputs) != self._own_size:
            raise InvalidArgumentError(f"{action}: two lists of {self._own_size} tensors are needed")
        _requests.same_type([*inputs, *outputs], check_tensor(inputs[0], action), action)
        send = [tensor.numel() for tensor in inputs]
        receive = [tensor.numel() for tensor in outputs]
        return self._exchange(list(outputs), list(inputs), send, receive, action, name, opts)

    def gather(
        self, output_lists: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> dist.Work:
        opts = opts if opts is not None else dist.GatherOptions()
        action, name = self._begin("gather")
        tensor = _requests.one_of(inputs, action)
        self._check_root(opts.rootRank, action)
        outputs = list(output_lists[0]) if output_lists and opts.rootRank == self._own_rank else []
        if opts.rootRank == self._own_rank and len(outputs) != self._own_size:
            raise InvalidArgumentError(f"{action}: the root needs a list of {self._own_size} tensors")
        _requests.same_type(outputs, tensor, action)
        send = [tensor.numel() if rank == opts.rootRank else 0 for rank in range(self._own_size)]
        receive = [output.numel() for output in outputs] or [0] * self._own_size
        return self._exchange(outputs, [tensor], send, receive, action, name, opts)

    def scatter(
        self, outputs: Sequence[torch.Tensor], input_lists: Sequence[Sequence[torch.Tensor]], opts: Any = None
    ) -> dist.Work:
        opts = opts if opts is not None else dist.ScatterOptions()
        action, name = self._begin("scatter")
        output = _requests.one_of(outputs, action)
        self._check_root(opts.rootRank, action)
        inputs = list(input_lists[0]) if input_lists and opts.rootRank == self._own_rank else []
        if opts.rootRank == self._own_rank and len(inputs) != self._own_size:
            raise InvalidArgumentError(f"{action}: the root needs a list of {self._own_size} tensors")
        _requests.same_type(inputs, output, action)
        send = [tensor.numel() for tensor in inputs] or [0] * self._own_size
        receive = [output.numel() if rank == opts.rootRank else 0 for rank in range(self._own_size)]
        return self._exchange([output], inputs or [output.new_empty(0)], send, receive, action, name, opts)

    def barrier(self, opts: Any = None) -> dist.Work:
        opts = opts if opts is not None else dist.BarrierOptions()
        action, name = self._begin("barrier")
        request = _requests.request(Kind.BARRIER, name, torch.empty(0, dtype=torch.uint8), [0])
        return self._run(request, [], [], action, opts)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Rank 0 names the ranks that do not come within `timeout`, and all ranks that came fail."""
        with self._lock:
            self._barriers += 1
            number = self._barriers
        limit = timeout or self._timeout
        monitored_barrier(self._store, self._own_rank, self._own_size, number, limit, wait_all_ranks)

    # The names that later, and earlier, versions of torch use for the same.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # Messages between two ranks. Waits for them have the group's own time limit.

    def send(self, tensors: Sequence[torch.Tensor], dst_rank: int, tag: int = 0) -> dist.Work:
        action = f"{self._title}: a send to rank {dst_rank}"
        tensor = _requests.one_of(tensors, action)
        source = dense(tensor)
        handle = self._messages.send(dst_rank, tag, _requests.number_of(tensor), memory_of(source))
        return self._work([handle], [source], [tensor], f"{action} (tag {tag}), which must receive it,", self)

    def recv(self, tensors: Sequence[torch.Tensor], src_rank: int, tag: int = 0) -> dist.Work:
        return self._receive(tensors, src_rank, tag, f"{self._title}: a receive from rank {src_rank}")

    def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int = 0) -> dist.Work:
        return self._receive(tensors, None, tag, f"{self._title}: a receive from any rank")

    def _receive(self, tensors: Sequence[torch.Tensor], source: int | None, tag: int, action: str) -> dist.Work:
        tensor = _requests.one_of(tensors, action)
        place = _requests.landing(tensor)
        handle = self._messages.receive(source, tag, _requests.number_of(tensor), memory_of(place))
        description = f"{action} (tag {tag}), which must send it,"
        return self._work([handle], [place], [tensor], description, self, lambda: _requests.copy_back(place, tensor))

    # Coalescing: here the operations start at once, and end together.

    def _start_coalescing(self, device: object = None) -> None:
        del device
        self._coalesced = []

    def _end_coalescing(self, device: object = None) -> dist.Work:
        del device
        works, self._coalesced = self._coalesced or [], None
        return WorkGroup(works)
