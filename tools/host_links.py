"""What happens to the links of simulated hosts (hosts.py) while they run."""

from __future__ import annotations

from hosts import Hosts, run_tool, shape_of


def _ends(hosts: Hosts, host: int) -> list[tuple[str, str]]:
    """Namespace and device of both ends of each of a host's links."""
    ends = []
    for link in range(hosts.links):
        ends += [(hosts.namespace(host), f"eth{link}"), (hosts.switch, f"port{host}-{link}")]
    return ends


def reshape(hosts: Hosts, host: int, rate: str) -> None:
    """Gives a host's links another rate, in both directions."""
    for namespace, device in _ends(hosts, host):
        run_tool("tc", "-n", namespace, "qdisc", "change", "dev", device, "root", *shape_of(rate))


def set_link(hosts: Hosts, host: int, *, up: bool) -> None:
    """Takes a host's links away, as if somebody had pulled the cables at the switch, or gives them back."""
    for namespace, device in _ends(hosts, host):
        if namespace == hosts.switch:
            run_tool("ip", "-n", namespace, "link", "set", device, "up" if up else "down")
