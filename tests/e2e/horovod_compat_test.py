"""A script that says `import horovod.torch` must run unchanged, and must get the real Horovod where there is one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

SCRIPT = """
import horovod
import horovod.torch as hvd
import horovod.torch.mpi_ops as operations
import torch
from horovod.common.exceptions import HorovodInternalError
from horovod.torch import functions, mpi_ops
from horovod.torch.mpi_ops import Sum, allreduce

assert mpi_ops.HorovodInternalError is HorovodInternalError
assert operations.broadcast_ is hvd.broadcast_
assert functions.broadcast_object is hvd.broadcast_object
try:
    from horovod.torch import elastic
except ImportError as error:
    assert "no elastic training" in str(error), error
hvd.init()
network = torch.nn.Linear(2, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(network.parameters(), lr=0.1), network.named_parameters())
hvd.broadcast_parameters(network.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
network(torch.ones(1, 2)).sum().backward()
optimizer.step()
total = int(allreduce(torch.ones(1), op=Sum))
try:
    hvd.allreduce(torch.ones(1 + hvd.rank()), name="differs")
except HorovodInternalError:
    print(f"rank {hvd.rank()}: {total}, gyre in {horovod.__version__}", flush=True)
"""

AGAIN = """
import os
import horovod.torch as hvd
import torch

for count in range(1, 4):
    hvd.init()
    for name in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"):
        assert os.environ["HOROVOD_" + name.upper()] == str(getattr(hvd, name)()), name
    assert hvd.allreduce(torch.tensor([count]), op=hvd.Sum, name="same").item() == count * hvd.size()
    hvd.shutdown()
    assert not hvd.is_initialized()
print(f"rank {os.environ['HOROVOD_RANK']} has begun three times", flush=True)
"""


def environment(*folders: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(str(folder) for folder in (*folders, ROOT / "python"))}


def test_a_horovod_script_runs_unchanged(start_job, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    job = start_job("--horovod-compat", "-n", "2", "--", sys.executable, "train.py", env=environment(), timeout=240)
    assert job.wait() == 0, job.stderr
    for rank in range(2):
        assert f"rank {rank}: 2, gyre in 0.28.1+gyre" in job.stdout


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_script_may_begin_again_under_the_ranks_that_horovods_variables_name(start_job, tmp_path, size):
    (tmp_path / "train.py").write_text(AGAIN)
    command = ["-n", str(size), "--", sys.executable, "-W", "error::UserWarning", "train.py"]
    job = start_job("--horovod-compat", *command, env=environment(), timeout=240)
    assert job.wait() == 0, job.stderr
    for rank in range(size):
        assert f"rank {rank} has begun three times" in job.stdout


def test_a_launcher_of_another_installation_brings_no_other_horovod(tmp_path):
    """`gyre run` puts its own folder into PYTHONPATH."""
    shim = tmp_path / "other" / "gyre" / "_horovod_shim"
    shutil.copytree(ROOT / "python" / "gyre" / "_horovod_shim", shim)
    variables = {**os.environ, **environment(shim), "PYTHONWARNINGS": "error"}
    command = [sys.executable, "-c", "import horovod.torch as hvd; print(hvd.__name__)"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "gyre.torch\n"), done.stderr[-2000:]


def test_a_real_horovod_wins_and_a_warning_says_so(start_job, tmp_path):
    package = tmp_path / "site" / "horovod"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = 'the real one'\n")
    (package / "torch.py").write_text("name = __name__\n")
    (tmp_path / "train.py").write_text(
        "import horovod, horovod.torch as hvd\nprint(horovod.__version__, hvd.name, flush=True)\n"
    )
    command = ["--", sys.executable, "train.py"]
    job = start_job("--horovod-compat", *command, env=environment(tmp_path / "site"), timeout=240)
    assert job.wait() == 0, job.stderr
    assert "the real one horovod.torch" in job.stdout
    assert "Horovod itself is installed" in job.stderr


RUN = """
import gyre.horovod
assert gyre.horovod.install()
import horovod


def place(base, add):
    import horovod.torch as hvd
    import torch

    hvd.init()
    return base + add * int(hvd.allreduce(torch.ones(1), op=hvd.Sum)), hvd.rank()


def main():
    print(horovod.run(place, (10,), {"add": 5}, num_proc=2, use_gloo=True, start_timeout=60))
    print(horovod.run(place, (10,), {"add": 5}, np=1, hosts="localhost:2", verbose=True))


if __name__ == "__main__":
    main()
"""


def test_horovods_run_calls_a_function_that_imports_horovod_on_every_rank(gyre, tmp_path):
    (tmp_path / "notebook.py").write_text(RUN)
    variables = {**os.environ, **environment(), "PATH": f"{gyre.parent}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "notebook.py"]
    finished = subprocess.run(
        command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=240, check=False
    )
    assert finished.returncode == 0, finished.stderr
    lines = finished.stdout.splitlines()
    assert lines[:2] == ["[(20, 0), (20, 1)]", "[(15, 0)]"], finished


def run_python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **environment()}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=240, check=False)


def test_a_horovod_script_runs_unchanged_under_torchrun(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    finished = run_python(*torchrun, "-m", "gyre.horovod", "train.py", folder=tmp_path)
    assert finished.returncode == 0, finished.stderr
    for rank in range(2):
        assert f"rank {rank}: 2, gyre in 0.28.1+gyre" in finished.stdout


def test_pythons_options_and_the_scripts_arguments_arrive(tmp_path):
    """The script is started as if its name stood where `-m gyre.horovod` stands."""
    (tmp_path / "train.py").write_text("import sys\nprint(sys.flags.optimize, sys.argv)\n")
    for command in (["-O", "-m", "gyre.horovod", "train.py"], ["-O", "-mgyre.horovod", "-m", "train"]):
        finished = run_python(*command, "--lr", "-m", folder=tmp_path)
        assert finished.returncode == 0, finished.stderr
        assert finished.stdout.startswith("1 ['")
        assert finished.stdout.endswith("train.py', '--lr', '-m']\n")


def test_a_mistake_before_the_script_is_one_message(tmp_path):
    for arguments in ((), ("--lr", "1"), ("-m",)):
        finished = run_python("-m", "gyre.horovod", *arguments, folder=tmp_path)
        assert finished.returncode == 2
        assert finished.stderr.startswith(("usage: ", f"gyre.horovod: {(*arguments, '')[0]!r} is not a script"))
