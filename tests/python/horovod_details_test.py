"""Parts of the Horovod-shaped API that need no ranks beside each other."""

import functools
import inspect
import json
import time
import warnings
from pathlib import Path

import gyre.torch as hvd
import pytest
import torch
from gyre.torch import adaptive_sum

ALL = "process_set=global_process_set"
SCALES = "prescale_factor=1.0, postscale_factor=1.0"
REDUCING = f"average=None, name=None, op=None, {SCALES}, {ALL}"
COMPRESSED = f"average=None, name=None, compression=Compression.none, op=None, {SCALES}, {ALL}"
SCATTERED = f"name=None, compression=Compression.none, op=None, {ALL}, {SCALES}"
SCATTERED_LATER = f"name=None, op=None, {ALL}, {SCALES}"

# The public functions of horovod.torch 0.28 with the arguments that a script may give by place or by name. `op=None`
# is Average.
FUNCTIONS = {
    "allreduce": f"tensor, {COMPRESSED}",
    "allreduce_": f"tensor, {REDUCING}",
    "allreduce_async": f"tensor, {REDUCING}",
    "allreduce_async_": f"tensor, {REDUCING}",
    "grouped_allreduce": f"tensors, {COMPRESSED}",
    "grouped_allreduce_": f"tensors, {REDUCING}",
    "grouped_allreduce_async": f"tensors, {REDUCING}",
    "grouped_allreduce_async_": f"tensors, {REDUCING}",
    "sparse_allreduce_async": f"tensor, name=None, op=None, {ALL}",
    "allgather": f"tensor, name=None, {ALL}",
    "allgather_async": f"tensor, name=None, {ALL}",
    "grouped_allgather": f"tensors, name=None, {ALL}",
    "grouped_allgather_async": f"tensors, name=None, {ALL}",
    "broadcast": f"tensor, root_rank, name=None, {ALL}",
    "broadcast_": f"tensor, root_rank, name=None, {ALL}",
    "broadcast_async": f"tensor, root_rank, name=None, {ALL}",
    "broadcast_async_": f"tensor, root_rank, name=None, {ALL}",
    "alltoall": f"tensor, splits=None, name=None, {ALL}",
    "alltoall_async": f"tensor, splits=None, name=None, {ALL}",
    "reducescatter": f"tensor, {SCATTERED}",
    "reducescatter_async": f"tensor, {SCATTERED_LATER}",
    "grouped_reducescatter": f"tensors, {SCATTERED}",
    "grouped_reducescatter_async": f"tensors, {SCATTERED_LATER}",
    "poll": "handle",
    "synchronize": "handle",
    "join": "device=-1",
    "barrier": ALL,
    "broadcast_parameters": "params, root_rank",
    "broadcast_optimizer_state": "optimizer, root_rank, model=None",
    "broadcast_object": f"obj=None, root_rank=0, name=None, {ALL}",
    "allgather_object": "obj, name=None",
    "init": "comm=None, process_sets=None",
    "shutdown": "",
    "is_initialized": "",
    "start_timeline": "file_path, mark_cycles=False",
    "stop_timeline": "",
    "add_process_set": "process_set",
    "remove_process_set": "process_set",
    "ProcessSet": "ranks_or_comm",
    "SyncBatchNorm": "num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True",
    "DistributedOptimizer": "optimizer, named_parameters=None, compression=Compression.none, "
    "backward_passes_per_step=1, op=Average, gradient_predivide_factor=1.0, num_groups=0, groups=None, "
    f"sparse_as_dense=False, {ALL}",
    **dict.fromkeys(("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size", "is_homogeneous"), ""),
    **dict.fromkeys(
        ("mpi_built", "gloo_built", "nccl_built", "ddl_built", "ccl_built", "cuda_built", "rocm_built"), ""
    ),
    **dict.fromkeys(("mpi_enabled", "gloo_enabled", "mpi_threads_supported"), ""),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_of_horovod_takes_its_arguments(name):
    """What Gyre adds comes after them, and need not be given."""

    theirs = list(inspect.signature(eval(f"lambda {FUNCTIONS[name]}: None", vars(hvd))).parameters.values())
    ours = list(inspect.signature(getattr(hvd, name)).parameters.values())
    assert name in hvd.__all__
    for own, asked in zip(ours, theirs, strict=False):
        assert (own.name, own.default) == (asked.name, asked.default)
    assert len(ours) >= len(theirs)
    assert all(added.default is not added.empty for added in ours[len(theirs) :])


def test_the_other_names_of_horovod_are_there():
    assert len({hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product}) == 6
    assert hvd.global_process_set.process_set_id == 0
    for compressor in (hvd.Compression.none, hvd.Compression.fp16):
        assert issubclass(compressor, hvd.Compressor)
    for method in ("synchronize", "skip_synchronize", "set_backward_passes_per_step", "step", "zero_grad"):
        assert callable(getattr(hvd.optimizer.DistributedMixin, method))
    for method in ("included", "rank", "size"):
        assert callable(getattr(hvd.ProcessSet, method))


def what_was_built() -> None:
    with pytest.raises(ValueError, match="MPI"):
        hvd.mpi_threads_supported()
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


def body_settings() -> None:
    """One rank waits in vain, and its wait ends as the variables say."""
    hvd.init()
    rank = hvd.rank()
    hvd.grouped_allreduce([torch.ones(3), torch.ones(4)], name="pair")
    if rank == 0:
        with pytest.raises(TimeoutError, match=r"'allreduce\.alone' has waited 2"):
            hvd.allreduce(torch.ones(3), name="alone")
        Path("failed").touch()
    until = time.monotonic() + 60
    while not Path("failed").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    hvd.shutdown()
    if rank == 0:
        text = Path("trace.json").read_text()
        json.loads(text)
        assert "NEGOTIATE_ALLREDUCE" in text
        assert "CYCLE_START" in text


@pytest.mark.parametrize("level", ["WARNING", "FATAL"])
def test_horovods_variables_mean_what_they_mean_to_horovod(run_ranks, level):
    settings = {
        "HOROVOD_TIMELINE": "trace.json",
        "HOROVOD_TIMELINE_MARK_CYCLES": "1",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "1",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "2",
        "HOROVOD_LOG_LEVEL": level,
    }
    first, *_ = run_ranks(3, body_settings, environment=settings)
    assert ("stall: allreduce 'allreduce.alone' has waited 1" in first.output) == (level == "WARNING")


def test_one_warning_names_the_variables_without_effect(run_ranks):
    names = {"HOROVOD_CYCLE_TIME": "5", "HOROVOD_FUSION_THRESHOLD": "1000", "HOROVOD_TIMELINE": "DYNAMIC"}
    run_ranks(1, body_ignored_variables, environment=names)


def test_the_adaptive_sum_works_on_any_number():
    vectors = [torch.eye(5)[index] for index in range(5)]
    for count in range(1, 6):
        assert torch.equal(adaptive_sum.combine(vectors[:count]), functools.reduce(torch.add, vectors[:count]).double())
    for count in range(1, 4):
        torch.testing.assert_close(adaptive_sum.combine([vectors[0]] * count), vectors[0].double())
