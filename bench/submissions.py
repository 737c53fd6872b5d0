"""What submitting one of many separate operations costs, in microseconds: of wall-clock time and of the processor time
of the thread that submits.

    gyre run -n 2 -- python bench/submissions.py

Every operation is an allreduce of 16 floats, all of them are in flight before anybody waits for one, and the ranks do
not wait for each other meanwhile, as in an optimizer of one's own over many tensors. What each costs must not grow
with their number. Median of the rounds, of the rank that is slower; "in all" is from the first submission to the
end of the last operation, per operation.
"""

from __future__ import annotations

import argparse
import statistics
import time

import gyre.torch as hvd
import torch


def measured(tensors: list[torch.Tensor]) -> tuple[float, float, float]:
    hvd.barrier()
    began, began_thread = time.perf_counter_ns(), time.thread_time_ns()
    handles = [hvd.allreduce_async(tensor) for tensor in tensors]
    submitted, submitted_thread = time.perf_counter_ns(), time.thread_time_ns()
    results = [hvd.synchronize(handle) for handle in handles]
    done = time.perf_counter_ns()
    assert results[-1].equal(tensors[-1]), "the average of equal tensors"
    costs = (submitted - began, submitted_thread - began_thread, done - began)
    wall, thread, until_done = (cost / len(tensors) / 1000 for cost in costs)
    return wall, thread, until_done


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--counts", default="300,3000,10000", help="operations in flight (default: 300,3000,10000)")
    options.add_argument("--rounds", type=int, default=5)
    asked = options.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    for count in [int(number) for number in asked.counts.split(",")]:
        tensors = [torch.full((16,), float(number)) for number in range(count)]
        rounds = [measured(tensors) for _ in range(asked.rounds + 1)][1:]
        own = [statistics.median(values) for values in zip(*rounds, strict=True)]
        wall, thread, until_done = (max(values) for values in zip(*hvd.allgather_object(own), strict=True))
        if hvd.rank() == 0:
            submitting = f"{wall:.2f} us to submit ({thread:.2f} of the thread)"
            print(f"{count:6} operations: {submitting}, {until_done:.2f} until done")


if __name__ == "__main__":
    main()
