"""The process group behind `init_process_group("gyre")`. Collectives run in the order in which each rank calls them."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist

from gyre._operations import Kind
from gyre._runtime import refuse_second_import
from gyre._tensors.memory import dense, memory_of
from gyre._tensors.requests import make_request
from gyre.core import _core
from gyre.distributed import _requests
from gyre.distributed._barrier import monitored_barrier
from gyre.distributed._devices import STAGED, by_device
from gyre.distributed._failures import raised_as_torch_does
from gyre.distributed._forms import listed, listed_pair, options_of
from gyre.distributed._group_base import GroupBase
from gyre.distributed._sparse import is_sparse, sparse_allreduce
from gyre.distributed._work import WorkGroup
from gyre.errors import InvalidArgumentError, UnsupportedError

# The lists that torch's functions pass, or a single tensor.
Tensors = Sequence[torch.Tensor] | torch.Tensor


def create(options: Any, backend_options: object) -> ProcessGroup:
    """torch calls this to make a group: the world's, or new_group's. Collective among its ranks."""
    refuse_second_import()
    _refuse_servers()
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


def _refuse_servers() -> None:
    """Of a job whose program exchanges gradients otherwise: the servers would wait for the workers in vain."""
    if os.environ.get("GYRE_SERVERS", "0") == "0" or not _core.is_started_by_gyre_run():
        return
    parameter_servers = sys.modules.get("gyre.params")
    if parameter_servers is None or not parameter_servers.is_initialized():
        raise UnsupportedError(
            "this job has parameter servers (`gyre run --servers`), and this program exchanges gradients between its "
            "ranks: start it without --servers, or call gyre.params.init() first"
        )


class ProcessGroup(GroupBase):
    """torch calls these methods through torch.distributed's functions, whose documentation describes them.

    Every collective gets the group's next number as its name, so ranks that call different ones, or pass different
    shapes, types or roots, all get gyre.errors.MismatchError, which shows both sides. Thread-safe, provided that the
    threads of all ranks call collectives in the same order.
    """

    # Collectives.

    @by_device
    def allreduce(self, tensors: Tensors, opts: Any = None, timeout: Any = None, *, op: Any = None) -> dist.Work:
        opts = options_of(dist.AllreduceOptions, opts, timeout, op=op)
        tensors = listed(tensors)
        if len(tensors) == 1 and is_sparse(tensors[0]):
            return sparse_allreduce(self, tensors[0], opts)
        with self._begin("all_reduce") as (action, name):
            tensor = _requests.reducible(_requests.one_of(listed(tensors), action), opts.reduceOp, action)
            function = _requests.bitwise_of(opts.reduceOp, tensor, action)
            if function is not None:
                return self._bitwise_allreduce(tensor, function, action, name, opts)
            return self._allreduce(tensor, _requests.reduction_of(opts.reduceOp, action), action, name, opts)

    @by_device
    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> dist.Work:
        opts = options_of(dist.AllreduceCoalescedOptions, opts)
        if _requests.name_of(opts.reduceOp) in _requests.BITWISE:
            single = options_of(dist.AllreduceOptions, opts.reduceOp, opts.timeout)
            return WorkGroup([self.allreduce([tensor], single) for tensor in tensors])
        with self._begin("all_reduce_coalesced", members=len(tensors)) as (action, name):
            if not tensors:
                raise InvalidArgumentError(f"{action}: no tensors were given")
            known = [_requests.reducible(tensor, opts.reduceOp, action) for tensor in tensors]
            reduction = _requests.reduction_of(opts.reduceOp, action)
            landed = [_requests.landing(tensor) for tensor in known]
            requests = []
            for number, (tensor, place) in enumerate(zip(known, landed, strict=True)):
                self._bring(tensor, place)
                requests.append(
                    make_request(
                        Kind.ALLREDUCE,
                        f"{name}.{number}",
                        tensor,
                        tensor.shape,
                        source=place,
                        target=place,
                        reduction=reduction,
                    )
                )
            handles = self._runtime.core.submit_group(requests)

        def finish() -> None:
            for tensor, place in zip(known, landed, strict=True):
                _requests.copy_back(place, tensor)

        return self._work(handles, landed, tensors, action, opts, finish)

    @by_device
    def broadcast(self, tensors: Tensors, opts: Any = None, timeout: Any = None, *, root: Any = None) -> dist.Work:
        opts = options_of(dist.BroadcastOptions, opts, timeout, root=root)
        with self._begin("broadcast") as (action, name):
            result = _requests.one_of(listed(tensors), action)
            tensor = _requests.movable(result, action)
            self._check_root(opts.rootRank, action)
            place = _requests.landing(tensor)
            if opts.rootRank == self._own_rank:
                self._bring(tensor, place)
            request = make_request(
                Kind.BROADCAST, name, tensor, tensor.shape, source=place, target=place, root=opts.rootRank
            )
            return self._run(request, [place], [result], action, opts, lambda: _requests.copy_back(place, tensor))

    @by_device
    def reduce(
        self, tensors: Tensors, opts: Any = None, op: Any = None, timeout: Any = None, *, root: Any = None
    ) -> dist.Work:
        opts = options_of(dist.ReduceOptions, opts, op, timeout, root=root)
        with self._begin("reduce") as (action, name):
            result = _requests.one_of(listed(tensors), action)
            tensor = _requests.reducible(result, opts.reduceOp, action)
            self._check_root(opts.rootRank, action)
            function = _requests.bitwise_of(opts.reduceOp, tensor, action)
            if function is not None:
                return self._bitwise_allreduce(tensor, function, action, name, opts, opts.rootRank)
            # Every rank gets the sum, but only the root keeps it: the others' tensors stay unchanged.
            place = dense(tensor) if opts.rootRank == self._own_rank else dense(tensor).clone()
            reduction = _requests.reduction_of(opts.reduceOp, action)
            request = make_request(
                Kind.ALLREDUCE,
                name,
                tensor,
                tensor.shape,
                source=place,
                target=place,
                reduction=reduction,
                root=opts.rootRank,
            )

            def finish() -> None:
                if opts.rootRank == self._own_rank:
                    _requests.copy_back(place, tensor)

            return self._run(request, [place], [result], action, opts, finish)

    @by_device
    def allgather(self, output_lists: Sequence[Any], inputs: Tensors, opts: Any = None) -> dist.Work:
        output_lists, inputs = listed_pair(output_lists, inputs)
        with self._begin("all_gather") as (action, name):
            tensor = _requests.one_of(listed(inputs), action)
            if len(output_lists) != 1 or len(output_lists[0]) != self._own_size:
                raise InvalidArgumentError(f"{action}: a list of {self._own_size} tensors is needed, one for each rank")
            return self._allgather(list(output_lists[0]), tensor, action, name, opts)

    @by_device
    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> dist.Work:
        with self._begin("all_gather_into_tensor") as (action, name):
            return self._allgather([output], tensor, action, name, opts)

    @by_device
    def allgather_coalesced(
        self, output_lists: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> dist.Work:
        # One output list for each rank, each with a tensor for every input.
        if len(output_lists) != self._own_size or any(len(outputs) != len(inputs) for outputs in output_lists):
            raise InvalidArgumentError(
                f"all_gather_coalesced: {self._own_size} lists, one for each rank, of {len(inputs)} tensors, one for "
                f"each input, are needed, not lists of {[len(outputs) for outputs in output_lists]}"
            )
        columns = zip(zip(*output_lists, strict=True), inputs, strict=True)
        return WorkGroup([self.allgather([outputs], [tensor], opts) for outputs, tensor in columns])

    @by_device
    def all_gather_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> dist.Work:
        pairs = zip(outputs, inputs, strict=True)
        return WorkGroup([self.all_gather_single(output, tensor, opts) for output, tensor in pairs])

    @by_device
    def reduce_scatter(
        self, outputs: Tensors, input_lists: Sequence[Any], opts: Any = None, timeout: Any = None, *, op: Any = None
    ) -> dist.Work:
        opts = options_of(dist.ReduceScatterOptions, opts, timeout, op=op)
        if isinstance(outputs, torch.Tensor):
            outputs, input_lists = [outputs], [input_lists]
        with self._begin("reduce_scatter") as (action, name):
            output = _requests.one_of(listed(outputs), action)
            if len(input_lists) != 1 or len(input_lists[0]) != self._own_size:
                raise InvalidArgumentError(f"{action}: a list of {self._own_size} tensors is needed, one for each rank")
            return self._reduce_scatter(output, list(input_lists[0]), action, name, opts)

    @by_device
    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> dist.Work:
        opts = options_of(dist.ReduceScatterOptions, opts)
        with self._begin("reduce_scatter_tensor") as (action, name):
            return self._reduce_scatter(output, [tensor], action, name, opts)

    @by_device
    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> dist.Work:
        pairs = zip(outputs, inputs, strict=True)
        return WorkGroup([self.reduce_scatter_single(output, tensor, opts) for output, tensor in pairs])

    @by_device
    def all_to_all_single(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> dist.Work:
        with self._begin("all_to_all_single") as (action, name):
            known_input, known_output = _requests.same_type([tensor, output], tensor, action)
            send = self._elements(tensor, input_splits, f"{action}: the input's")
            receive = self._elements(output, output_splits, f"{action}: the output's")
            handle, memory, finish = self._exchanging([known_output], [known_input], send, receive, name, opts)
            return self._work([handle], memory, [output], action, opts, finish)

    @by_device
    def alltoall(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None) -> dist.Work:
        with self._begin("all_to_all") as (action, name):
            if len(outputs) != self._own_size or len(inputs) != self._own_size:
                raise InvalidArgumentError(f"{action}: two lists of {self._own_size} tensors are needed")
            known = _requests.same_type([*inputs, *outputs], inputs[0], action)
            sizes = [tensor.numel() for tensor in known]
            send, receive = sizes[: self._own_size], sizes[self._own_size :]
            known_inputs, known_outputs = known[: self._own_size], known[self._own_size :]
            handle, memory, finish = self._exchanging(known_outputs, known_inputs, send, receive, name, opts)
            return self._work([handle], memory, outputs, action, opts, finish)

    @by_device
    def gather(
        self, output_lists: Sequence[Any], inputs: Tensors, opts: Any = None, timeout: Any = None, *, root: Any = None
    ) -> dist.Work:
        opts = options_of(dist.GatherOptions, opts, timeout, root=root)
        output_lists, inputs = listed_pair(output_lists, inputs)
        with self._begin("gather") as (action, name):
            tensor = _requests.one_of(listed(inputs), action)
            self._check_root(opts.rootRank, action)
            is_root = opts.rootRank == self._own_rank
            outputs = list(output_lists[0]) if output_lists and is_root else []
            if is_root and len(outputs) != self._own_size:
                raise InvalidArgumentError(f"{action}: the root needs a list of {self._own_size} tensors")
            known_input, *known_outputs = _requests.same_type([tensor, *outputs], tensor, action)
            send = [known_input.numel() if rank == opts.rootRank else 0 for rank in range(self._own_size)]
            receive = [output.numel() for output in known_outputs] or [0] * self._own_size
            handle, memory, finish = self._exchanging(known_outputs, [known_input], send, receive, name, opts)
            return self._work([handle], memory, outputs, action, opts, finish)

    @by_device
    def scatter(
        self, outputs: Tensors, input_lists: Sequence[Any], opts: Any = None, timeout: Any = None, *, root: Any = None
    ) -> dist.Work:
        opts = options_of(dist.ScatterOptions, opts, timeout, root=root)
        if isinstance(outputs, torch.Tensor):
            outputs, input_lists = [outputs], [input_lists]
        with self._begin("scatter") as (action, name):
            output = _requests.one_of(listed(outputs), action)
            self._check_root(opts.rootRank, action)
            is_root = opts.rootRank == self._own_rank
            inputs = list(input_lists[0]) if input_lists and is_root else []
            if is_root and len(inputs) != self._own_size:
                raise InvalidArgumentError(f"{action}: the root needs a list of {self._own_size} tensors")
            known_output, *known_inputs = _requests.same_type([output, *inputs], output, action)
            send = [tensor.numel() for tensor in known_inputs] or [0] * self._own_size
            receive = [known_output.numel() if rank == opts.rootRank else 0 for rank in range(self._own_size)]
            sources = known_inputs or [known_output.new_empty(0)]
            handle, memory, finish = self._exchanging([known_output], sources, send, receive, name, opts)
            return self._work([handle], memory, [output], action, opts, finish)

    def barrier(self, opts: Any = None, timeout: Any = None) -> dist.Work:
        opts = options_of(dist.BarrierOptions, opts, timeout)
        elsewhere = self.other_devices.group_for(opts.device) if opts.device is not None else None
        if elsewhere is not None:
            work = self.other_devices.call(elsewhere, opts.device, "barrier", (opts,), {})
            if work is not STAGED:
                return cast("dist.Work", work)
        with self._begin("barrier") as (action, name):
            request = make_request(Kind.BARRIER, name, torch.empty(0, dtype=torch.uint8), [0])
            return self._run(request, [], [], action, opts)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Rank 0 names the ranks that do not arrive within `timeout`, and all ranks that arrived fail."""
        with self._lock:
            self._barriers += 1
            number = self._barriers
        limit = timeout or self._timeout
        monitored_barrier(self._words, self._own_rank, self._own_size, number, limit, wait_all_ranks)

    # The names that later, and earlier, versions of torch use for the same.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # Messages between two ranks. Waits for them have the group's own time limit.

    @by_device
    def send(self, tensors: Sequence[torch.Tensor], dst_rank: int, tag: int = 0) -> dist.Work:
        action = f"{self._title}: a send to rank {dst_rank}"
        tensor = _requests.one_of(tensors, action)
        source = dense(_requests.movable(tensor, action))
        with raised_as_torch_does:
            handle = self._messages.send(dst_rank, tag, _requests.number_of(source), memory_of(source))
        description = f"{action} (tag {tag}), which must receive it,"
        return self._work(
            [handle], [source], [tensor], description, self._timeout, completions=self._message_completions
        )

    @by_device
    def recv(self, tensors: Sequence[torch.Tensor], src_rank: int, tag: int = 0) -> dist.Work:
        return self._receive(tensors, src_rank, tag, f"{self._title}: a receive from rank {src_rank}")

    @by_device
    def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int = 0) -> dist.Work:
        return self._receive(tensors, None, tag, f"{self._title}: a receive from any rank")

    def _receive(self, tensors: Sequence[torch.Tensor], source: int | None, tag: int, action: str) -> dist.Work:
        result = _requests.one_of(tensors, action)
        tensor = _requests.movable(result, action)
        place = _requests.landing(tensor)
        with raised_as_torch_does:
            handle = self._messages.receive(source, tag, _requests.number_of(tensor), memory_of(place))
        description = f"{action} (tag {tag}), which must send it,"

        # Mostly it arrives where it is wanted.
        finish = None if _requests.writable(tensor) else functools.partial(_requests.copy_back, place, tensor)
        return self._work([handle], [place], [result], description, self._timeout, finish, self._message_completions)

    # Coalescing: here the operations start at once, and end together.

    def _start_coalescing(self, device: torch.device | None = None) -> None:
        elsewhere = self.other_devices.group_for(device) if device is not None else None
        if elsewhere is not None:
            elsewhere._start_coalescing(device)
        self._coalesced = []

    def _end_coalescing(self, device: torch.device | None = None) -> dist.Work:
        elsewhere = self.other_devices.group_for(device) if device is not None else None
        works, self._coalesced = self._coalesced or [], None
        if elsewhere is not None:
            work: dist.Work = elsewhere._end_coalescing(device)
            return work
        return WorkGroup(works)
