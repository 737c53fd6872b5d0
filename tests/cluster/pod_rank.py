"""What a rank of namespaces_test.py runs, in the container that its environment describes."""

from __future__ import annotations

import hashlib
import json
import os

from container import Container, become, enter_network

STEPS = 3
# Buckets that are large enough to be reduced in place, and one that is not.
SHAPES = ((400, 300), (400,), (3, 40_001), (10,))
# Above all that the process has open by itself.
FIRST_FREE = 200
# More than a rank opens for its buckets.
BUCKETS = 40


def occupy_descriptors(rank: int) -> None:
    """The buckets of all ranks get equal numbers; or different ones, and what one rank has as a bucket is a data
    file of the program in the other."""
    opened = os.open("data", os.O_RDWR)
    copies = [opened]
    while copies[-1] < FIRST_FREE + 2 * BUCKETS:
        copies.append(os.dup(opened))
    first = FIRST_FREE + (BUCKETS * rank if os.environ["TEST_DESCRIPTORS"] == "different" else 0)
    # Only ours: the engine's threads open connections meanwhile.
    for copy in copies:
        if first <= copy < first + BUCKETS:
            os.close(copy)


def train() -> None:
    """Some steps of DDP and a message; prints a checksum of all gradients, and how many bytes were reduced in place."""
    enter_network(os.environ["TEST_NETWORK"])
    become(Container.parse(os.environ["TEST_CONTAINER"]))
    import gyre.distributed  # noqa: F401, PLC0415  Not before the process is where it belongs.
    import numpy  # noqa: PLC0415
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    dist.init_process_group("gyre")
    occupy_descriptors(dist.get_rank())

    class Weighted(torch.nn.Module):
        """The gradient of each parameter is its factor, exactly: without /proc torch takes other kernels, which round
        differently before anything is exchanged."""

        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.ParameterList([torch.zeros(shape) for shape in SHAPES])

        def forward(self, factors: list[torch.Tensor]) -> torch.Tensor:
            terms = [(weight * factor).sum() for weight, factor in zip(self.weights, factors, strict=True)]
            return torch.stack(terms).sum()

    model = Weighted()
    wrapped = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.3)
    random = numpy.random.default_rng(dist.get_rank())
    digest = hashlib.sha256()
    for _ in range(STEPS):
        wrapped.zero_grad()
        wrapped([torch.from_numpy(random.standard_normal(shape, numpy.float32)) for shape in SHAPES]).backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            digest.update(parameter.grad.numpy().tobytes())
    # Messages between two ranks: a large one is read out of the sender's memory where that is permitted.
    message = torch.arange(300_000, dtype=torch.float64) * (1 + dist.get_rank())
    if dist.get_rank() == 0:
        dist.send(message, 1)
    else:
        received = torch.empty_like(message)
        dist.recv(received, 0)
        assert torch.equal(received, message / 2)
    group = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    in_place = sum(lane["bytes_in_place"] for lane in group.statistics_source().statistics()["lanes"])
    dist.destroy_process_group()
    print(json.dumps({"digest": digest.hexdigest(), "in_place": in_place}), flush=True)
