"""Jobs on a real Slurm of three nodes: the suite that every driver must pass, and `gyre job run` with a cluster."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from article_job import ARTICLE, SCRIPTS, make_share, script
from images import Storage, busybox_files
from job_server import JobServer
from job_shells import expect_shells_on
from running_job import wait_until
from slurm_cluster import slurm_cluster

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_programs("slurmctld", "slurmd", "munged", "sbatch")]


@pytest.fixture(scope="module")
def slurm() -> Iterator[tuple[Path, dict[str, str]]]:
    """A short folder, because sockets are made in it, that the jobs' user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="gyre-slurm-"))
    folder.chmod(0o755)
    try:
        with slurm_cluster(folder, nodes=3) as environment:
            yield folder, environment
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def names_in_the_suite() -> list[str]:
    """Each test of the program is one of pytest, so that each has its own line and its own limit."""
    program = suite()
    if not program.exists():
        return ["the program of the suite is not built"]
    listing = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True, timeout=60, check=True)
    names, group = [], ""
    for line in listing.stdout.splitlines():
        if not line.startswith(" "):
            group = line.split("#")[0].strip()
        else:
            names.append(group + line.split("#")[0].strip())
    return [name for name in names if "." in name]


def suite() -> Path:
    found = shutil.which("gyre")
    root = Path(found).resolve().parent.parent if found else Path(__file__).parents[2] / "build" / "release"
    return root / "gyre" / "jobs" / "drivers" / "gyre_jobs_slurm_test"


@pytest.mark.parametrize("name", names_in_the_suite())
def test_the_suite_of_all_drivers(slurm: tuple[Path, dict[str, str]], name: str) -> None:
    folder, environment = slurm
    done = subprocess.run(
        [suite(), f"--gtest_filter={name}"],
        env={**environment, "GYRE_TEST_SLURM": str(folder)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert "[  PASSED  ] 1 test." in done.stdout


def write_cluster(folder: Path, tmp_path: Path, share: Path, containers: str = "host", **options: str) -> Path:
    settings = {
        "driver": "slurm",
        "driverOptions": {
            "node_folder": str(folder / "local"),
            "address": "127.0.0.1",
            **options,
        },
        "mounts": {"external": str(share)},
        "containers": containers,
    }
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"properties": {"gyreSettings": settings}}))
    return file


def job_run(gyre: Path, environment: dict[str, str], cluster: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    path = f"{gyre.parent}:{os.environ['PATH']}"
    return subprocess.run(
        [str(gyre), "job", "run", str(ARTICLE), "--cluster", str(cluster)],
        env={**environment, "PATH": path, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_articles_job_runs_unchanged_on_slurm(
    gyre: Path, slurm: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """As the article's script does with mpirun: one command, expanded once, for four processes on each of two nodes."""
    folder, environment = slurm
    with make_share() as share:
        (share / SCRIPTS / "input").write_text("the input\n")
        script(share, "job-prep.sh", 'echo prepared; echo "$AZ_BATCH_NODE_ID" > "$AZ_BATCHAI_JOB_TEMP/name"')
        script(
            share,
            "run-cifar10.sh",
            'hosts=$(echo "$AZ_BATCH_HOST_LIST" | sed "s/,/:$PROCESSES_PER_NODE,/g"):$PROCESSES_PER_NODE\n'
            'echo {} > "$HOROVOD_TIMELINE"\n'
            'exec "$GYRE_PROGRAM" run -n $((NUM_NODES * PROCESSES_PER_NODE)) -H $hosts -- '
            'cat "$AZ_BATCHAI_INPUT_SCRIPTS/input" "$AZ_BATCHAI_JOB_TEMP/name"',
        )
        done = job_run(gyre, environment, write_cluster(folder, tmp_path, share), tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("the input\n") == 8, done.stdout
        # $AZ_BATCHAI_JOB_TEMP is each node's own under one path.
        names = {line.split()[-1] for line in done.stdout.splitlines() if "] node-" in line}
        assert len(names) == 2, done.stdout
        (timeline,) = share.glob(f"{SCRIPTS}/*/*/workspaces/*/experiments/*/jobs/job/*/outputs/timelines/timeline.json")
        assert timeline.read_text() == "{}\n"
        assert len(list(share.glob("storagedir/**/stdout-job_prep-*.txt"))) == 2
    assert [list(node.iterdir()) for node in (folder / "nodes").iterdir()] == [[], [], []]


def test_the_articles_training_runs_on_slurm(
    gyre: Path, slurm: tuple[Path, dict[str, str]], tmp_path: Path, digits: dict[str, bytes]
) -> None:
    """The whole way: CIFAR-10's program on two nodes of four processes, whose checkpoint lies in the job's output."""
    folder, environment = slurm
    with make_share() as share:
        data = share / SCRIPTS / "data" / "cifar-10-batches-py"
        for name, content in digits.items():
            (data / name).parent.mkdir(parents=True, exist_ok=True)
            (data / name).write_bytes(content)
        script(share, "job-prep.sh", "gyre-cifar10 --version")
        script(
            share,
            "run-cifar10.sh",
            'hosts=$(echo "$AZ_BATCH_HOST_LIST" | sed "s/,/:$PROCESSES_PER_NODE,/g"):$PROCESSES_PER_NODE\n'
            "export OMP_NUM_THREADS=1\n"
            'exec "$GYRE_PROGRAM" run -n $((NUM_NODES * PROCESSES_PER_NODE)) -H $hosts -- gyre-cifar10 '
            '--data-dir "$AZ_BATCHAI_INPUT_DATASET" --output-dir "$AZ_BATCHAI_OUTPUT_MODEL" --epochs 1 --batch-size 8',
        )
        done = job_run(gyre, environment, write_cluster(folder, tmp_path, share), tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "test accuracy" in done.stdout
        assert len(list(share.glob(f"{SCRIPTS}/**/outputs/models/checkpoints/*.safetensors"))) == 1


def test_a_jobs_exit_code_comes_back_from_slurm(gyre: Path, slurm: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    folder, environment = slurm
    with make_share() as share:
        script(share, "job-prep.sh", "true")
        script(share, "run-cifar10.sh", "echo tried; exit 7")
        done = job_run(gyre, environment, write_cluster(folder, tmp_path, share), tmp_path)
    assert done.returncode == 7, done.stderr
    assert "tried\n" in done.stdout


def test_a_server_finds_its_jobs_on_slurm_again_after_a_kill(
    gyre: Path, slurm: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    folder, environment = slurm
    server = JobServer(gyre, tmp_path)
    server.environment["SLURM_CONF"] = environment["SLURM_CONF"]
    share = "$AZ_BATCHAI_MOUNT_ROOT/external"
    try:
        server.start()
        cluster = write_cluster(folder, tmp_path, server.share)
        server.ok("cluster", "create", "pool", "-f", str(cluster), "--target", "2")
        line = f"touch {share}/runs; until [ -e {share}/go ]; do sleep 0.05; done; echo over; exit 3"
        server.ok("job", "submit", str(server.job_file(server.custom(line, nodes=2))), "--name", "again")
        wait_until("the job runs", (server.share / "runs").exists)
        server.restart(signal.SIGKILL)
        (server.share / "go").touch()
        assert server.verb("job", "wait", "again").returncode == 3
        assert "over\n" in server.ok("job", "logs", "again")
    finally:
        server.close()


def test_shells_lead_to_the_nodes_of_their_ranks_and_leave_nothing(
    gyre: Path, slurm: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    folder, environment = slurm
    server = JobServer(gyre, tmp_path)
    server.environment["SLURM_CONF"] = environment["SLURM_CONF"]
    nodes = sorted((folder / "nodes").iterdir())
    try:
        server.start()
        server.ok("cluster", "create", "pool", "-f", str(write_cluster(folder, tmp_path, server.share)), "-t", "2")
        expect_shells_on(server, "pool", nodes)
        wait_until("the nodes are clean", lambda: not any(list(node.iterdir()) for node in nodes))
    finally:
        server.close()


@pytest.mark.needs_programs("podman", "runc")
def test_jobs_run_in_containers_on_slurm_and_leave_none(
    gyre: Path, slurm: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """One on each node, with a preparation of its root; also of a job that is cancelled."""
    folder, environment = slurm
    storage = Storage(folder / "containers")
    server = JobServer(gyre, tmp_path)
    server.environment |= {"SLURM_CONF": environment["SLURM_CONF"], "GYRE_CONTAINERS": str(storage.folder)}
    share = "$AZ_BATCHAI_MOUNT_ROOT/external"

    def submit(name: str, line: str) -> None:
        properties = {
            "nodeCount": 2,
            "gyreSettings": {"program": ["sh", "-c", line]},
            "containerSettings": {"imageSourceRegistry": {"image": "localhost/gyre-test/slurm:1"}},
            "jobPreparation": {"commandLine": "id -u > /prepared && chown 7 /prepared"},
            "stdOutErrPathPrefix": share,
        }
        server.ok("job", "submit", str(server.job_file(properties)), "--name", name, "--cluster", "pool")

    try:
        storage.add("gyre-test/slurm:1", busybox_files({"etc/of-image": "made for a test\n"}))
        server.start()
        cluster = write_cluster(folder, tmp_path, server.share, containers="container")
        server.ok("cluster", "create", "pool", "-f", str(cluster), "--target", "2")
        submit("inside", "echo $(cat /etc/of-image /prepared)")
        code = server.verb("job", "wait", "inside").returncode
        assert code == 0, server.ok("job", "events", "inside")
        assert server.ok("job", "logs", "inside").count("made for a test 0") == 2
        submit("long", f'mkdir -p "{share}/up-$AZ_BATCH_NODE_ID"; sleep 1000')
        wait_until("both ranks run", lambda: len(list(server.share.glob("up-*"))) == 2)
        assert len(storage.containers()) == 2
        server.ok("job", "stop", "long")
        assert server.verb("job", "wait", "long").returncode != 0
        wait_until("no container is left", lambda: storage.containers() == [])
    finally:
        server.close()
        storage.remove()
    wait_until("the nodes are clean", lambda: not any(any(node.iterdir()) for node in (folder / "nodes").iterdir()))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"partition": "nowhere"}, "invalid partition specified: nowhere"),
        ({"gyre": "/no/such/gyre"}, "there is no '/no/such/gyre' on"),
        ({"partion": "all"}, "driverOptions.partion of driver 'slurm' is not known"),
        ({"shared_folder": "/no/such/folder"}, "/no/such/folder is not a directory"),
    ],
)
def test_what_is_wrong_with_the_cluster_is_said(
    gyre: Path, slurm: tuple[Path, dict[str, str]], tmp_path: Path, options: dict[str, str], words: str
) -> None:
    folder, environment = slurm
    with make_share() as share:
        script(share, "job-prep.sh", "true")
        script(share, "run-cifar10.sh", "true")
        done = job_run(gyre, environment, write_cluster(folder, tmp_path, share, **options), tmp_path)
    assert done.returncode != 0
    assert words in done.stderr, done.stderr
