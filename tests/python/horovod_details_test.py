"""Parts of the Horovod-shaped API that need no ranks beside each other."""

import functools
import warnings

import gyre.torch as hvd
import torch
from gyre.torch import adaptive_sum


def what_was_built() -> None:
    assert not hvd.mpi_threads_supported()
    assert not any(
        built()
        for built in (hvd.mpi_built, hvd.gloo_built, hvd.nccl_built, hvd.cuda_built, hvd.rocm_built, hvd.ccl_built)
    )
    assert not any(built() for built in (hvd.ddl_built, hvd.mpi_enabled, hvd.gloo_enabled))
    assert hvd.is_homogeneous()
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)


def body_ignored_variables() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hvd.init()
    texts = [str(warning.message) for warning in caught if "HOROVOD" in str(warning.message)]
    what_was_built()
    assert len(texts) == 1
    assert "HOROVOD_CYCLE_TIME" in texts[0]
    assert "HOROVOD_FUSION_THRESHOLD" not in texts[0]


def test_one_warning_names_the_variables_without_effect(run_ranks):
    names = {"HOROVOD_CYCLE_TIME": "5", "HOROVOD_FUSION_THRESHOLD": "1000", "HOROVOD_TIMELINE": "DYNAMIC"}
    run_ranks(1, body_ignored_variables, environment=names)


def test_the_adaptive_sum_works_on_any_number():
    vectors = [torch.eye(5)[index] for index in range(5)]
    for count in range(1, 6):
        assert torch.equal(adaptive_sum.combine(vectors[:count]), functools.reduce(torch.add, vectors[:count]).double())
    for count in range(1, 4):
        torch.testing.assert_close(adaptive_sum.combine([vectors[0]] * count), vectors[0].double())
