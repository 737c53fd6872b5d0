"""Finds circles in a graph of files or modules."""

from collections.abc import Mapping


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """For each set of nodes that reach each other, one way round: [a, b, a]. Sorted, so that runs agree."""
    found = []
    left = {node: {other for other in graph[node] if other in graph} for node in graph}
    for start in sorted(graph):
        way = _way_back(left, start)
        if way:
            found.append(way)
            for node in way:  # Once reported, a circle need not be reported from its other nodes.
                left.pop(node, None)
    return found


def _way_back(graph: Mapping[str, set[str]], start: str) -> list[str]:
    """The shortest way from `start` to itself; nothing where there is none. Breadth first."""
    if start not in graph:
        return []
    came_from: dict[str, str] = {}
    frontier = [start]
    while frontier:
        following = []
        for node in frontier:
            for other in sorted(graph.get(node, ())):
                if other == start:
                    return _traced(came_from, start, node)
                if other in graph and other not in came_from:
                    came_from[other] = node
                    following.append(other)
        frontier = following
    return []


def _traced(came_from: Mapping[str, str], start: str, last: str) -> list[str]:
    way = [start, last] if last != start else [start]
    while way[-1] != start:
        way.append(came_from[way[-1]])
    if way == [start]:
        way.append(start)
    return way[::-1]
