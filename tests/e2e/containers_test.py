"""Jobs in containers: a real podman, and a real docker, with an image made of this machine's busybox."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker_daemon import DockerStorage, why_no_docker
from images import Storage, busybox_files, why_no_podman
from job_server import JobServer
from registry import PASSWORD, USER, registry
from running_job import wait_until

IMAGE = "gyre-test/busybox:1"


# Docker where it is installed: ./dev setup does not, because its daemon changes the machine's network.
PROGRAMS = ["podman"] if why_no_docker() else ["podman", "docker"]


@pytest.fixture(scope="module", params=PROGRAMS)
def storage(request: pytest.FixtureRequest) -> Iterator[Storage | DockerStorage]:
    """With one image: busybox, a file of its own, and a variable."""
    reason = why_no_podman()
    assert not reason, f"{reason}: apt-get install podman runc busybox-static, and run the tests as root"
    with tempfile.TemporaryDirectory(prefix="gyre-images-", dir="/tmp") as folder:
        storage = DockerStorage(Path(folder)) if request.param == "docker" else Storage(Path(folder))
        storage.add(
            IMAGE, busybox_files({"etc/of-image": "made for a test\n"}), ["ENV WORLD=image", "ENTRYPOINT sleep"]
        )
        yield storage
        left = storage.containers()
        storage.remove()
        assert not left, f"left behind: {left}"
        Path(folder).mkdir(exist_ok=True)


@pytest.fixture
def pool(job_server: JobServer, storage: Storage | DockerStorage) -> JobServer:
    job_server.environment |= storage.settings
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


def test_a_job_runs_in_its_container_with_the_rights_of_its_account(
    pool: JobServer, storage: Storage | DockerStorage
) -> None:
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


def test_the_nodes_of_a_job_have_a_container_each_and_reach_each_other(
    pool: JobServer, storage: Storage | DockerStorage
) -> None:
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


def test_a_container_outlives_a_killed_agent_and_not_its_job(pool: JobServer, storage: Storage | DockerStorage) -> None:
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


VERBS = ("container", "image", "ps", "pull", "rm", "run")


def count_podman(server: JobServer, folder: Path) -> Path:
    """The server finds a podman that writes down which of VERBS it is asked for; returns the list."""
    calls, program = folder / "calls", folder / "podman"
    verbs = "|".join(VERBS)
    note = f'for word; do case $word in {verbs}) echo "$word" >> {calls}; break ;; esac; done'
    program.write_text(f'#!/bin/sh\n{note}\nexec {shutil.which("podman")} "$@"\n')
    program.chmod(0o755)
    server.environment["PATH"] = f"{folder}:{server.environment['PATH']}"
    return calls


@pytest.mark.parametrize("storage", ["podman"], indirect=True)
def test_an_image_that_was_used_before_costs_one_podman_on_each_node(
    job_server: JobServer, storage: Storage, tmp_path: Path
) -> None:
    """Each takes a tenth of a second of a processor before the job's first line, and nodes of a machine share those.
    What a name means is asked again as soon as any image has changed."""
    (tmp_path / "programs").mkdir()
    calls = count_podman(job_server, tmp_path / "programs")
    job_server.environment |= storage.settings
    job_server.start()
    job_server.ok("cluster", "create", "pool", "-t", "2", "--mount", f"external={job_server.share}")

    def calls_of(name: str, nodes: int, image: str) -> list[str]:
        calls.write_text("")
        line = "cat /etc/of-image"
        job = ended(job_server, name, in_container(job_server, line, nodes, image=image, shmSize="32m"))
        assert job["executionState"] == "succeeded", job_server.ok("job", "events", name)
        return calls.read_text().split()

    storage.add("gyre-test/counted:1", busybox_files({"etc/of-image": "the first\n"}))
    assert "image" in calls_of("first", 2, "gyre-test/counted:1")
    calls_of("second", 2, "gyre-test/counted:1")  # The first container of an account changes its image's entry.
    assert sorted(calls_of("third", 2, "gyre-test/counted:1")) == ["rm", "rm", "run", "run"]
    storage.add("gyre-test/counted:1", busybox_files({"etc/of-image": "the second\n"}))
    calls_of("fourth", 1, "gyre-test/counted:1")
    assert output_of(job_server, "fourth") == "the second\n"
    assert storage.containers() == []


def test_a_job_that_is_ended_takes_its_container_along(pool: JobServer, storage: Storage | DockerStorage) -> None:
    line = 'touch() { : > "$1"; }; touch "$AZ_BATCHAI_MOUNT_ROOT/external/up"; sleep 1000'
    pool.ok("job", "submit", str(pool.job_file(in_container(pool, line))), "-n", "long", "-c", "pool")
    wait_until("the job runs", (pool.share / "up").exists)
    assert len(storage.containers()) == 1
    pool.ok("job", "stop", "long")
    pool.verb("job", "wait", "long")
    wait_until("its container has gone", lambda: storage.containers() == [])


def test_a_private_registry_gives_its_image_to_whoever_has_the_password(
    job_server: JobServer, storage: Storage | DockerStorage, tmp_path: Path
) -> None:
    """What its tag leads to at the submission is what runs. What cannot run is refused then, in one sentence."""
    with registry(tmp_path) as (name, certificate):
        wait_until(
            "the registry takes an image",
            lambda: storage.push(IMAGE, f"{name}/team/train:1", f"{USER}:{PASSWORD}", certificate),
        )
        job_server.environment |= {**storage.settings, "SSL_CERT_FILE": str(certificate)}
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
        storage.add("other/arch:1", busybox_files(), architecture="s390x")
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
    assert storage.credentials() == []


def test_a_containers_memory_and_cores_are_the_jobs(pool: JobServer) -> None:
    """The kernel enforces them, and its kill is named."""
    line = "busybox dd if=/dev/zero of=/dev/null bs=200M count=1"
    properties = {**in_container(pool, line), "memoryPerNode": "64m", "cpusPerNode": 1}
    own = "$(busybox sed -n 's/.*:cpu://p' /proc/self/cgroup)"
    places = (f"cpu{own}/cpu.cfs_quota_us", "cpu/cpu.cfs_quota_us", "cpu.max")
    quota = f"cat {' '.join('/sys/fs/cgroup/' + place for place in places)} || true"
    properties["jobPreparation"] = {"commandLine": quota}
    job = ended(pool, "greedy", properties)
    [error] = job["executionInfo"]["errors"]
    assert "the kernel killed it because the job reached its memory limit" in error["message"]
    assert "memoryPerNode 64m" in error["message"]
    assert "100000" in next(pool.share.glob("**/stdout-job_prep.txt")).read_text()
    assert "is not enforced" not in pool.ok("job", "events", "greedy")


def test_a_limit_of_memory_that_ends_the_container_itself_is_named(pool: JobServer) -> None:
    """Its first process is Gyre's, and what it takes along may still count. The job fails by itself, once."""
    line = "echo 1000 > /proc/1/oom_score_adj; busybox dd if=/dev/zero of=/dev/null bs=200M count=1; sleep 1000"
    job = ended(pool, "greedy", {**in_container(pool, line), "memoryPerNode": "64m"})
    [error] = job["executionInfo"]["errors"]
    assert error["code"] == "JobFailed"
    killed = r"the kernel killed (one|\d+) of its processes because the job reached its memory limit on node \S+, "
    assert re.search(killed + "memoryPerNode 64m", error["message"]), error
    assert job["executionInfo"]["exitCode"] == 137
    assert "attempt 2" not in pool.ok("job", "events", "greedy")


@pytest.mark.parametrize(
    ("missing", "settings", "sentence"),
    [
        ("/usr/bin/env", {}, "has no /usr/bin/env; jobs run their commands in a shell of the image"),
        ("/bin/sh", {}, "has neither /bin/bash nor /bin/sh"),
        ("", {"readBashrc": True}, "has no /bin/bash, which readBashrc needs"),
    ],
)
def test_an_image_without_what_jobs_need_is_named(
    pool: JobServer, storage: Storage | DockerStorage, missing: str, settings: dict[str, Any], sentence: str
) -> None:
    """The job is not tried again: no other attempt would have another image."""
    image = "gyre-test/lacking:1"
    storage.add(image, busybox_files(without=missing))
    job = ended(pool, "lacking", in_container(pool, "echo ran", image=image, **settings))
    [error] = job["executionInfo"]["errors"]
    assert error["code"] == "ContainerNotStarted", error
    assert f"its image {image} {sentence}" in error["message"]
    assert "attempt 2" not in pool.ok("job", "events", "lacking")
    assert storage.containers() == []


def test_a_job_has_the_world_that_an_image_sets_up_in_its_bashrc(
    pool: JobServer, storage: Storage | DockerStorage
) -> None:
    """As images do that were made by hand; their file leaves shells that are not interactive alone."""
    bashrc = "case $- in *i*) ;; *) return ;; esac\nexport FROM=bashrc\n"
    storage.add("gyre-test/bash:1", busybox_files({"root/.bashrc": bashrc}, [Path("/bin/bash")]))
    for name, settings, said in (("plain", {}, "\n"), ("read", {"readBashrc": True}, "bashrc\n")):
        job = ended(pool, name, in_container(pool, 'echo "$FROM"', image="gyre-test/bash:1", **settings))
        assert job["executionState"] == "succeeded", (job, output_of(pool, name, "stderr"))
        assert output_of(pool, name) == said


def test_a_server_without_podman_or_docker_says_so_when_the_job_is_submitted(pool: JobServer, tmp_path: Path) -> None:
    pool.end()
    pool.environment["PATH"] = f"{pool.gyre.parent}:{tmp_path}"
    pool.start()
    refused = pool.verb("job", "submit", str(pool.job_file(in_container(pool, "true"))), "-c", "pool")
    assert refused.returncode != 0
    wanted = pool.environment.get("GYRE_CONTAINER_PROGRAM", "podman")
    assert f"this machine has no {wanted}, which" in refused.stderr
    assert "install it (`apt-get install" in refused.stderr


@pytest.mark.parametrize("storage", PROGRAMS[:1], indirect=True)
def test_a_server_that_root_does_not_run_says_so_when_the_job_is_submitted(
    gyre: Path, tmp_path: Path, storage: Storage
) -> None:
    """It has no rights to start a container, which no attempt could change."""
    server = JobServer(gyre, tmp_path, {"gyre-other": 64_321}, run_as="gyre-other")
    server.environment |= storage.settings
    try:
        server.start()
        server.ok("cluster", "create", "pool", "-t", "1")
        file = server.share / "job.json"
        file.write_text(json.dumps({"properties": in_container(server, "true")}))
        refused = server.verb("job", "submit", str(file), "-c", "pool")
        assert refused.returncode == 1
        assert "containers need a server that root runs; or run such jobs on the host" in refused.stderr
        assert server.json("job", "list") == []
    finally:
        server.close()


def test_an_image_of_the_machines_own_that_it_lacks_is_refused_when_the_job_is_submitted(pool: JobServer) -> None:
    job = in_container(pool, "true", image="localhost/gyre-test/busibox:1")
    refused = pool.verb("job", "submit", str(pool.job_file(job)), "-c", "pool")
    assert refused.returncode == 1
    assert "this machine has no image localhost/gyre-test/busibox:1; make it, or load it" in refused.stderr
    assert pool.json("job", "list") == []


@pytest.mark.parametrize("storage", PROGRAMS[1:], indirect=True)
def test_docker_is_taken_where_there_is_no_podman(pool: JobServer, tmp_path: Path) -> None:
    """Nobody has chosen it. Images of jobs are not built with it: its builds have the rights of the machine's root."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in pool.environment["PATH"].split(":")[::-1]:
        for program in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if program.name != "podman":
                (programs / program.name).unlink(missing_ok=True)
                (programs / program.name).symlink_to(program)
    pool.end()
    pool.environment["PATH"] = f"{pool.gyre.parent}:{programs}"
    del pool.environment["GYRE_CONTAINER_PROGRAM"]
    pool.start()
    job = ended(pool, "docker", in_container(pool, "cat /etc/of-image"))
    assert job["executionState"] == "succeeded", (job, pool.ok("job", "events", "docker"))
    assert output_of(pool, "docker") == "made for a test\n"
    built = in_container(pool, "true", build={"requirements": ["numpy"]})
    job = ended(pool, "built", built)
    assert "images of jobs are built by podman" in str(job["executionInfo"]["errors"])


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


def test_a_shell_in_a_job_is_in_its_container_and_goes_with_it(
    pool: JobServer, storage: Storage | DockerStorage
) -> None:
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


SPY = """
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void look(void) {
  char map[256];
  int from = open("/proc/self/uid_map", O_RDONLY), to = open("/seen", O_WRONLY | O_CREAT | O_APPEND, 0666);
  long count = read(from, map, sizeof map);
  if (count > 0 && write(to, map, count) == count) close(to);
}
"""


def test_an_image_cannot_run_anything_as_the_machines_root(
    pool: JobServer, storage: Storage | DockerStorage, tmp_path: Path
) -> None:
    """Its variables and its files name libraries for every program. With docker the first one is root for a moment."""
    library = tmp_path / "spy.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, "-x", "c", "-"], input=SPY.encode(), check=True)
    files = {"lib/spy.so": library.read_bytes(), "etc/ld.so.preload": "/lib/spy.so\n"}
    changes = ["ENV LD_PRELOAD=/lib/spy.so", "ENV LD_LIBRARY_PATH=/lib"]
    storage.add("gyre-test/spy:1", busybox_files(files), changes)
    job = ended(pool, "spied", in_container(pool, 'cat /seen; echo "$LD_LIBRARY_PATH"', image="gyre-test/spy:1"))
    assert job["executionState"] == "succeeded", (job, pool.ok("job", "events", "spied"))
    *maps, path = output_of(pool, "spied").splitlines()
    assert path == "/lib"
    roots = {tuple(line.split()) for line in maps if line.split()[0] == "0"}
    assert len(roots) == 1, roots  # The job's account; 0 would be the machine's root.
    assert roots.pop()[1] != "0"
