"""Jobs whose processes MPI starts: the real Open MPI and MPICH, over the job's own remote shell instead of sshd."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from article_job import make_share

# What both launchers tell their ranks, and what each rank must find of the job and of its own node.
LINE = (
    "echo rank ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} of ${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE} on $AZ_BATCH_NODE_ID "
    "has $OWN and $TOKEN at $AZ_BATCHAI_INPUT_DATA"
)


@pytest.mark.parametrize(
    ("launcher", "program"),
    [
        pytest.param("openmpi", "mpirun.openmpi", marks=pytest.mark.needs_programs("mpirun.openmpi")),
        pytest.param("mpich", "mpiexec.hydra", marks=pytest.mark.needs_programs("mpiexec.hydra")),
    ],
)
def test_mpi_starts_ranks_on_all_nodes_and_each_has_the_jobs_and_its_nodes_variables(
    gyre: Path, tmp_path: Path, launcher: str, program: str
) -> None:
    with make_share() as share:
        programs = share / launcher
        programs.mkdir()
        programs.chmod(0o755)
        for name in ("mpirun", "mpiexec"):
            (programs / name).write_text(f'#!/bin/sh\nexec {program} "$@"\n')
            (programs / name).chmod(0o755)
        mounted = "$AZ_BATCHAI_MOUNT_ROOT/external"
        properties = {
            "nodeCount": 2,
            "environmentVariables": [
                {"name": "PATH", "value": f"{mounted}/{launcher}:$PATH"},
                {"name": "OWN", "value": "$AZ_BATCHAI_JOB_NAME's"},
            ],
            "secrets": [{"name": "TOKEN", "value": "hunter2secret"}],
            "inputDirectories": [{"id": "DATA", "path": f"{mounted}/data"}],
            "customMpiSettings": {"commandLine": LINE, "processCount": 4},
            "stdOutErrPathPrefix": mounted,
        }
        file = tmp_path / "mpi.json"
        file.write_text(json.dumps({"properties": properties}))
        done = subprocess.run(
            [str(gyre), "job", "run", str(file), "--mount", f"external={share}", "--quiet"],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    said = sorted(line.split() for line in done.stdout.splitlines())
    assert [words[1] for words in said] == ["0", "1", "2", "3"], done.stdout
    nodes = [words[5] for words in said]
    assert nodes[0] == nodes[1] != nodes[2] == nodes[3], done.stdout
    for words in said:
        assert words[3] == "4"
        assert words[7:10] == ["mpi's", "and", "***"], done.stdout
        assert words[11].endswith("/external/data")


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
    gyre: Path, tmp_path: Path, breaks: str, reason: str
) -> None:
    """MPICH's mpiexec waits for ever for a proxy whose remote shell has failed."""
    with make_share() as share:
        programs = share / "mpich"
        programs.mkdir()
        programs.chmod(0o755)
        # Proxies are looked for beside mpiexec.
        shutil.copy(shutil.which("mpiexec.hydra") or "", programs / "mpiexec.hydra")
        start = f'[ $AZ_BATCH_IS_CURRENT_NODE_MASTER = true ] && exec {shutil.which("hydra_pmi_proxy")} "$@"'
        for name, text in {
            "mpirun": 'exec "${0%/*}/mpiexec.hydra" "$@"',
            "mpiexec": 'exec "${0%/*}/mpiexec.hydra" "$@"',
            "hydra_pmi_proxy": f"{start}\n{breaks}",
        }.items():
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
        mounted = "$AZ_BATCHAI_MOUNT_ROOT/external"
        properties = {
            "nodeCount": 2,
            "environmentVariables": [{"name": "PATH", "value": f"{mounted}/mpich:$PATH"}],
            "customMpiSettings": {"commandLine": "echo started", "processCount": 4},
            "stdOutErrPathPrefix": mounted,
        }
        file = tmp_path / "mpi.json"
        file.write_text(json.dumps({"properties": properties}))
        done = subprocess.run(
            [str(gyre), "job", "run", str(file), "--mount", f"external={share}"],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode not in (0, 2), done.stdout + done.stderr
    failed = done.stderr.splitlines()[-1]
    assert "JobFailed" in failed
    assert "mpiexec's proxy on node node-" in failed
    assert "(127.0.0.3) could not be started" in failed
    assert reason in failed
