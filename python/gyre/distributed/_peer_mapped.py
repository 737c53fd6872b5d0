"""Lets the ranks of a host reduce DistributedDataParallel's buckets in place.

A bucket is a tensor that torch has allocated. On its first allreduce its memory is moved into shared memory, as
`Tensor.share_memory_()` does it: the storage stays the same object, so the bucket's views, and gradients that are such
views, follow. From then on the engine passes the file behind it to the other ranks, and an allreduce copies nothing.

Only memory that nothing else can point into is moved: memory of torch's own allocator, all of it one tensor, submitted
by torch's reducer.
"""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass
from typing import Any

import torch

from gyre._tensors.requests import NOT_PEER_MAPPED, PeerMapped
from gyre._torch_private import (
    backward_code,
    can_share_storages,
    move_to_shared_memory,
    storage_identity,
    weak_storage,
)
from gyre.core import _core

# Copying smaller tensors is cheaper than a file: PeerMappings::kLeastBytes.
LEAST_BYTES = 256 * 1024
# A file costs a descriptor here and a mapping in every rank.
_MOST_BUCKETS = 32
# If this many buckets were moved and did not come again, no others are moved. DDP rebuilds its buckets once.
_MOST_MOVED_FOR_NOTHING = 64
_SHARED_MEMORY_FOLDER = "/dev/shm"
# The share that stays free for others: half.
_SHARE_LEFT_FREE = 0.5


@dataclass
class _Bucket:
    storage: Any  # torch's weak reference to it: its address is not reused while this exists.
    serial: int
    descriptor: int
    uses: int = 0


class PeerMappedBuffers:
    """Of one process group, with `local_size` ranks on this host. Thread-safe."""

    def __init__(self, local_size: int) -> None:
        self._local_size = local_size
        self._lock = threading.Lock()
        self._buckets: dict[int, _Bucket] = {}  # By the storage's address.
        self._serial = 0
        self._moved_for_nothing = 0
        self._possible = local_size > 1 and can_share_storages()

    def share(self, tensor: torch.Tensor) -> PeerMapped:
        """The file that goes with an allreduce of `tensor`, if it is a DDP bucket, that is, if the caller's caller
        is torch. The tensor's memory may have moved afterwards."""
        if not self._possible or tensor.numel() * tensor.element_size() < LEAST_BYTES:
            return NOT_PEER_MAPPED
        if not tensor.is_contiguous() or tensor.storage_offset() != 0:
            return NOT_PEER_MAPPED
        storage = tensor.untyped_storage()
        if storage.nbytes() != tensor.numel() * tensor.element_size():
            return NOT_PEER_MAPPED
        with self._lock:
            bucket = self._buckets.get(storage_identity(storage)) or self._move(storage)
            if bucket is None:
                return NOT_PEER_MAPPED
            bucket.uses += 1
            return bucket.serial, bucket.descriptor, [other.serial for other in self._buckets.values()]

    def _move(self, storage: Any) -> _Bucket | None:
        self._forget_the_dead()
        possible = len(self._buckets) < _MOST_BUCKETS and self._moved_for_nothing < _MOST_MOVED_FOR_NOTHING
        # Memory that is not torch's own (NumPy's, a file's) cannot be resized; memory that is already shared has other
        # users.
        if not possible or not storage.resizable() or storage.is_shared() or not self._has_room(storage.nbytes()):
            return None
        descriptor = move_to_shared_memory(storage)
        _keep_from_forks(storage, descriptor)
        self._serial += 1
        bucket = _Bucket(weak_storage(storage), self._serial, descriptor)
        self._buckets[storage_identity(storage)] = bucket
        return bucket

    def _forget_the_dead(self) -> None:
        for address, bucket in list(self._buckets.items()):
            if bucket.storage.expired():
                del self._buckets[address]
                self._moved_for_nothing += bucket.uses == 1

    def _has_room(self, size_bytes: int) -> bool:
        """Whether all ranks of the host can move this much: writing a page that cannot be allocated is a SIGBUS."""
        try:
            room = os.statvfs(_SHARED_MEMORY_FOLDER)
        except OSError:
            return False
        if room.f_flag & os.ST_RDONLY or not os.access(_SHARED_MEMORY_FOLDER, os.W_OK | os.X_OK):
            return False
        free_bytes = room.f_bavail * room.f_frsize
        return self._local_size * size_bytes <= _SHARE_LEFT_FREE * free_bytes


class _Moved:
    """What this process has moved, as long as it lives, whichever process group it was for."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.storages: list[tuple[Any, _core.PrivateInForks]] = []


_moved = _Moved()


def _keep_from_forks(storage: Any, descriptor: int) -> None:
    """What a fork writes to its gradients must not change this process's."""
    note = _core.PrivateInForks((storage.data_ptr(), storage.nbytes()), descriptor)
    with _moved.lock:
        _moved.storages = [(weak, kept) for weak, kept in _moved.storages if not weak.expired()]
        _moved.storages.append((weak_storage(storage), note))


def called_by_reducer(depth: int) -> bool:
    """Whether the Python frame `depth` above the caller was called by C++ within backward(), and not by Python code
    (torch.distributed's functions, a hook): DDP's reducer does that."""
    caller = sys._getframe(depth + 1).f_back
    return caller is None or caller.f_code is backward_code()
