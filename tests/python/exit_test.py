"""How ranks end: in good order, by an exception, by Ctrl-C, as forks. Nobody hangs, and nobody crashes."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import gyre.torch as hvd
import pytest
import torch
from gyre.errors import CallOrderError, Error, InvalidArgumentError, ShutDownError, UnsupportedError, error_from_code


def body_exception_on_one_rank() -> None:
    hvd.init()
    hvd.allreduce(torch.ones(1))
    if hvd.rank() == 1:
        raise ValueError("the disk of this rank is on fire")
    began = time.monotonic()
    try:
        hvd.allreduce(torch.ones(1), name="never")
    except Error as error:
        print(f"CODE {error.code} AFTER {time.monotonic() - began:.1f} s: {error}")
        raise SystemExit(0) from None
    raise AssertionError("the allreduce of two ranks was done by one")


def test_an_exception_on_one_rank_reaches_the_others(run_ranks):
    outcomes = run_ranks(3, body_exception_on_one_rank, check=False, timeout_s=120)
    assert outcomes[1].code == 1
    for other in (outcomes[0], outcomes[2]):
        assert other.code == 0, other.output
        assert "rank 1" in other.output
        assert "ValueError: the disk of this rank is on fire" in other.output


def body_early_leave() -> None:
    hvd.init()
    if hvd.rank() == 1:
        return
    try:
        hvd.barrier()
    except Error as error:
        print(f"CODE {error.code}: {error}")


def test_a_rank_that_leaves_early_is_named(run_ranks):
    outcomes = run_ranks(2, body_early_leave, timeout_s=120)
    assert "CODE PEER_LEFT" in outcomes[0].output
    assert "rank 1" in outcomes[0].output


def body_exit_in_mid_step() -> None:
    """Backward has begun the exchange, step() never comes; handles and arena gradients are still alive."""
    hvd.init()
    network = torch.nn.Linear(100, 100)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(network.parameters(), lr=0.1), end_in_backward=False)
    network(torch.ones(1, 100)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    sys.kept = [network, optimizer]  # Alive until the interpreter is gone.
    if hvd.rank() == 0:
        network(torch.ones(1, 100)).sum().backward()
        sys.kept.append(hvd.allreduce_async(torch.ones(1 << 20), name="unfinished"))
    else:
        try:
            hvd.barrier("never")
        except Error as error:
            print(f"CODE {error.code}: {error}")


def test_leaving_in_the_middle_of_a_step_neither_hangs_nor_crashes(run_ranks):
    outcomes = run_ranks(2, body_exit_in_mid_step, timeout_s=120)
    assert "CODE ABORTED: rank 0" in outcomes[1].output
    assert "in the middle of a step" in outcomes[1].output


def body_killed_rank() -> None:
    hvd.init()
    hvd.barrier()
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        hvd.barrier("never")
    except Error as error:
        print(f"CODE {error.code}: {error}")


def test_a_killed_rank_is_named(run_ranks):
    outcomes = run_ranks(3, body_killed_rank, check=False, timeout_s=120)
    assert outcomes[1].code == -signal.SIGKILL
    for other in (outcomes[0], outcomes[2]):
        assert other.code == 0, other.output
        assert "CODE PEER_LOST" in other.output
        assert "rank 1" in other.output


def interrupted_soon(wait: Callable[[], object]) -> None:
    """The signal comes from within, because on a slow machine it could be there before the wait."""
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    wait()


def body_interrupt() -> None:
    """Ctrl-C must get through while a rank waits in C++, for a handle and for a step; and wait on later."""
    # A shell that starts the tests in the background has SIGINT ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    hvd.init()
    for ends_in_backward in (True, False):
        weight = torch.nn.Parameter(torch.ones(3))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), end_in_backward=ends_in_backward)
        weight.sum().backward()
        optimizer.step()  # The first one lays out the plan.
        optimizer.zero_grad()
        if hvd.rank() == 0:
            handle = hvd.allreduce_async(torch.ones(1), name="late", op=hvd.Sum)
            backward = (weight * 0).sum().backward
            if not ends_in_backward:
                backward()
            for wait in (handle.wait, backward if ends_in_backward else optimizer.synchronize, optimizer.synchronize):
                began = time.monotonic()
                with pytest.raises(KeyboardInterrupt):
                    interrupted_soon(wait)
                assert time.monotonic() - began < 5
            hvd.barrier("interrupted")
        else:
            hvd.barrier("interrupted")
            handle = hvd.allreduce_async(torch.ones(1), name="late", op=hvd.Sum)
            weight.sum().backward()
        assert torch.equal(handle.wait(), torch.tensor([2.0]))
        optimizer.synchronize()
        assert torch.equal(weight.grad, torch.full((3,), 0.5))


def test_ctrl_c_ends_a_wait(run_ranks):
    run_ranks(2, body_interrupt, timeout_s=120)


def body_interrupt_the_first_step() -> None:
    """While the plan is laid out the step cannot be taken up again: who tries is told, and does not wait for ever."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    hvd.init()
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), end_in_backward=False)
    weight.sum().backward()
    if hvd.rank() == 0:
        with pytest.raises(KeyboardInterrupt):
            interrupted_soon(optimizer.step)  # In what the ranks agree on before, which can be taken up again.
        with pytest.raises(KeyboardInterrupt):
            interrupted_soon(optimizer.step)
        hvd.barrier("agree")
        with pytest.raises(KeyboardInterrupt):
            interrupted_soon(optimizer.step)
        with pytest.raises(CallOrderError, match="cannot be taken up again"):
            optimizer.step()
        hvd.barrier("told")
    else:
        hvd.barrier("agree")
        optimizer._exchange._agree_about_backward(complete=False)
        hvd.barrier("told")


def test_a_first_step_that_was_interrupted_says_so(run_ranks):
    run_ranks(2, body_interrupt_the_first_step, timeout_s=60)


ALONE_IN_A_JOB_OF_TWO = """
import os, signal, threading
import gyre.torch as hvd

signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    hvd.init()
except KeyboardInterrupt:
    print("interrupted", hvd.is_initialized())
"""


def test_ctrl_c_ends_the_wait_for_the_other_ranks(tmp_path):
    """init() waits long for a rank that nobody has started; who notices that does not want to."""
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    rendezvous = f"unix:@gyre-test-{os.getpid()}-{time.monotonic_ns()}"
    job = {"GYRE_RANK": "0", "GYRE_SIZE": "2", "GYRE_RENDEZVOUS": rendezvous, "GYRE_KEY_FILE": str(key)}
    job["GYRE_START_TIMEOUT_SECONDS"] = "600"
    environment = {**os.environ, **job, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", ALONE_IN_A_JOB_OF_TWO]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert (result.returncode, result.stdout) == (0, "interrupted False\n"), result.stderr


def body_forks() -> None:
    """A DataLoader's workers are forks: they may not take part, and their end must not disturb the parent."""
    hvd.init()
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
    loader = torch.utils.data.DataLoader(list(range(8)), num_workers=2, multiprocessing_context="fork")
    assert len(list(loader)) == 8
    child = os.fork()
    if child == 0:
        refusals = 0

        def step() -> None:
            weight.sum().backward()
            optimizer.step()

        for call in (lambda: hvd.allreduce(torch.ones(1)), hvd.rank, hvd.init, step):
            try:
                call()
            except UnsupportedError as error:
                refusals += "fork" in str(error)
        hvd.shutdown()
        del optimizer
        wanted = 3 if hvd_alone() else 4  # Alone, gradients go nowhere.
        sys.exit(0 if refusals == wanted and not hvd.is_initialized() else 9)  # With all of Python's exit handlers.
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    weight.sum().backward()
    optimizer.step()
    assert torch.equal(weight, torch.zeros(3))


def body_shut_down_and_start_again() -> None:
    with pytest.raises(ShutDownError, match="init"):
        hvd.rank()
    assert not hvd.is_initialized()
    hvd.shutdown()
    hvd.init()
    hvd.init()
    assert hvd.is_initialized()
    weight = torch.nn.Parameter(torch.ones(1000))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
    (weight * 2).sum().backward()
    optimizer.step()
    hvd.barrier()
    hvd.shutdown()
    assert torch.equal(weight.grad, torch.full((1000,), 2.0)), "gradients outlive the runtime"
    assert not hvd.is_initialized()
    with pytest.raises(ShutDownError):
        hvd.allreduce(torch.ones(1))
    if hvd_alone():
        hvd.init()
        assert torch.equal(hvd.allreduce(torch.ones(2)), torch.ones(2))


def body_parameters_of_an_earlier_job() -> None:
    """Whoever still holds the optimizer of then has no part in what happens to them now."""
    weight = torch.nn.Parameter(torch.ones(1000))

    def train(optimizer: torch.optim.Optimizer, rank: int, gradient: float) -> None:
        for _ in range(3):
            optimizer.zero_grad()
            (weight * (rank + 1)).sum().backward()
            assert torch.equal(weight.grad, torch.full((1000,), gradient))
            optimizer.step()

    hvd.init()
    older = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
    rank, mean = hvd.rank(), (hvd.size() + 1) / 2
    train(older, rank, mean)
    hvd.shutdown()
    train(torch.optim.SGD([weight], lr=1.0), rank, rank + 1)
    hvd.init()
    train(hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0)), hvd.rank(), mean)
    with pytest.raises(ShutDownError, match="make it anew"):
        older.step()


def hvd_alone() -> bool:
    return os.environ.get("GYRE_SIZE", "1") == "1"


def body_forks_and_restarts() -> None:
    body_shut_down_and_start_again()
    if hvd_alone():
        body_forks()


def test_forks_and_restarts_alone(run_ranks):
    run_ranks(1, body_forks_and_restarts, launcher=False)


def test_forks_of_two_ranks(run_ranks):
    run_ranks(2, body_forks)


def test_gradients_outlive_a_shutdown_of_two_ranks(run_ranks):
    run_ranks(2, body_shut_down_and_start_again)


def body_script_that_fails_alone() -> None:
    hvd.init()
    raise RuntimeError("of no concern to anybody")


def test_parameters_go_on_to_the_next_job(run_ranks):
    run_ranks(2, body_parameters_of_an_earlier_job)


def test_a_failing_script_of_one_rank_ends_with_its_own_traceback(run_ranks):
    (outcome,) = run_ranks(1, body_script_that_fails_alone, launcher=False, check=False)
    assert outcome.code == 1
    assert outcome.output.rstrip().endswith("RuntimeError: of no concern to anybody")


def test_errors_have_python_s_own_classes_as_bases():
    for code, base in (("INVALID_ARGUMENT", ValueError), ("TIMEOUT", TimeoutError), ("MISMATCH", RuntimeError)):
        error = error_from_code(code, "text")
        assert isinstance(error, (Error, RuntimeError))
        assert isinstance(error, base)
        assert error.code == code
        assert str(error) == "text"
    assert type(error_from_code("IO", "x")) is Error
    assert error_from_code("IO", "x").code == "IO"
    with pytest.raises(InvalidArgumentError):
        raise error_from_code("INVALID_ARGUMENT", "x")


def test_a_wrong_environment_is_one_clear_message():
    environment = {**os.environ, "GYRE_RANK": "three", "GYRE_SIZE": "2", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", "import gyre.torch as hvd; hvd.init()"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 1
    assert "InvalidArgumentError" in result.stderr
    assert "GYRE_RANK" in result.stderr
