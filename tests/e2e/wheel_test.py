"""The wheel works for somebody who has Python, pip and torch, and nothing of this checkout.

Usually the place is a fresh venv with torch and what torch needs linked in from .venv (copying them would take longer
than all else here), no variable of ours, and a PATH without our programs. With `--clean-tree BASE` (./dev test wheel)
it is a copy of a whole Debian 12 that tools/clean_tree.py has made, into which its own pip installs the wheel.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import clean_tree
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clean_tree import CleanTree, command_in
from linked_packages import link_distribution, make_venv
from outside_programs import GUIDE, LIBTORCH_PROGRAM, README_PROGRAM, build_with_cmake, fitted_the_same, write

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD_SECONDS = 1500
STEP_SECONDS = 240

TRAINING = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gyre")  # No import of ours: torch knows it.
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(5, 4)).square().mean().backward()
    optimizer.step()
sums = [torch.zeros(1) for _ in range(2)]
dist.all_gather(sums, sum(p.detach().sum() for p in model.parameters()).view(1))
print("equal" if torch.equal(sums[0], sums[1]) else "different", dist.get_backend())
dist.destroy_process_group()
"""

HOROVOD = """
import horovod.torch as hvd, torch
hvd.init()
print("sum", float(hvd.allreduce(torch.tensor(hvd.rank() + 1.0), op=hvd.Sum)), flush=True)
hvd.shutdown()
"""

EXPLAINED = """
import torch, gyre.torch as hvd
hvd.init()
model = torch.nn.Linear(64, 64)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
for step in range(40):
    optimizer.zero_grad()
    model(torch.ones(4, 64)).sum().backward()
    optimizer.step()
"""

PARQUET = """
import sys, gyre.data, gyre.errors
try:
    loader = gyre.data.Loader(sys.argv[1], {"label": gyre.data.ints()}, batch_size=3, shuffle=False)
    print([batch["label"].tolist() for batch in loader])
except gyre.errors.UnsupportedError as error:
    print(error)
"""


class Venv:
    """Where the wheel is installed, and how things run there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.packages = make_venv(folder, "torch", "numpy", "cloudpickle")
        self._home = folder.parent / "home"
        self._home.mkdir()

    def install(self, wheel: Path) -> None:
        # Our pip, into that environment: to put a pip of its own there takes longer than all else.
        pip = [sys.executable, "-m", "pip", "--python", str(self._folder), "install", "--quiet", "--no-index"]
        self.run([*pip, str(wheel)])

    def put(self, name: str, content: bytes, mode: int = 0o644) -> str:
        """A file in the home folder; what it is called by those who run here."""
        path = self._home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)
        return str(path)

    def from_outside(self, path: str) -> Path:
        """Where this machine has what is called `path` by those who run here."""
        return Path(path)

    def run(self, command: list[str]) -> str:
        """Its output, from the home folder and a nearly empty environment."""
        path = f"{self._folder / 'bin'}:/usr/bin:/bin"
        return output_of(command, self._home, {"PATH": path, "HOME": str(self._home), "OMP_NUM_THREADS": "1"})


class Debian:
    """The same in a copy of a Debian that has python3, pip and torch."""

    def __init__(self, tree: CleanTree) -> None:
        self._tree = tree
        self.packages = tree.root / "usr/local/lib/python3.11/dist-packages"

    def install(self, wheel: Path) -> None:
        self._tree.install(wheel)

    def put(self, name: str, content: bytes, mode: int = 0o644) -> str:
        path = self._tree.root / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)
        return f"/root/{name}"

    def from_outside(self, path: str) -> Path:
        return self._tree.root / path.lstrip("/")

    def run(self, command: list[str]) -> str:
        inside = command_in(self._tree.root, command, folder="/root")
        return output_of(inside, self._tree.root, {**clean_tree.environment(), "OMP_NUM_THREADS": "1"})


Place = Venv | Debian


def output_of(command: list[str], folder: Path, variables: dict[str, str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=STEP_SECONDS, check=False, cwd=folder, env=variables
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Place]:
    built = subprocess.run(
        [str(ROOT / "dev"), "wheel"], capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
    )
    assert built.returncode == 0, built.stderr
    wheel = Path(built.stdout.strip())
    base = pytestconfig.getoption("--clean-tree")
    if base is None:
        chosen: Place = Venv(tmp_path_factory.mktemp("wheel") / "environment")
        chosen.install(wheel)
        yield chosen
        return
    with CleanTree(Path(base), Path(base).parent / "copy") as tree:
        chosen = Debian(tree)
        chosen.install(wheel)
        yield chosen


def test_nothing_in_it_that_must_be_the_users_own(place: Place) -> None:
    names = [path.name for path in place.packages.glob("gyre_train.libs/*")]
    assert names
    assert not [
        name for name in names if re.match(r"lib(stdc\+\+|gcc_s|torch|c10|gomp|arrow|parquet|tensorflow)", name)
    ], names


def test_ddp_over_gyre_with_gyre_run(place: Place) -> None:
    script = place.put("train.py", TRAINING.encode())
    said = place.run(["gyre", "run", "--nproc-per-node", "2", script])
    assert sorted(said.splitlines()) == ["[0] equal gyre", "[1] equal gyre"]


def test_horovods_name_and_a_notebooks_function(place: Place) -> None:
    script = place.put("horovod_train.py", HOROVOD.encode())
    said = place.run(["gyre", "run", "--horovod-compat", "-n", "2", "--", "python3", script])
    assert sorted(said.splitlines()) == ["[0] sum 3.0", "[1] sum 3.0"]
    installed = place.put("installs.py", f"import gyre.horovod\ngyre.horovod.install()\n{HOROVOD}".encode())
    assert place.run(["python3", installed]) == "sum 1.0\n"
    function = "import gyre, operator\nprint(gyre.run(operator.add, (4, 1), np=2))\n"
    assert place.run(["python3", place.put("notebook.py", function.encode())]) == "[5, 5]\n"


def test_the_c_plus_plus_program(place: Place, digits: dict[str, bytes]) -> None:
    for name, content in digits.items():
        data = place.put(f"data/{name}", content).removesuffix(f"/{name}")
    command = ["gyre", "run", "-n", "2", "--", "gyre-cifar10", "--data-dir", data, "--batch-size", "16"]
    assert "epoch" in place.run([*command, "--epochs", "1"])


def test_programs_in_c_plus_plus_build_with_gyre_config(place: Place, tmp_path: Path) -> None:
    """With this machine's compiler; the place has none. They run where the wheel is."""
    cmake_folder = place.run(["gyre-config", "--cmake-dir"]).strip()
    package = Path(cmake_folder).parents[2]
    project = re.findall(r"```cmake\n(.*?)```", GUIDE, re.DOTALL)[0]
    project += "add_executable(average average.cc)\ntarget_link_libraries(average PRIVATE gyre::gyre)\n"
    files = {"CMakeLists.txt": project, "average.cc": README_PROGRAM, "train.cc": LIBTORCH_PROGRAM}
    # Where the libraries are for those who run there, which need not be their place for the linker.
    libraries = f"-DCMAKE_BUILD_RPATH={package / 'lib'};{package.parent / 'torch' / 'lib'}"
    definitions = (f"-Dgyre_DIR={place.from_outside(cmake_folder)}", "-DPython_EXECUTABLE=none", libraries)
    programs = build_with_cmake(write(tmp_path / "project", files), *definitions)
    average = place.put("average", (programs / "average").read_bytes(), mode=0o755)
    place.run(["gyre", "run", "-n", "2", "--", average])
    train = place.put("train", (programs / "train").read_bytes(), mode=0o755)
    assert fitted_the_same(place.run(["gyre", "run", "-n", "2", "--", train]))


def test_the_header_files_and_libraries_are_no_larger_than_they_must(place: Place) -> None:
    """Everybody downloads them; few need them."""
    sizes = {path.name: path.stat().st_size for path in (place.packages / "gyre" / "lib").glob("libgyre*")}
    names = {"libgyre.so.0.1", "libgyre_models.so.0.1", "libgyre_train.so.0.1", "libgyre_parquet.so", "libgyre_curl.so"}
    assert set(sizes) == names, "a wheel has no links: each would be a copy"
    assert sum(sizes.values()) < 6_000_000, sizes


def test_benchmarks_and_explanations(place: Place) -> None:
    quick = ["--ranks", "2", "--seconds", "0.01", "-o", "json"]
    assert json.loads(place.run(["gyre", "bench", "allreduce", "--sizes", "4096", *quick]))
    # gyre-bench-step is a libtorch program.
    assert json.loads(place.run(["gyre", "bench", "step", "cifar10", "--via", "cpp", *quick]))
    script = place.put("explained.py", EXPLAINED.encode())
    assert "bucket" in place.run(["gyre", "explain", "-n", "2", "--", "python3", script]).lower()


def test_parquet_files_are_read_as_soon_as_pyarrow_is_there(place: Place, tmp_path: Path) -> None:
    pq.write_table(pa.table({"label": [4, 5, 6]}), tmp_path / "a.parquet")
    command = ["python3", place.put("parquet.py", PARQUET.encode())]
    command += [place.put("a.parquet", (tmp_path / "a.parquet").read_bytes())]
    assert "pip install 'gyre-train[parquet]'" in place.run(command)
    if isinstance(place, Venv):
        link_distribution("pyarrow", place.packages)
        assert place.run(command) == "[[4, 5, 6]]\n"


def test_the_doctor_finds_nothing_wrong(place: Place) -> None:
    report = json.loads(place.run(["gyre", "doctor", "-o", "json"]))
    states = {finding["name"]: finding["state"] for finding in report["findings"]}
    assert report["wrong"] == 0, report
    assert states["backend gyre"] == states["two ranks"] == states["gyre"] == "ok"
