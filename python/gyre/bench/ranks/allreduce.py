"""The allreduce benchmark, for any implementation of the exchange."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from gyre.bench.ranks.groups import Ranks
from gyre.bench.ranks.timing import arguments_parser, effort_of, measure_allreduce, write_result


def main(join: Callable[[str], AbstractContextManager[Ranks]]) -> None:
    parser = arguments_parser()
    parser.add_argument("--sizes", required=True, help="in bytes, separated by commas")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    with join(arguments.store) as ranks:
        times = {str(size): measure_allreduce(size, effort_of(arguments), ranks) for size in sizes}
        if ranks.rank == 0:
            write_result(arguments.result, {"tensor": times})
