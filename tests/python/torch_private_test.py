"""What Gyre uses of torch beyond its public interfaces: one probe for each name, so that a torch that has changed is
found here and not by a user, and the rule that all of it stands in one file."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import gyre.torch as hvd
import pytest
import torch
import torch.distributed as dist
from gyre.bench.ranks.groups import leave
from gyre.errors import UnsupportedError
from torch import nn
from torch.distributed.rendezvous import register_rendezvous_handler

from gyre import _torch_private

PACKAGE = Path(_torch_private.__file__).parent
# Where torch's private names may stand.
FILES = {PACKAGE / "_torch_private.py"}
# Python's own, Enum's and Keras's.
NOT_TORCHS = {"_getframe", "_current_frames", "_DummyThread", "_name_", "_exit", "_iterations"}


def private_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, name) of every private attribute and import in a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            yield node.lineno, node.attr
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.startswith("_"))


def own_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gyre"):
            yield from (alias.name for alias in node.names)


def strangers(sources: dict[Path, str]) -> list[str]:
    trees = {path: ast.parse(source) for path, source in sources.items()}
    own = NOT_TORCHS | {name for tree in trees.values() for name in own_names(tree)}
    return [
        f"{path}:{line}: {name}"
        for path, tree in trees.items()
        for line, name in private_names(tree)
        if name not in own and path not in FILES
    ]


def test_torchs_private_names_stand_in_one_file() -> None:
    sources = {path: path.read_text() for path in PACKAGE.rglob("*.py")}
    assert strangers(sources) == []
    sources[Path("planted.py")] = "import torch\ntorch._C._get_tracing_state()\nfrom torch.x import _y\n"
    assert len(strangers(sources)) == 3


def test_the_end_of_backward_and_which_one_runs() -> None:
    seen: list[str] = []
    weight = torch.ones(2, requires_grad=True)

    def hook(gradient: torch.Tensor) -> None:
        del gradient
        frame, codes = sys._getframe(), []
        while frame is not None:
            codes.append(frame.f_code)
            frame = frame.f_back  # type: ignore[assignment]
        seen.append(f"{codes.count(_torch_private.backward_code())} backward()")
        _torch_private.at_end_of_backward(lambda: seen.append(f"end, {weight.grad is not None}"))

    weight.register_hook(hook)
    weight.sum().backward()
    assert seen == ["1 backward()", "end, True"]


def test_backward_passes_have_numbers() -> None:
    seen: list[int] = []
    weight = torch.ones(2, requires_grad=True)

    def note() -> None:
        seen.append(_torch_private.current_backward())

    def hook(gradient: torch.Tensor) -> None:
        del gradient
        note()
        _torch_private.at_end_of_backward(note)

    weight.register_hook(hook)
    for _ in range(2):
        weight.sum().backward()
    first, at_its_end, second, _ = seen
    assert first == at_its_end >= 0
    assert second not in (first, -1)
    assert _torch_private.current_backward() < 0


def test_the_count_of_changes() -> None:
    tensor = torch.zeros(2)
    before = _torch_private.version_of(tensor)
    tensor += 1
    assert _torch_private.version_of(tensor) == before + 1


def test_the_base_of_batch_norms() -> None:
    assert issubclass(nn.BatchNorm1d, _torch_private.BatchNorm)
    assert issubclass(hvd.SyncBatchNorm, _torch_private.BatchNorm)


def test_schedulers_do_not_warn_of_an_optimizer_that_another_class_steps(recwarn: pytest.WarningsRecorder) -> None:
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    _torch_private.steps_under_another_class(optimizer)
    scheduler.step()
    assert not list(recwarn)
    scheduler = torch.optim.lr_scheduler.StepLR(torch.optim.SGD([torch.ones(1)], lr=0.1), 1)
    scheduler.step()
    assert "before `optimizer.step()`" in str(recwarn.pop().message)


def test_storages_move_into_shared_memory_under_their_tensors() -> None:
    assert _torch_private.can_share_storages()
    tensor = torch.arange(4.0)
    view, storage = tensor[1:], tensor.untyped_storage()
    identity, weak = _torch_private.storage_identity(storage), _torch_private.weak_storage(storage)
    assert _torch_private.move_to_shared_memory(storage) >= 0
    assert tensor.is_shared()
    assert view.tolist() == [1, 2, 3]
    assert _torch_private.storage_identity(tensor.untyped_storage()) == identity
    assert not weak.expired()
    del tensor, view, storage
    assert weak.expired()


def test_references_to_tensors_and_storages_are_counted(recwarn: pytest.WarningsRecorder) -> None:
    count_tensor, count_storage = _torch_private.reference_counts()
    assert not list(recwarn), "it has seen that the counts are right"
    tensor = torch.zeros(2)
    storage = tensor.untyped_storage()
    identity = _torch_private.storage_identity(storage)
    alone = count_tensor(tensor), count_storage(identity)
    view, capsule = tensor.detach(), tensor.__dlpack__()
    assert (count_tensor(tensor), count_storage(identity)) == (alone[0] + 1, alone[1] + 1)
    del view, capsule
    assert (count_tensor(tensor), count_storage(identity)) == alone


def test_a_scaler_asks_before_it_looks_for_infinities() -> None:
    asked: list[str] = []

    class Asked(torch.optim.SGD):
        @property
        def _step_supports_amp_scaling(self) -> bool:
            asked.append(f"asked with gradient {self.param_groups[0]['params'][0].grad.item():g}")
            self.param_groups[0]["params"][0].grad.fill_(float("inf"))
            return False

        def step(self, _: Any = None) -> None:
            asked.append("stepped")

    weight = torch.ones(1, requires_grad=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(weight.sum()).backward()
    scaler.step(Asked([weight], lr=0.1))
    assert asked == ["asked with gradient 2"]  # And did not step: it has looked after it asked.


def scaler_that_does_not_ask() -> type[torch.amp.GradScaler]:
    """torch's as another version might be."""
    file = torch.amp.GradScaler.step.__code__.co_filename
    source = Path(file).read_text()
    assert source.count('"_step_supports_amp_scaling"') == 1
    names: dict[str, Any] = {"__name__": "torch.amp.grad_scaler", "__package__": "torch.amp"}
    exec(compile(source.replace("_step_supports_amp_scaling", "_another_name"), file, "exec"), names)
    class_: type[torch.amp.GradScaler] = names["GradScaler"]
    return class_


def a_scaler_that_has_not_asked_is_refused() -> None:
    hvd.init()
    weight = torch.ones(4, requires_grad=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.1), end_in_backward=False)
    scaler = scaler_that_does_not_ask()("cpu", init_scale=2.0)
    scaler.scale(weight.sum()).backward()
    with pytest.raises(UnsupportedError, match=rf"the GradScaler of torch {torch.__version__.split('+')[0]}"):
        scaler.step(optimizer)
    scaler.update()
    optimizer.synchronize()
    optimizer.zero_grad()
    scaler.scale(weight.sum()).backward()
    optimizer.synchronize()  # What the message says.
    scaler.unscale_(optimizer)
    with optimizer.skip_synchronize():
        scaler.step(optimizer)
    assert torch.allclose(weight, torch.full((4,), 0.9))
    hvd.shutdown()


def test_a_scaler_that_no_longer_asks_is_refused_by_name(run_ranks: Any) -> None:
    run_ranks(2, a_scaler_that_has_not_asked_is_refused)


def test_process_groups_are_called_by_these_names() -> None:
    import gyre.distributed  # noqa: PLC0415

    for name in _torch_private.PROCESS_GROUP_METHODS:
        assert hasattr(dist.ProcessGroup, name), name
        assert getattr(gyre.distributed.ProcessGroup, name) is not getattr(dist.ProcessGroup, name), name


def test_options_factors_and_rendezvous() -> None:
    limit = timedelta(seconds=5)
    assert _torch_private.backend_options("gyre", limit)._timeout == limit
    assert _torch_private.premultiplier(dist._make_nccl_premul_sum(0.5)) == 0.5  # type: ignore[attr-defined]
    assert {"env", "tcp"} <= _torch_private.rendezvous_handlers().keys()
    found: list[str | None] = []

    def handler(url: str, **options: Any) -> Iterator[tuple[dist.Store, int, int]]:
        del url, options
        found.append(_torch_private.backend_being_initialised())
        raise LookupError

    register_rendezvous_handler("probe", handler)
    with pytest.raises(LookupError):
        dist.init_process_group("cpu:gloo", init_method="probe://", rank=0, world_size=1)
    assert found == ["cpu:gloo"]
    assert _torch_private.backend_being_initialised() is None


def in_a_group_of_one_backends_are_found() -> None:
    seen: list[Any] = []

    def make(options: Any, backend_options: object) -> Any:
        del backend_options
        seen.append(_torch_private.backends_being_made())
        place = _torch_private.GroupPlace(
            options.store, 0, 1, options.timeout, options.group_id, tuple(options.global_ranks_in_group)
        )
        seen.append(_torch_private.gloo_backend(place))
        seen.append(_torch_private.plugin_backend("fake", place))
        group = _torch_private.group_over(seen[1], "cpu", "gloo", place)
        seen.append(group._get_backend(torch.device("cpu")) is seen[1])
        return seen[1]

    dist.Backend.register_backend("probe", make, extended_api=True, devices=["meta"])
    dist.init_process_group("meta:probe", store=dist.HashStore(), rank=0, world_size=1)
    assert seen[0] == {"meta": "probe"}
    assert isinstance(seen[1], dist.ProcessGroupGloo)
    assert seen[3]
    with pytest.raises(UnsupportedError, match="knows no backend 'missing'"):
        _torch_private.plugin_backend("missing", _torch_private.GroupPlace(None, 0, 1, None, "", ()))
    leave()


def the_flight_recorder_of_gloo_is_read() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(torch.ones(2))
    told = _torch_private.flight_record()
    assert "numbers of the last collectives: " in told, told
    assert "enqueued " in told
    leave()


def test_the_flight_recorder_is_read(run_ranks: Any) -> None:
    run_ranks(1, the_flight_recorder_of_gloo_is_read)


def test_backends_are_made_and_held(run_ranks: Any) -> None:
    run_ranks(1, in_a_group_of_one_backends_are_found)


def test_tracing_rules_take_ours() -> None:
    rules = inspect.getmodule(__import__("torch._dynamo.trace_rules", fromlist=["add"]).add)
    assert rules is not None
    _torch_private.keep_out_of_graphs()
    assert _torch_private._kept_out


def test_a_name_that_is_missing_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.autograd.Variable, "_execution_engine")
    with pytest.raises(
        UnsupportedError, match=rf"^torch {torch.__version__.split('+')[0]}.* has no torch\.autograd"
    ) as one:
        _torch_private.at_end_of_backward(lambda: None)
    assert "\n" not in str(one.value)


IMPORT = """
import sys, types
sys.path.insert(0, sys.argv[1])
import torch.distributed as dist
from gyre import torch_backend
before = dict(dist.Backend.default_device_backend_map)
{break_it}
torch_backend.register()
assert dict(dist.Backend.default_device_backend_map) == before
assert dist.Backend._plugins.keys() <= {{"GYRE"}}
print("accelerate" in sys.modules, any("gyre" in type(finder).__module__ for finder in sys.meta_path))
"""


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        ("", ""),
        ("dist.Backend.register_backend = None", "is not available"),
        ("import os; os.environ['GYRE_ENDED_FD'] = '9'; sys.modules['gyre._gathering'] = None", "is not available"),
    ],
)
def test_importing_torch_changes_nothing_else_and_cannot_fail(break_it: str, words: str) -> None:
    """What torch does at the end of `import torch` where the wheel is installed; all warnings are errors."""
    variables = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}  # Or a checkout's registration would come first.
    command = [sys.executable, "-W", "error", "-c", IMPORT.format(break_it=break_it), str(PACKAGE.parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False False"
    assert words in done.stderr
    assert bool(words) == bool(done.stderr.strip())


@pytest.mark.parametrize("name", ["gyre.distributed", "gyre.torch", "gyre.data", "gyre.models"])
def test_gyre_may_be_imported_before_torch(name: str) -> None:
    """torch then calls register() in the middle of Gyre's own import, and once warned of a circle that was none."""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, sys.argv[1]); import {name}", str(PACKAGE.parent)]
    variables = {key: value for key, value in os.environ.items() if key != "TORCH_DEVICE_BACKEND_AUTOLOAD"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=variables)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_the_parts_of_a_sparse_tensor_with_two_entries_for_one_place() -> None:
    tensor = torch.sparse_coo_tensor(torch.tensor([[1, 1]]), torch.tensor([2.0, 3.0]), [3], check_invariants=True)
    indices, values = _torch_private.parts_of_sparse(tensor)
    assert indices.tolist() == [[1, 1]]
    assert values.tolist() == [2.0, 3.0]
