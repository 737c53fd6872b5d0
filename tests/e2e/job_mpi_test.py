"""Jobs whose processes MPI starts: the real Open MPI and MPICH, over the job's own remote shell instead of sshd."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from article_job import ARTICLE, make_share, script
from other_user import NOBODY
from other_user import PYTHON as OTHER_USERS_PYTHON

# What both launchers tell their ranks, and what each rank must find of the job, of its own node and in its folder.
LINE = (
    "echo rank ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} of ${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE} on $AZ_BATCH_NODE_ID "
    "has $OWN and $TOKEN at $AZ_BATCHAI_INPUT_DATA in the folder of $(cat name)"
)
ROOT = Path(__file__).resolve().parents[2]
MOUNTED = "$AZ_BATCHAI_MOUNT_ROOT/external"
INTEL_MPI = Path(sys.prefix) / "intel-mpi"
needs_intel_mpi = pytest.mark.skipif(
    not (INTEL_MPI / "bin/mpirun").exists(), reason="Intel MPI is not installed: `./dev setup test` does so on x86-64"
)


def run_job(
    gyre: Path, share: Path, properties: dict[str, Any], *options: str, user: int | None = None
) -> subprocess.CompletedProcess[str]:
    """`user`: who runs it, on virtual nodes without mount namespaces; else whoever runs the tests."""
    home = share / "home"
    home.mkdir()
    file = share / "mpi.json"
    file.write_text(json.dumps({"properties": {"stdOutErrPathPrefix": MOUNTED, **properties}}))
    if user is not None:
        os.chown(home, user, user)
    return subprocess.run(
        [str(gyre), "job", "run", str(file), "--mount", f"external={share}", *options],
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=home,
        **({} if user is None else {"user": user, "group": user, "extra_groups": []}),
    )


def add_programs(share: Path, name: str, programs: dict[str, str]) -> None:
    folder = share / name
    folder.mkdir()
    folder.chmod(0o755)
    for program, text in programs.items():
        (folder / program).write_text(f"#!/bin/sh\n{text}\n")
        (folder / program).chmod(0o755)


@pytest.mark.parametrize("as_user", [False, True], ids=["", "without_root"])
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize(
    ("launcher", "program"),
    [
        pytest.param("openmpi", "mpirun.openmpi", marks=pytest.mark.needs_programs("mpirun.openmpi")),
        pytest.param("mpich", "mpiexec.hydra", marks=pytest.mark.needs_programs("mpiexec.hydra")),
        pytest.param("intel", str(INTEL_MPI / "bin/mpirun"), marks=needs_intel_mpi),
    ],
)
def test_mpi_starts_ranks_on_all_nodes_and_each_has_the_jobs_and_its_nodes_variables(
    gyre: Path, launcher: str, program: str, nodes: int, as_user: bool
) -> None:
    """Ranks of the second node started in the first one's folder; with Open MPI no rank of a single node started."""
    user = NOBODY if as_user and os.geteuid() == 0 else None
    with make_share() as share:
        add_programs(share, launcher, dict.fromkeys(("mpirun", "mpiexec"), f'exec {program} "$@"'))
        properties = {
            "nodeCount": nodes,
            "environmentVariables": [
                {"name": "PATH", "value": f"{MOUNTED}/{launcher}:$PATH"},
                {"name": "OWN", "value": "$AZ_BATCHAI_JOB_NAME's"},
            ],
            "secrets": [{"name": "TOKEN", "value": "hunter2secret"}],
            "inputDirectories": [{"id": "DATA", "path": f"{MOUNTED}/data"}],
            "jobPreparation": {"commandLine": "echo $AZ_BATCH_NODE_ID > name"},
            "customMpiSettings": {"commandLine": LINE, "processCount": 4},
        }
        done = run_job(gyre, share, properties, "--quiet", user=user)
    assert done.returncode == 0, done.stdout + done.stderr
    said = sorted(line.split() for line in done.stdout.splitlines())
    assert [words[1] for words in said] == ["0", "1", "2", "3"], done.stdout
    placed = [words[5] for words in said]
    assert placed[0] == placed[1]
    assert placed[2] == placed[3]
    assert len(set(placed)) == nodes, done.stdout
    for words in said:
        assert words[3] == "4"
        assert words[7:10] == ["mpi's", "and", "***"], done.stdout
        assert words[11].endswith("/external/data")
        assert words[-1] == words[5], done.stdout


def test_a_horovod_script_under_open_mpi_finds_gyre_where_there_is_no_horovod(gyre: Path) -> None:
    """It ended with "No module named 'horovod'"; only the ranks of `gyre run` had it."""
    with make_share() as share:
        script_file = share / "train.py"
        script_file.write_text(
            "import os, sys\nimport horovod.torch as hvd\nhvd.init()\n"
            "by_mpi = 'OMPI_COMM_WORLD_RANK' in os.environ\n"
            "os.write(1, f'rank {hvd.rank()} of {hvd.size()} {sys.argv[1:]} {by_mpi}\\n'.encode())\n"
        )
        settings = {
            "pythonScriptFilePath": f"{MOUNTED}/train.py",
            "pythonInterpreterPath": OTHER_USERS_PYTHON if os.geteuid() == 0 else sys.executable,
            "commandLineArgs": "--lr 'a b'",
            "processCount": 2,
        }
        packages = f"{ROOT / 'python'}:{sysconfig.get_path('purelib')}"
        variables = [{"name": "PYTHONPATH", "value": packages}]
        properties = {"nodeCount": 1, "environmentVariables": variables, "horovodSettings": settings}
        done = run_job(gyre, share, properties)
        assert done.returncode == 0, done.stderr
        lines = sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))
        assert lines == [f"rank {rank} of 2 ['--lr', 'a b'] True" for rank in range(2)], done.stdout


@pytest.mark.needs_programs("mpirun.openmpi")
def test_a_jobs_own_line_finds_its_single_node_with_open_mpi(gyre: Path) -> None:
    """Open MPI takes 127.0.0.2 for another machine; the shell that reaches it did not know where."""
    line = 'mpirun.openmpi -n 2 --oversubscribe --hostfile "$AZ_BATCHAI_MPI_HOST_FILE" pwd; ssh $AZ_BATCH_HOST_LIST pwd'
    with make_share() as share:
        done = run_job(gyre, share, {"nodeCount": 1, "customToolkitSettings": {"commandLine": line}}, "--quiet")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 3, done.stdout
    assert len(set(done.stdout.splitlines())) == 1, done.stdout


@pytest.mark.needs_programs("mpirun.openmpi")
def test_a_jobs_own_line_starts_open_mpi_on_two_nodes_every_time(gyre: Path) -> None:
    """The daemons of two virtual nodes shared a folder: four starts in thirty failed."""
    mpirun = (
        "mpirun.openmpi -n 2 --map-by node --hostfile $AZ_BATCHAI_MPI_HOST_FILE "
        "--mca btl_tcp_if_include lo --mca oob_tcp_if_include lo echo started"
    )
    line = f"for i in $(seq 30); do {mpirun} || exit; done"
    with make_share() as share:
        done = run_job(gyre, share, {"nodeCount": 2, "customToolkitSettings": {"commandLine": line}}, "--quiet")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["started"] * 60


@pytest.mark.needs_programs("mpiexec.hydra")
@pytest.mark.parametrize(
    ("breaks", "reason"),
    [
        (
            "echo libfabric.so.1 is missing >&2; exit 127",
            "exit code 127: the program, or a library of it, is not there",
        ),
        ("kill -9 $PPID", "its remote shell failed"),
    ],
    ids=["not_there", "out_of_reach"],
)
def test_a_job_whose_mpi_cannot_start_on_one_node_fails_with_the_node_and_the_reason(
    gyre: Path, breaks: str, reason: str
) -> None:
    """MPICH's mpiexec waits for ever for a proxy whose remote shell has failed."""
    start = f'[ $AZ_BATCH_IS_CURRENT_NODE_MASTER = true ] && exec {shutil.which("hydra_pmi_proxy")} "$@"'
    with make_share() as share:
        programs = dict.fromkeys(("mpirun", "mpiexec"), 'exec "${0%/*}/mpiexec.hydra" "$@"')
        add_programs(share, "mpich", {**programs, "hydra_pmi_proxy": f"{start}\n{breaks}"})
        # Proxies are looked for beside mpiexec.
        shutil.copy(shutil.which("mpiexec.hydra") or "", share / "mpich" / "mpiexec.hydra")
        properties = {
            "nodeCount": 2,
            "environmentVariables": [{"name": "PATH", "value": f"{MOUNTED}/mpich:$PATH"}],
            "customMpiSettings": {"commandLine": "echo started", "processCount": 4},
        }
        done = run_job(gyre, share, properties)
    assert done.returncode not in (0, 2), done.stdout + done.stderr
    failed = done.stderr.splitlines()[-1]
    assert "JobFailed" in failed
    assert "mpiexec's proxy on node node-" in failed
    assert "(127.0.0.3) could not be started" in failed
    assert reason in failed


# What the article's script does: the set-up of Intel MPI (its mpivars.sh), and the line as printed, up to the program.
ARTICLES_SCRIPT = """\
export I_MPI_ROOT={root} PATH={root}/bin:$PATH
export LD_LIBRARY_PATH={root}/lib:{root}/lib/libfabric FI_PROVIDER_PATH={root}/lib/libfabric/prov
mpirun -n $((NUM_NODES * PROCESSES_PER_NODE)) -ppn $PROCESSES_PER_NODE -hosts $AZ_BATCH_HOST_LIST \\
  -env I_MPI_FABRICS=dapl -env I_MPI_DAPL_PROVIDER=ofa-v2-ib0 -env I_MPI_DYNAMIC_CONNECTION=0 \\
  {program}"""
TELL = (
    "bash -c 'echo rank $PMI_RANK of $PMI_SIZE, $I_MPI_FABRICS $I_MPI_DAPL_PROVIDER $I_MPI_DYNAMIC_CONNECTION, "
    "${HOROVOD_TIMELINE##*/}, in $(cat name)'"
)


@needs_intel_mpi
def test_the_articles_own_mpirun_line_runs_with_intel_mpi_on_two_nodes(gyre: Path, tmp_path: Path) -> None:
    with make_share() as share:
        script(share, "job-prep.sh", "echo $AZ_BATCH_NODE_ID > name")
        steps = [TELL, "IMB-MPI1 -npmin 8 -msglog 19:20 -iter 5 allreduce"]
        text = "\n".join(ARTICLES_SCRIPT.format(root=INTEL_MPI, program=program) for program in steps)
        script(share, "run-cifar10.sh", f"set -e\n{text}")
        done = subprocess.run(
            [str(gyre), "job", "run", str(ARTICLE), "--mount", f"external={share}", "--quiet"],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    told = [line.split() for line in sorted(done.stdout.splitlines()) if line.startswith("rank ")]
    for rank, words in enumerate(told):
        expected = f"rank {rank} of 8, dapl ofa-v2-ib0 0, timeline.json, in"
        assert words[:-1] == expected.split(), done.stdout
    assert len(told) == 8, done.stdout
    nodes = [words[-1] for words in told]
    if (
        os.geteuid() == 0
    ):  # Else the nodes have no mount namespaces, and a script's mpirun starts all ranks in one folder.
        assert len(set(nodes[:4])) == len(set(nodes[4:])) == 1
        assert nodes[0] != nodes[4], done.stdout
    # Intel's benchmark of allreduce, over all ranks.
    assert "# #processes = 8" in done.stdout
    assert re.findall(r"^ *(\d+) +5 +[\d.]+ ", done.stdout, re.MULTILINE) == ["0", "524288", "1048576"]
