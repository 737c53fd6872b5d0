"""What docs/guide/horovod_behaviour.md says of operations, process sets and the modules around them, name by name. Each
job runs many checks, because starting one costs most."""

import importlib
import os
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path

import gyre.horovod
import gyre.torch as hvd
import pytest
import torch
from checks import each, run_each
from expectations import fails_with
from gyre.errors import ShutDownError, UnsupportedError
from torch import nn


def before_init() -> None:
    """A script may catch Horovod's ValueError, or its HorovodInternalError."""
    own = torch.ones(2)
    members = hvd.ProcessSet([0])
    for call in (
        hvd.rank,
        hvd.size,
        hvd.local_rank,
        hvd.local_size,
        hvd.cross_rank,
        hvd.cross_size,
        hvd.is_homogeneous,
        hvd.stop_timeline,
        hvd.barrier,
        hvd.join,
        members.included,
        hvd.global_process_set.included,
        hvd.global_process_set.rank,
        hvd.global_process_set.size,
        lambda: hvd.start_timeline("trace.json"),
        lambda: hvd.allreduce(own),
        lambda: hvd.allgather_async(own),
        lambda: hvd.broadcast_(own, 0),
        lambda: hvd.add_process_set([0]),
    ):
        assert "init()" in fails_with(ValueError, call)
        fails_with(hvd.HorovodInternalError, call)
        fails_with(ShutDownError, call)
    assert not hvd.is_initialized()
    assert hvd.shutdown() is None
    assert hvd.global_process_set.ranks == []
    assert hvd.global_process_set.process_set_id == 0
    assert (members.ranks, members.size(), members.rank(), members.process_set_id) == ([0], None, None, None)
    assert hvd.remove_process_set(members) is False
    assert hvd.remove_process_set(hvd.global_process_set) is False
    assert str(members) == "ProcessSet(process_set_id=None, ranks=[0], mpi_comm=None)"
    fails_with(ValueError, hvd.mpi_threads_supported)


def sets_as_horovod_describes_them() -> None:
    rank, size = hvd.rank(), hvd.size()
    first = hvd.ProcessSet([0])
    assert first.included() is (rank == 0)  # Also before it is registered.
    hvd.add_process_set(first)
    assert str(first) == "ProcessSet(process_set_id=1, ranks=[0], mpi_comm=None)"
    assert first.size() == 1
    if rank == 0:
        assert first.rank() == 0
    else:
        assert "not in it" in fails_with(ValueError, first.rank)
        fails_with(ValueError, lambda: hvd.allreduce(torch.ones(1), process_set=first))
    assert hvd.remove_process_set(first) is True
    assert (first.size(), first.rank(), first.process_set_id) == (None, None, None)
    assert first.included() is (rank == 0)
    assert hvd.global_process_set.ranks == list(range(size))


def results_and_errors() -> None:
    """Their types, where scripts look at them."""
    size = hvd.size()
    own = torch.ones(size)
    for name in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"):
        assert type(getattr(hvd, name)()) is int
    assert type(hvd.is_homogeneous()) is bool
    handle = hvd.allreduce_async(own)
    result = hvd.synchronize(handle)
    assert hvd.poll(handle) is True
    assert hvd.synchronize(handle) is result
    assert "NoneType" in fails_with(TypeError, lambda: hvd.synchronize(None))
    assert "int" in fails_with(TypeError, lambda: hvd.poll(3))
    for empty in (hvd.grouped_allreduce, hvd.grouped_allgather, hvd.grouped_reducescatter):
        assert empty([]) == []
    assert hvd.barrier() is None
    assert type(hvd.join()) is int
    result, received = hvd.alltoall(own, [1] * size)
    assert received.dtype == torch.int32
    result, received = hvd.synchronize(hvd.alltoall_async(own))
    assert received.tolist() == [1] * size
    assert hvd.alltoall(own, torch.ones(size, dtype=torch.int64))[1].dtype == torch.int64
    fails_with(ValueError, lambda: hvd.allreduce(own, average=True, op=hvd.Sum))
    fails_with(ValueError, lambda: hvd.allreduce(torch.ones(2, device="meta")))
    fails_with(ValueError, lambda: hvd.broadcast(own.to_sparse(), 0))
    fails_with(NotImplementedError, lambda: hvd.sparse_allreduce_async(own.to_sparse(), "s", hvd.Max))


def batch_norm_that_keeps_no_statistics() -> None:
    """It uses the batch's, over all ranks, in evaluation too."""
    rank, size = hvd.rank(), hvd.size()
    parts = [torch.randn(3, 2, generator=torch.Generator().manual_seed(r)) + r for r in range(size)]
    reference = nn.BatchNorm1d(2, track_running_stats=False).eval()
    synced = hvd.SyncBatchNorm(2, track_running_stats=False).eval()
    expected = reference(torch.cat(parts))[3 * rank : 3 * rank + 3]
    torch.testing.assert_close(synced(parts[rank]), expected, rtol=1e-4, atol=1e-5)


CHECKS: list[Callable[[], None]] = [
    sets_as_horovod_describes_them,
    results_and_errors,
    batch_norm_that_keeps_no_statistics,
]


def body_everything() -> None:
    before_init()
    hvd.init()
    run_each(CHECKS)
    hvd.shutdown()
    before_init()


@each(CHECKS)
def test_names_of_horovod_behave_as_the_guide_says(run_checks, check):
    run_checks(2, body_everything, check)


IMPORTS = """
import horovod
import horovod.runner
import horovod.torch
from horovod.common import util
from horovod.common.exceptions import HorovodInternalError, HorovodVersionMismatchError, HostsUpdatedInterrupt
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod.common.util import check_extension, extension_available, gloo_built, mpi_built, nccl_built
from horovod.runner.launch import run_commandline
"""


def body_modules() -> None:
    assert gyre.horovod.install()
    names = types.SimpleNamespace()
    exec(IMPORTS, vars(names))
    assert names.horovod.run is names.horovod.runner.run
    assert callable(names.run_commandline)
    for name in ("ProcessSet", "add_process_set", "global_process_set", "remove_process_set", "HorovodInternalError"):
        assert getattr(names, name) is getattr(hvd, name)
    assert names.HostsUpdatedInterrupt(True).skip_sync
    assert "2.0" in str(names.HorovodVersionMismatchError("torch", "2.0", "1.0"))
    assert (names.mpi_built(), names.gloo_built(verbose=True), names.nccl_built()) == (False, False, 0)
    assert names.extension_available("torch")
    assert not names.extension_available("tensorflow", verbose=True)
    assert names.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2") is None
    with pytest.raises(ImportError, match=r"horovod\.tensorflow needs the package tensorflow"):
        names.check_extension("horovod.tensorflow", "HOROVOD_WITH_TENSORFLOW", __file__, "mpi_lib")
    with pytest.raises(ImportError, match=r"horovod\.mxnet does not exist"):
        names.check_extension("horovod.mxnet", "HOROVOD_WITH_MXNET", __file__, "mpi_lib")
    for absent, words in (("horovod.spark", "gyre run"), ("horovod.tensorflow.elastic", "checkpoint")):
        with pytest.raises(ImportError, match=words):
            gyre.horovod._Aliases().find_spec(absent, None)
    assert importlib.import_module("horovod.torch").__spec__.name == "gyre.torch"
    helpers_of_horovod(names.util)
    wrong_arguments_of_run(names.horovod.run)


def helpers_of_horovod(util: object) -> None:
    assert util.gpu_available("torch") == torch.cuda.is_available()
    assert [number for number in range(10) if util.num_rank_is_power_2(number)] == [1, 2, 4, 8]
    assert util.split_list([1, 2, 3, 4, 5], 3) == [[1, 2], [3, 4], [5]]
    assert (util.is_iterable("ab"), util.is_iterable(3)) == (True, False)
    os.environ.pop("GYRE_TEST_A", None)
    os.environ["GYRE_TEST_B"] = "before"
    with util.env(GYRE_TEST_A="1", GYRE_TEST_B="2", GYRE_TEST_C=None):
        assert (os.environ["GYRE_TEST_A"], os.environ["GYRE_TEST_B"]) == ("1", "2")
        assert "GYRE_TEST_C" not in os.environ
    assert "GYRE_TEST_A" not in os.environ
    assert os.environ["GYRE_TEST_B"] == "before"
    resolve = util.get_average_backwards_compatibility_fun(hvd)
    assert (resolve(None, None), resolve(hvd.Min, None)) == (hvd.Average, hvd.Min)
    with pytest.warns(DeprecationWarning, match="op=Average"):
        assert resolve(None, False) == hvd.Sum
    fails_with(ValueError, lambda: resolve(hvd.Sum, True))
    newer = util.is_version_greater_equal_than
    assert newer(torch.__version__, "2.0.0")
    answers = [newer(*pair.split()) for pair in ("2.1.0+cpu 2.1.0", "2.10.0 2.9.1", "2.1.0rc1 2.1.0", "1.13 1.14.0")]
    assert answers == [True, True, False, False]
    fails_with(ValueError, lambda: newer("2.1.0", "2.1"))
    path = util.get_extension_full_path("/there/file.py", "torch", "library")
    assert path == f"/there/torch/library{util.get_ext_suffix()}"


def wrong_arguments_of_run(run: Callable[..., object]) -> None:
    """Before a process is started."""
    Path("hosts").write_text("localhost slots=1  # this one\n\nother.example slots=2\n")
    for options, error, words in (
        ({"hosts": "localhost:1,other:1"}, UnsupportedError, "other"),
        ({"hostfile": "hosts"}, UnsupportedError, "other.example"),
        ({"hosts": "localhost:1", "num_proc": 2}, ValueError, "1 slots"),
        ({"hosts": "local host"}, ValueError, "local host"),
        ({"hosts": "localhost:1", "hostfile": "hosts"}, ValueError, "not both"),
        ({"use_gloo": True, "use_mpi": True}, ValueError, "not both"),
        ({"min_num_proc": 1, "max_num_proc": 2}, NotImplementedError, "min_num_proc, max_num_proc"),
        ({"executable": "/usr/bin/other"}, UnsupportedError, sys.executable),
    ):
        assert words in fails_with(error, lambda options=options: run(print, **options))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fails_with(NotImplementedError, lambda: run(print, min_np=1))
    assert any("min_np" in str(one.message) for one in caught)


def test_horovods_other_modules_answer(run_ranks):
    """Those that scripts import besides horovod.torch."""
    run_ranks(1, body_modules, launcher=False)
