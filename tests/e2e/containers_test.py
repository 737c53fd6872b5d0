"""Jobs in containers: a real podman, with an image made of this machine's busybox."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from images import Storage, busybox_files, why_no_podman
from job_server import JobServer
from registry import PASSWORD, USER, registry
from running_job import wait_until

IMAGE = "gyre-test/busybox:1"


@pytest.fixture(scope="module")
def storage() -> Iterator[Storage]:
    """With one image: busybox, a file of its own, and a variable."""
    reason = why_no_podman()
    assert not reason, f"{reason}: apt-get install podman runc busybox-static, and run the tests as root"
    with tempfile.TemporaryDirectory(prefix="gyre-images-", dir="/tmp") as folder:
        storage = Storage(Path(folder))
        storage.add(
            IMAGE, busybox_files({"etc/of-image": "made for a test\n"}), ["ENV WORLD=image", "ENTRYPOINT sleep"]
        )
        yield storage
        left = storage.containers()
        storage.remove()
        assert not left, f"left behind: {left}"
        Path(folder).mkdir(exist_ok=True)


@pytest.fixture
def pool(job_server: JobServer, storage: Storage) -> JobServer:
    job_server.environment["GYRE_CONTAINERS"] = str(storage.folder)
    job_server.start()
    job_server.ok("cluster", "create", "pool", "-t", "2", "--mount", f"external={job_server.share}")
    return job_server


def in_container(server: JobServer, line: str, nodes: int = 1, **settings: Any) -> dict[str, Any]:
    image = settings.pop("image", IMAGE)
    registry = settings.pop("registry", {})
    container = {"imageSourceRegistry": {"image": image, **registry}, **settings}
    return {**server.custom(line, nodes), "containerSettings": container}


def output_of(server: JobServer, name: str, stream: str = "stdout") -> str:
    return "".join(file.read_text() for file in sorted(server.share.glob(f"**/{name}*/**/{stream}*.txt")))


def ended(server: JobServer, name: str, properties: dict[str, Any]) -> dict[str, Any]:
    server.ok("job", "submit", str(server.job_file(properties, f"{name}.json")), "-n", name, "-c", "pool")
    server.verb("job", "wait", name)
    return server.json("job", "show", name)["properties"]  # type: ignore[no-any-return]


def test_a_job_runs_in_its_container_with_the_rights_of_its_account(pool: JobServer, storage: Storage) -> None:
    """Its root, which prepares it, is the job's account outside: what it writes on a mount belongs to that."""
    line = (
        'cat /etc/of-image /prepared; echo "$WORLD $(id -u) $AZ_BATCHAI_JOB_NAME"; '
        'echo x > "$AZ_BATCHAI_MOUNT_ROOT/external/made"'
    )
    properties = in_container(pool, line, shmSize="32m")
    properties["jobPreparation"] = {"commandLine": "id -u > /prepared && chown 7 /prepared && df /dev/shm"}
    job = ended(pool, "inside", properties)
    assert job["executionState"] == "succeeded", (job, pool.ok("job", "events", "inside"))
    events = pool.ok("job", "events", "inside")
    assert f"the job runs in a container of localhost/{IMAGE}" in events
    assert "the job left" not in events  # What held its processes was taken for some that it had left.
    [log] = list(pool.share.glob("**/stdout.txt"))
    assert log.read_text() == "made for a test\n0\nimage 0 inside\n"
    preparation = next(pool.share.glob("**/stdout-job_prep.txt")).read_text()
    assert "32768" in preparation
    made = pool.share / "made"
    assert made.stat().st_uid == log.stat().st_uid != 0
    assert storage.containers() == []


def test_what_a_job_returns_is_its_exit_code_and_what_it_prints_is_its_log(pool: JobServer) -> None:
    job = ended(pool, "fails", in_container(pool, "echo said >&2; exit 7"))
    assert job["executionState"] == "failed"
    assert job["executionInfo"]["exitCode"] == 7
    assert next(pool.share.glob("**/stderr.txt")).read_text() == "said\n"


def test_the_nodes_of_a_job_have_a_container_each_and_reach_each_other(pool: JobServer, storage: Storage) -> None:
    """The ssh of a job's PATH leads from one container into the other."""
    line = (
        'for host in $(echo "$AZ_BATCH_HOST_LIST" | sed "s/,/ /g"); do '
        'ssh "$host" \'echo "$AZ_BATCH_NODE_ID $(ls -d /proc/[0-9]* | wc -l)"\'; done'
    )
    job = ended(pool, "two", in_container(pool, line.replace("sed", "busybox sed").replace("wc", "busybox wc"), 2))
    assert job["executionState"] == "succeeded", (output_of(pool, "", "stderr"), pool.ok("job", "events", "two"))
    said = next(pool.share.glob("**/stdout.txt")).read_text().split()
    assert len(set(said[0::2])) == 2
    assert all(int(count) < 20 for count in said[1::2])  # Processes of its own container alone.
    assert storage.containers() == []


def test_a_container_outlives_a_killed_agent_and_not_its_job(pool: JobServer, storage: Storage) -> None:
    """The job goes on while its agent starts again, and is ended as any other."""
    name = "outlives"
    share = '"$AZ_BATCHAI_MOUNT_ROOT/external'
    line = f'echo begun >> {share}/begun"; while [ ! -e {share}/go" ]; do sleep 0.05; done; echo over'
    pool.ok("job", "submit", str(pool.job_file(in_container(pool, line))), "-n", name, "-c", "pool")
    wait_until("the job runs", (pool.share / "begun").exists)
    [container] = storage.containers()
    assert container.startswith("gyre-")
    lock = next(pool.folder.glob("nodes/*/agent/current.json")).parents[1] / "agent.lock"
    os.kill(int(lock.read_text()), signal.SIGKILL)
    (pool.share / "go").touch()
    pool.verb("job", "wait", name)
    job = pool.json("job", "show", name)["properties"]
    assert job["executionState"] == "succeeded", pool.ok("job", "events", name)
    assert (pool.share / "begun").read_text() == "begun\n"
    wait_until("its container has gone", lambda: storage.containers() == [])


def test_a_job_that_is_ended_takes_its_container_along(pool: JobServer, storage: Storage) -> None:
    line = 'touch() { : > "$1"; }; touch "$AZ_BATCHAI_MOUNT_ROOT/external/up"; sleep 1000'
    pool.ok("job", "submit", str(pool.job_file(in_container(pool, line))), "-n", "long", "-c", "pool")
    wait_until("the job runs", (pool.share / "up").exists)
    assert len(storage.containers()) == 1
    pool.ok("job", "stop", "long")
    pool.verb("job", "wait", "long")
    wait_until("its container has gone", lambda: storage.containers() == [])


def test_a_private_registry_gives_its_image_to_whoever_has_the_password(
    job_server: JobServer, storage: Storage, tmp_path: Path
) -> None:
    """What its tag leads to at the submission is what runs. What cannot run is refused then, in one sentence."""
    with registry(tmp_path) as (name, certificate):
        wait_until(
            "the registry takes an image",
            lambda: storage.push(IMAGE, f"{name}/team/train:1", f"{USER}:{PASSWORD}", certificate),
        )
        job_server.environment |= {"GYRE_CONTAINERS": str(storage.folder), "SSL_CERT_FILE": str(certificate)}
        job_server.start()
        job_server.ok("cluster", "create", "pool", "-t", "1", "--mount", f"external={job_server.share}")

        def job(image: str, password: str, line: str = "cat /etc/of-image") -> dict[str, Any]:
            source = {"serverUrl": name, "credentials": {"username": USER, "password": password}}
            return in_container(job_server, line, image=image, registry=source)

        def refusal(image: str, password: str) -> str:
            file = str(job_server.job_file(job(image, password), "refused.json"))
            refused = job_server.verb("job", "submit", file, "-n", "refused", "-c", "pool")
            assert refused.returncode != 0
            return refused.stderr

        assert f"the registry {name} refuses user '{USER}'" in refusal("team/train:1", "guess")
        assert f"the registry {name} has no image {name}/team/other:1" in refusal("team/other:1", PASSWORD)
        storage.podman("import", "--arch", "s390x", "-", "other/arch:1", stdin=busybox_files())
        storage.push("other/arch:1", f"{name}/team/arch:1", f"{USER}:{PASSWORD}", certificate)
        assert f"the image {name}/team/arch:1 is for s390x processors" in refusal("team/arch:1", PASSWORD)

        waits = str(
            job_server.job_file(job_server.custom(f"while [ ! -e {job_server.share}/go ]; do sleep 0.05; done"))
        )
        job_server.ok("job", "submit", waits, "-n", "before", "-c", "pool")
        file = str(job_server.job_file(job("team/train:1", PASSWORD), "pinned.json"))
        job_server.ok("job", "submit", file, "-n", "pinned", "-c", "pool")
        shown = job_server.json("job", "show", "pinned")["properties"]["containerSettings"]["imageSourceRegistry"]
        assert f"{name}/team/train:1@{shown['digest']}" in job_server.ok("job", "show", "pinned")
        # The tag leads elsewhere by the time the job begins.
        storage.add("other/later:1", busybox_files({"etc/of-image": "made later\n"}))
        storage.push("other/later:1", f"{name}/team/train:1", f"{USER}:{PASSWORD}", certificate)
        (job_server.share / "go").touch()
        job_server.verb("job", "wait", "pinned")
        events = job_server.ok("job", "events", "pinned")
        assert job_server.json("job", "show", "pinned")["properties"]["executionState"] == "succeeded", events
        assert f"runs in a container of {name}/team/train:1@{shown['digest']}" in events
        assert output_of(job_server, "pinned") == "made for a test\n"
        # The same submission again is the same job.
        job_server.ok("job", "submit", file, "-n", "pinned", "-c", "pool")
        pulled = job_server.verb("image", "pull", file, "-c", "pool")
        assert pulled.returncode == 0, pulled.stderr
        assert "fetches the image team/train:1" in pulled.stderr
        assert f"{name}/team/train:1@sha256:" in pulled.stdout
        assert shown["digest"] not in pulled.stdout
        refused = job_server.verb("image", "pull", "pinned")
        assert "known to the server alone; give the job file" in refused.stderr
    for file in job_server.folder.glob("nodes/*/agent/agent.log"):
        assert PASSWORD not in file.read_text()


def test_a_containers_memory_and_cores_are_the_jobs(pool: JobServer) -> None:
    """The kernel enforces them, and its kill is named."""
    line = "busybox dd if=/dev/zero of=/dev/null bs=200M count=1"
    properties = {**in_container(pool, line), "memoryPerNode": "64m", "cpusPerNode": 1}
    own = "$(busybox sed -n 's/.*:cpu://p' /proc/self/cgroup)"
    quota = f"cat /sys/fs/cgroup/cpu{own}/cpu.cfs_quota_us /sys/fs/cgroup/cpu.max || true"
    properties["jobPreparation"] = {"commandLine": quota}
    job = ended(pool, "greedy", properties)
    [error] = job["executionInfo"]["errors"]
    assert "the kernel killed it because the job reached its memory limit" in error["message"]
    assert "memoryPerNode 64m" in error["message"]
    assert "100000" in next(pool.share.glob("**/stdout-job_prep.txt")).read_text()
    assert "is not enforced" not in pool.ok("job", "events", "greedy")


def test_a_job_has_the_world_that_an_image_sets_up_in_its_bashrc(pool: JobServer, storage: Storage) -> None:
    """As images do that were made by hand; their file leaves shells that are not interactive alone."""
    bashrc = "case $- in *i*) ;; *) return ;; esac\nexport FROM=bashrc\n"
    storage.add("gyre-test/bash:1", busybox_files({"root/.bashrc": bashrc}, [Path("/bin/bash")]))
    for name, settings, said in (("plain", {}, "\n"), ("read", {"readBashrc": True}, "bashrc\n")):
        job = ended(pool, name, in_container(pool, 'echo "$FROM"', image="gyre-test/bash:1", **settings))
        assert job["executionState"] == "succeeded", (job, output_of(pool, name, "stderr"))
        assert output_of(pool, name) == said


def test_a_server_without_podman_says_so_when_the_job_is_submitted(pool: JobServer, tmp_path: Path) -> None:
    pool.end()
    pool.environment["PATH"] = f"{pool.gyre.parent}:{tmp_path}"
    pool.start()
    refused = pool.verb("job", "submit", str(pool.job_file(in_container(pool, "true"))), "-c", "pool")
    assert refused.returncode != 0
    assert "this machine has no podman, which starts the containers of jobs; install it" in refused.stderr


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"image": "127.0.0.1:1/none:1"}, "cannot reach the registry 127.0.0.1:1"),
        ({"shmSize": "900000gb"}, "its shmSize is 900000gb, and the job may have"),
    ],
)
def test_what_keeps_a_container_from_starting_is_one_sentence_before_anything_runs(
    pool: JobServer, settings: dict[str, Any], sentence: str
) -> None:
    job = ended(pool, "never", in_container(pool, "echo ran", **settings))
    assert job["executionState"] == "failed"
    assert sentence in str(job["executionInfo"]["errors"])
    assert "ran" not in output_of(pool, "")


def test_a_shell_in_a_job_is_in_its_container_and_goes_with_it(pool: JobServer, storage: Storage) -> None:
    line = 'touch "$AZ_BATCHAI_MOUNT_ROOT/external/begun"; sleep 1000'
    pool.ok("job", "submit", str(pool.job_file(in_container(pool, line))), "-n", "looked-into", "-c", "pool")
    wait_until("the job runs", (pool.share / "begun").exists)
    inside = "cat /etc/of-image; echo $WORLD $(id -u) $AZ_BATCHAI_JOB_NAME; echo bad >&2; exit 3"
    done = pool.verb("job", "shell", "looked-into", "--", "sh", "-c", inside)
    assert (done.stdout, done.stderr) == ("made for a test\nimage 0 looked-into\n", "bad\n")
    assert done.returncode == 3
    on_terminal = pool.verb("job", "shell", "looked-into", "-t", "--", "sh", "-c", "[ -t 0 ] && [ -t 1 ] && echo yes")
    assert on_terminal.stdout == "yes\n"
    open_shell = pool.start_verb("job", "shell", "looked-into", "--", "sh", "-c", "echo begun; sleep 1000")
    assert open_shell.stdout is not None
    assert open_shell.stdout.readline() == b"begun\n"
    pool.ok("job", "stop", "looked-into")
    _, said = open_shell.communicate(timeout=60)
    assert open_shell.returncode == 125, said
    pool.verb("job", "wait", "looked-into")
    assert "left" not in pool.ok("job", "events", "looked-into")
    assert storage.containers() == []
