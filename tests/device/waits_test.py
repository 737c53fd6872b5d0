"""A wait that is forgotten is a wrong number that nobody sees. Each wait of Gyre's for a device's streams is left out
here in turn, where it is called, and a check must then fail; a wait without such a check fails the last test."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import gyre.torch as hvd
import pytest
import sim_device
from ranks_fixture import RunRanks

SIZE = 3
PACKAGE = Path(__file__).resolve().parents[2] / "python" / "gyre"

OPERATIONS, TRAINING, LIBRARY = "horovod_operations_test", "horovod_training_test", "horovod_delegate_test"
# A function of gyre._devices.staging, the module and the function that call it, and a check, with its file, that sees
# that it is not called.
WAITS = {
    ("wait_on_host", "_devices/staging", "to_host"): (OPERATIONS, "tensors_may_be_freed_after_an_async_call"),
    ("wait_on_host", "_devices/staging", "deliver"): (TRAINING, "every_optimizer"),
    ("wait_on_device", "_devices/staging", "land"): (OPERATIONS, "two_streams_wait_for_one_handle"),
    ("wait_on_device", "_devices/staging", "send"): (TRAINING, "every_optimizer"),
    ("note_use", "_devices/staging", "land"): (
        OPERATIONS,
        "results_that_another_stream_waits_for_do_not_reach_freed_memory",
    ),
    ("note_use", "_devices/staging", "send"): (
        TRAINING,
        "compressed_gradients_are_freed_before_they_have_been_copied",
    ),
    ("wait_on_device", "torch/_delegate", "_carry_out"): (LIBRARY, "results_wait_for_the_tensors_and_for_the_library"),
    ("wait_on_device", "torch/_delegated_call", "land"): (LIBRARY, "results_wait_for_the_tensors_and_for_the_library"),
    ("wait_for_work", "torch/_delegate", "run_work"): (LIBRARY, "results_wait_for_the_tensors_and_for_the_library"),
    ("note_use", "torch/_delegate", "_carry_out"): (LIBRARY, "a_tensor_freed_after_its_call_is_not_given_to_others"),
    ("note_use", "torch/_delegated_call", "land"): (
        LIBRARY,
        "a_freed_result_is_not_given_to_others_before_it_was_read",
    ),
    ("wait_on_device", "torch/_device_buckets", "pack"): (LIBRARY, "gradients_of_two_streams_are_packed_together"),
    ("note_use", "torch/_device_buckets", "pack"): (LIBRARY, "gradients_of_two_streams_are_packed_together"),
}


def checks_of(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def body() -> None:
    sim_device.begin()
    wait, module, caller = os.environ["WAIT"].split()
    file, check = WAITS[wait, module, caller]
    sim_device.leave_out(wait, str(PACKAGE / f"{module}.py"), caller)
    hvd.init()
    getattr(checks_of(file), check)()


@pytest.mark.parametrize("wait", list(WAITS), ids="-".join)
def test_without_one_of_its_waits_the_results_are_wrong(run_ranks: RunRanks, wait: tuple[str, str, str]) -> None:
    carrier = "staged" if wait[1] == "_devices/staging" else "delegated"
    environment = {"WAIT": " ".join(wait), "CARRIER": carrier, "SCHEDULE": "lazy"}
    outcomes = run_ranks(SIZE, body, environment=environment, check=False)
    assert any("AssertionError" in outcome.output for outcome in outcomes), [one.output for one in outcomes]


def waits_in(file: Path) -> Iterator[tuple[str, str, str]]:
    """Calls of the functions that wait, by the innermost function around them."""
    names = {wait for wait, _, _ in WAITS}
    for function in ast.walk(ast.parse(file.read_text())):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in names:
                    yield name, str(file.relative_to(PACKAGE).with_suffix("")), function.name


def test_every_wait_has_such_a_check() -> None:
    files = [*(PACKAGE / "_devices").glob("*.py"), *(PACKAGE / "torch").glob("*.py")]
    assert {wait for file in files for wait in waits_in(file)} == set(WAITS)
    direct = ("record_stream(", "wait_event(", "wait_stream(")
    for file in PACKAGE.rglob("*.py"):
        if file != PACKAGE / "_devices" / "staging.py":
            assert not any(word in file.read_text() for word in direct), f"{file} waits by itself"
