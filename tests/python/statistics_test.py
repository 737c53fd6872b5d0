"""gyre.torch.statistics(): what `gyre explain` shows must be there, and add up."""

import gyre.torch as hvd
import torch
from torch import nn


def body_statistics() -> None:
    torch.set_num_threads(1)
    hvd.init()
    network = nn.Sequential(nn.Linear(64, 600), nn.Linear(600, 2000), nn.Linear(2000, 3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(network.parameters(), lr=0.1), network.named_parameters())
    for _ in range(3):
        optimizer.zero_grad()
        network(torch.ones(2, 64)).sum().backward()
        optimizer.step()
    hvd.allreduce(torch.ones(3))
    hvd.allgather(torch.ones(3))
    statistics = hvd.statistics()
    (plan,) = statistics["plans"]
    assert plan["steps"] == 3
    assert plan["arena_bytes"] >= 4 * sum(parameter.numel() for parameter in network.parameters())
    assert sum(bucket["size_bytes"] for bucket in plan["buckets"]) == plan["arena_bytes"]
    assert sum(bucket["tensor_count"] for bucket in plan["buckets"]) == 6
    assert {bucket["algorithm"] for bucket in plan["buckets"]} <= {"shared arena", "mailbox"}
    for step in (plan["last"], plan["total"]):
        assert 0 <= step["hidden_s"] <= step["exchange_s"]
        assert step["exposed_s"] > 0
        assert step["missing_tensors"] == 0
    assert plan["total"]["backward_s"] > plan["last"]["backward_s"]
    lanes = {lane["lane"]: lane for lane in statistics["lanes"]}
    assert lanes[f"plan '{plan['name']}'"]["collectives"] == 3 * len(plan["buckets"])
    assert lanes["open"]["collectives"] + lanes["board"]["collectives"] >= 2
    assert sum(lane["bytes_sent"] for lane in statistics["lanes"]) == 0, "one host: no bytes over links"


def test_the_counters_add_up(run_ranks):
    run_ranks(2, body_statistics)
