"""Random trainings with gyre.keras on torch end where an independent model in NumPy does: optimizers, passes, groups,
local variables, process sets and unequal numbers of batches, in combination. Seeds 0 to 59 were run once on two ranks
and on three; these are some of them."""

import keras_on_torch  # noqa: F401  Before Keras.

import gyre.keras as hvd  # isort: skip
import pytest
from keras_programs import check_program, random_program

SEEDS = range(8)
# What has failed before: the state after an epoch depended on which rank came first to its end, and passes of Keras's
# accumulation were not counted.
FOUND = {2: [142, 145], 3: []}


def random_trainings() -> None:
    hvd.init()
    for seed in [*SEEDS, *FOUND[hvd.size()]]:
        check_program(random_program(seed, hvd.size()))


@pytest.mark.parametrize("size", [2, 3])
def test_random_trainings_end_where_the_model_does(run_ranks, size: int) -> None:
    run_ranks(size, random_trainings)
