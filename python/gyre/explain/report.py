"""The report that rank 0 of an explained job writes (gyre/engine/explain.h), with predictions added, and as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gyre.bench.report import size_text, time_text

Report = dict[str, Any]


def _copies(algorithm: str, ranks: int) -> float | None:
    """Memory traffic per rank, in copies of its buffer (one copy: read once, written once); the table of
    docs/performance.md."""
    if algorithm == "shared arena":
        return 1.0
    if algorithm == "mailbox" or (algorithm == "shared pipeline" and ranks <= 2):
        return (ranks + 3) / 2
    if algorithm == "shared pipeline":
        return (5 + 1 / ranks) / 2
    return None


def predicted_us(bucket: Mapping[str, Any], report: Mapping[str, Any]) -> float | None:
    """How long the bucket's exchange should take at the rates measured at the start, with all ranks there. None for
    an unknown algorithm."""
    ranks, hosts, rates = report["ranks"], report["hosts"], report["rates"]
    size, algorithm = bucket["bytes"], bucket["algorithm"]
    memory_us = ranks / hosts * size / rates["memory_bytes_per_second"] * 1e6
    latency_us: float = rates["latency_us"]
    if algorithm == "alone":
        return 0.0
    copies = _copies(algorithm, ranks)
    if copies is not None:
        return float(latency_us + copies * memory_us)
    if rates["link_bytes_per_second"] <= 0:
        return None
    inside_us = memory_us if ranks > hosts else 0.0
    link_us = size / rates["link_bytes_per_second"] * 1e6
    if algorithm.startswith("halving"):
        power = 1 << (max(hosts, 1).bit_length() - 1)
        return float(latency_us + inside_us + (2 * (power - 1) / power + 2 * (power != hosts)) * link_us)
    if "doubling" in algorithm:
        return float(latency_us + inside_us + math.ceil(math.log2(max(hosts, 2))) * link_us)
    if "ring" in algorithm:
        return float(latency_us + inside_us + 2 * (hosts - 1) / hosts * link_us)
    return None


def complete(report: Report, record: Report | None = None) -> Report:
    """The report with `predicted_us` and `achieved_us` for every bucket, means for every plan, and `step` and `ddp`
    from what gyre/_step_record.py has written."""
    for plan in report["plans"]:
        for bucket in plan["buckets"]:
            bucket["predicted_us"] = predicted_us(bucket, report)
            bucket["achieved_us"] = bucket["end_us"] - bucket["start_us"]
        steps = max(1, plan["steps"])
        mean = {key: plan["total"][key] / steps for key in ("backward_us", "exchange_us", "hidden_us", "exposed_us")}
        exchange = mean["exchange_us"]
        plan["mean"] = {**mean, "hidden_share": mean["hidden_us"] / exchange if exchange > 0 else 1.0}
    report["step"] = _mean_step(record) if record and record["steps"] > 0 else None
    report["ddp"] = [_ddp_group(name, buckets, report) for name, buckets in (record or {}).get("groups", {}).items()]
    report["delegated"] = (record or {}).get("delegated", [])
    return report


_PARTS = ("data", "forward", "backward", "optimizer", "evaluation")


def _mean_step(steps: Report) -> Report:
    count = steps["steps"]
    mean = {f"{part}_us": steps[f"{part}_us"] / count for part in (*_PARTS, "wall", "waited")}
    mean["rest_us"] = max(0.0, mean["wall_us"] - sum(mean[f"{part}_us"] for part in _PARTS))
    return {"steps": count, **mean}


def _ddp_group(name: str, buckets: Sequence[Mapping[str, Any]], report: Report) -> Report:
    """DistributedDataParallel's buckets in one process group: means over the steps."""
    described = []
    for bucket in buckets:
        if bucket["count"] == 0:
            continue
        algorithm = "shared arena" if bucket["in_place"] else "shared pipeline"
        one_host = report["hosts"] == 1 and not bucket["on_device"]
        predicted = predicted_us({"bytes": bucket["bytes"], "algorithm": algorithm}, report) if one_host else None
        means = {key: bucket[key] / bucket["count"] for key in ("issued_us", "exchange_us")}
        described.append(
            {**{key: bucket[key] for key in ("bytes", "in_place", "on_device", "count")}, **means}
            | {"predicted_us": predicted}
        )
    return {"group": name, "buckets": described}


def _rate_text(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e9:.1f} GB/s" if bytes_per_second >= 1e9 else f"{bytes_per_second / 1e6:.1f} MB/s"


def lined_up(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _machine(report: Report) -> str:
    rates = report["rates"]
    ranks, hosts = report["ranks"], report["hosts"]
    text = (
        f"{ranks} rank{'s' * (ranks != 1)} on {hosts} host{'s' * (hosts != 1)}; measured in "
        f"{time_text(rates['took_us'])}: an allreduce of 4 bytes takes {time_text(rates['latency_us'])}, the ranks of "
        f"a host copy {_rate_text(rates['memory_bytes_per_second'])} together"
    )
    if rates["link_bytes_per_second"] > 0:
        text += f", a host sends {_rate_text(rates['link_bytes_per_second'])}"
    return text + "."


# Explanations of the engine's terms, as in docs/guide/explain.md.
_ALGORITHMS = {
    "alone": "there is no other rank to exchange with",
    "mailbox": "small: each rank copies its values to where all can read them, and adds up all contributions itself",
    "shared pipeline": "copied through shared memory in pieces, while each rank reduces its share",
    "shared arena": "reduced in place, in memory that the ranks of the host share; each rank reduces its share",
    "recursive doubling": "over the network, few rounds: in each, a rank exchanges the whole buffer with one other",
    "ring": "over the network, fewest bytes: pieces go around all ranks",
    "recursive doubling of hosts": "reduced on each host, then few rounds between hosts, each with the whole buffer",
    "halving and doubling": "over the network, few rounds: halves, quarters and so on are summed and then handed back",
    "halving and doubling of hosts": "reduced on each host, then halves, quarters and so on are summed between hosts",
    "rings of hosts": "reduced on each host, then pieces go around the hosts",
}


def _buckets(plan: Mapping[str, Any]) -> list[str]:
    lines = [("bucket", "tensors", "size", "algorithm", "pieces", "predicted", "achieved", "ready at", "started at")]
    for index, bucket in enumerate(plan["buckets"]):
        cells = (
            str(index), str(bucket["tensors"]), size_text(bucket["bytes"]), bucket["algorithm"],
            size_text(bucket["piece_bytes"]), time_text(bucket["predicted_us"]), time_text(bucket["achieved_us"]),
            time_text(bucket["ready_us"]), time_text(bucket["start_us"]),
        )  # fmt: skip
        lines.append(cells)
    reasons: dict[str, str] = {}
    for bucket in plan["buckets"]:
        reasons.setdefault(bucket["algorithm"], bucket["reason"])
    lines_of_reasons = [
        f"{algorithm}: {_ALGORITHMS.get(algorithm, 'no description')} ({reason})"
        for algorithm, reason in reasons.items()
    ]
    return [*lined_up(lines), "(of the last step; achieved includes waiting for slower ranks)", *lines_of_reasons]


def _step(plan: Mapping[str, Any]) -> list[str]:
    mean = plan["mean"]
    lines = [
        f"A step, on average: {time_text(mean['backward_us'])} of backward from its first gradient on, "
        f"{time_text(mean['exchange_us'])} of exchange, of which backward hid {time_text(mean['hidden_us'])} "
        f"({mean['hidden_share']:.0%}); the training waited {time_text(mean['exposed_us'])}."
    ]
    total = plan["total"]
    if total["overtaken_buckets"]:
        lines.append(
            f"{total['overtaken_buckets']} buckets were complete before one that is sent earlier: backward produced "
            "gradients in a different order than the plan's."
        )
    if total["missing_tensors"]:
        lines.append(f"{total['missing_tensors']} tensors had no gradient when their step ended, and counted as zeros.")
    return lines


def _ddp_words(group: Mapping[str, Any]) -> list[str]:
    lines = [["bucket", "size", "exchanged", "predicted", "achieved", "issued at"]]
    for index, bucket in enumerate(group["buckets"]):
        way = "in place" if bucket["in_place"] else "on the device" if bucket["on_device"] else "copied"
        times = (time_text(bucket[key]) for key in ("predicted_us", "exchange_us", "issued_us"))
        lines.append([str(index), size_text(bucket["bytes"]), way, *times])
    legend = []
    if not all(bucket["in_place"] or bucket["on_device"] for bucket in group["buckets"]):
        legend = [
            "copied: through Gyre's own shared memory and back, as are buckets under 256 KB, or all if /dev/shm is "
            "small"
        ]
    return ["", f"DistributedDataParallel in {group['group']}:", *lined_up(lines), *legend]


def _whole_step(step: Mapping[str, Any]) -> list[str]:
    parts = [
        ("loading data", step["data_us"]),
        ("forward", step["forward_us"]),
        ("backward", step["backward_us"]),
        ("optimizer", step["optimizer_us"]),
        ("evaluation", step["evaluation_us"]),
        ("the rest", step["rest_us"]),
    ]
    shown = [f"{name} {time_text(time)} ({time / step['wall_us']:.0%})" for name, time in parts if time > 0]
    text = f"A whole step took {time_text(step['wall_us'])} (mean of {step['steps']}, without the first): "
    waited = f" In backward it waited {time_text(step['waited_us'])} for DistributedDataParallel's last bucket."
    return ["", text + ", ".join(shown) + "." + (waited if step["waited_us"] > 0 else "")]


def _delegated_words(delegated: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [["called from", "operation", "calls", "sent", "device busy"]]
    for one in delegated:
        lines.append(
            [one["row"], one["operation"], str(one["count"]), size_text(one["bytes"]), time_text(one["busy_us"])]
        )
    return ["", "Carried out by the devices' own libraries:", *lined_up(lines)] if delegated else []


def words(report: Report) -> str:
    """As readable text; `report` is complete()d."""
    lines = [_machine(report)]
    for plan in report["plans"]:
        lines += ["", f"{plan['name']}: {plan['steps']} steps, {size_text(plan['arena_bytes'])} of gradients"]
        if plan["steps"] > 0:
            lines += [*_buckets(plan), *_step(plan)]
    for group in report["ddp"]:
        lines += _ddp_words(group)
    if report["step"]:
        lines += _whole_step(report["step"])
    lines += _delegated_words(report["delegated"])
    if not report["plans"] and not report["ddp"] and not report["delegated"]:
        lines += ["", "No optimizer exchanged gradients. Other operations:"]
    busy = [lane for lane in report["lanes"] if lane["collectives"] > 0]
    if busy:
        lines.append("")
        lines += lined_up(
            [
                ("lane", "collectives", "waited", "copied for", "reduced for", "sent for", "bytes sent", "in place"),
                *(
                    (
                        lane["lane"], str(lane["collectives"]), time_text(lane["waiting_us"]),
                        time_text(lane["copying_us"]), time_text(lane["reducing_us"]), time_text(lane["sending_us"]),
                        size_text(lane["bytes_sent"]), size_text(lane["bytes_in_place"]),
                    )
                    for lane in busy
                ),
            ]
        )  # fmt: skip
    return "\n".join(lines)
