"""`gyre.workers` with an image: each worker is a job in a container of a real podman."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker_daemon import DockerStorage, why_no_docker
from gyre.errors import InvalidArgumentError, NotFoundError, UnsupportedError
from images import Storage, busybox_files
from job_server import JobServer
from registry import PASSWORD, USER, registry
from running_job import wait_until
from worker_session import PACKAGE, processes_with, worker_session

from gyre import workers
from gyre.jobs import ServerError

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_programs("podman", "runc", "skopeo", "docker-registry", "htpasswd"),
]

LONG = 120.0
IMAGE = "gyre-test/workers:1"
PYTHON_PACKAGES = ("python3-minimal", "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib")
SLEEP = "import time; time.sleep(1000)"


# Docker where it is installed, as in containers_test.py.
PROGRAMS = ["podman"] if why_no_docker() else ["podman", "docker"]


@pytest.fixture(scope="module")
def storage(request: pytest.FixtureRequest) -> Iterator[Storage | DockerStorage]:
    """Podman's, unless the test asks for docker's. With this machine's Python and busybox in an image, and a file and a
    variable of its own."""
    with tempfile.TemporaryDirectory(prefix="gyre-images-", dir="/tmp") as folder:
        wants_docker = getattr(request, "param", "podman") == "docker"
        storage = DockerStorage(Path(folder)) if wants_docker else Storage(Path(folder))
        files = busybox_files({"etc/of-image": "made for a test"}, packages=PYTHON_PACKAGES)
        storage.add(IMAGE, files, ["ENV WORLD=image", "ENTRYPOINT false"])
        storage.add("gyre-test/no-python:1", busybox_files())
        storage.add("gyre-test/arch:1", busybox_files(), architecture="s390x")
        yield storage
        left = storage.containers()
        storage.remove()
        assert not left, f"left behind: {left}"
        Path(folder).mkdir(exist_ok=True)


@pytest.fixture
def server(
    gyre: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evidence: list[Path], storage: Storage | DockerStorage
) -> Iterator[JobServer]:
    """With a cluster of two nodes, which mounts the server's share; the session is in a folder of that."""
    with worker_session(gyre, tmp_path, monkeypatch):
        server = JobServer(gyre, tmp_path)
        evidence.append(server.log)
        server.environment |= storage.settings
        server.start()
        server.ok("cluster", "create", "pool", "-t", "2", "--mount", f"external={server.share}")
        folder = server.share / "search"
        folder.mkdir()
        folder.chmod(0o777)
        monkeypatch.chdir(folder)
        yield server
        workers.stop_workers()
        wait_until("no container is left", lambda: storage.containers() == [])
        server.close()


@pytest.fixture
def contained(server: JobServer) -> dict[str, Any]:
    return {"cpu": 1, "memory": 0.5, "server": str(server.folder / "server.json"), "image": IMAGE}


def failure_of(launched: list[dict[str, Any]]) -> dict[str, Any]:
    result = workers.await_workers(launched, timeout_seconds=LONG)
    assert result["workers"] == []
    [failure] = result["failures"]
    return failure


def test_a_worker_runs_in_its_image_with_its_limits_and_its_output_here(
    contained: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    code = (
        "import os, sys\n"
        "print(open('/etc/of-image').read(), os.environ['WORLD'], os.environ['A'], os.getuid(), sys.executable)\n"
        "print(len([name for name in os.listdir('/proc') if name.isdigit()]) < 20)\n"
        "print('err', file=sys.stderr)\n"
        "!echo $CDSW_ENGINE_ID\n"
    )
    launched = workers.launch_workers(1, **contained, code=code, env={"A": "b"})
    assert launched[0]["limits"] == "memory 0.5 GB, 1 core by the container's cgroup"
    result = workers.await_workers(launched, timeout_seconds=LONG)
    assert [one["status"] for one in result["workers"]] == ["succeeded"], result
    shown = capfd.readouterr()
    assert "[worker-0] made for a test image b 0 /usr/bin/python3" in shown.out.splitlines()
    assert {"[worker-0] True", "[worker-0] worker-0"} <= set(shown.out.splitlines())
    assert "[worker-0] err" in shown.err.splitlines()


@pytest.mark.parametrize("storage", PROGRAMS, indirect=True)
def test_two_workers_exchange_with_their_parent(contained: dict[str, Any]) -> None:
    """Over the network, which is the machine's, and through the folder that all of them know under one path. A script
    imports what lies next to it."""
    folder = Path.cwd()
    (folder / "helper.py").write_text("def answer(text):\n    return text.upper()\n")
    (folder / "talk.py").write_text(
        "import os, socket, helper\n"
        "own = os.environ['CDSW_ENGINE_ID']\n"
        "with socket.create_connection((os.environ['CDSW_MASTER_IP'], int(os.environ['PORT']))) as parent:\n"
        "    parent.sendall(own.encode() + b'\\n')\n"
        "    said = parent.makefile().readline().strip()\n"
        f"with open({str(folder)!r} + '/' + own, 'w') as file:\n"
        "    file.write(helper.answer(said) + open('question').read())\n"
    )
    (folder / "question").write_text("?")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LONG)
        port = str(listener.getsockname()[1])
        launched = workers.launch_workers(2, **contained, script="talk.py", env={"PORT": port})
        for _ in launched:
            connection, _ = listener.accept()
            with connection:
                name = connection.makefile().readline().strip()
                connection.sendall(f"hello {name}\n".encode())
    result = workers.await_workers(launched, timeout_seconds=LONG)
    assert [one["status"] for one in result["workers"]] == ["succeeded"] * 2, result
    assert [(folder / f"worker-{number}").read_text() for number in (0, 1)] == ["HELLO WORKER-0?", "HELLO WORKER-1?"]


def test_a_worker_that_dies_says_how_and_the_other_goes_on(contained: dict[str, Any]) -> None:
    kills_itself = "import os, signal\nprint('last words')\nos.kill(os.getpid(), signal.SIGKILL)"
    other = workers.launch_workers(1, **contained, code=SLEEP)
    failure = failure_of(workers.launch_workers(1, **contained, code=kills_itself))
    assert (failure["phase"], failure["signal"], failure["message"]) == ("run", "SIGKILL", "it was killed by SIGKILL")
    assert failure["last_log_lines"] == ["last words"]
    failure = failure_of(workers.launch_workers(1, **contained, code="exit(3)"))
    assert (failure["phase"], failure["exit_code"]) == ("run", 3)
    assert [one["status"] for one in workers.await_workers(other, False, LONG)["workers"]] == ["running"]


def test_the_kernel_enforces_a_workers_memory_and_its_kill_is_named(contained: dict[str, Any]) -> None:
    failure = failure_of(workers.launch_workers(1, **{**contained, "memory": 0.125}, code="b'x' * 300_000_000"))
    limit = "it exceeded its memory limit of 0.125 GB, and the kernel killed a process of it"
    assert (failure["phase"], failure["message"]) == ("run", limit)


def test_a_worker_that_is_stopped_has_its_time_and_leaves_no_container(
    contained: dict[str, Any], storage: Storage, capfd: pytest.CaptureFixture[str]
) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('put away'), sys.exit(0)))\n"
        "print('ready')\n"
        "time.sleep(1000)\n"
    )
    launched = workers.launch_workers(1, **contained, code=code) + workers.launch_workers(1, **contained)
    assert len(workers.await_workers(launched, False, LONG)["workers"]) == 2
    shown: list[str] = []

    def has_said(line: str) -> bool:
        shown.extend(capfd.readouterr().out.splitlines())
        return line in shown

    wait_until("the worker is ready", lambda: has_said("[worker-0] ready"))
    assert len(storage.containers()) == 2
    assert [one["status"] for one in workers.stop_workers()] == ["stopped"] * 2
    wait_until("its last words are here", lambda: has_said("[worker-0] put away"))
    wait_until("no container is left", lambda: storage.containers() == [])


def test_containers_end_with_a_session_that_is_killed(contained: dict[str, Any], storage: Storage) -> None:
    script = (
        "from gyre import workers\n"
        f"launched = workers.launch_workers(2, **{contained!r}, env={{'GYRE_TEST_KILLED': 'yes'}}, code={SLEEP!r})\n"
        f"print(len(workers.await_workers(launched, False, {LONG})['workers']), flush=True)\n"
        "import time; time.sleep(1000)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    session = subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True)
    assert session.stdout is not None
    assert session.stdout.readline() == "2\n"
    assert len(storage.containers()) == 2
    session.send_signal(signal.SIGKILL)
    session.wait()
    session.stdout.close()
    wait_until("its workers have ended", lambda: processes_with("GYRE_TEST_KILLED=yes") == [])
    wait_until("no container is left", lambda: storage.containers() == [])


def test_a_cluster_of_containers(server: JobServer, contained: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks need Gyre's Python package, which the shared folder has here."""
    shutil.copytree(PACKAGE / "gyre", server.share / "gyre", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    monkeypatch.syspath_prepend(str(server.share))
    Path("talk.py").write_text(
        "import socket\n"
        "def serve(cluster, server, task_index):\n"
        "    server.listener.accept()[0].sendall(open('/etc/of-image').read().encode())\n"
        "    server.join()\n"
        "def run(cluster, server, task_index):\n"
        "    host, _, port = cluster.task_address('ps', 0).partition(':')\n"
        "    answer = socket.create_connection((host, int(port))).recv(100)\n"
        "    if answer != b'made for a test': raise ValueError(answer)\n"
    )
    monkeypatch.syspath_prepend(str(Path.cwd()))
    ours: dict[str, Any] = {"tensorflow": False, "timeout_seconds": LONG}
    assert workers.run_cluster(1, 1, **contained, **ours, worker_script="talk") == (None, None)


@pytest.mark.parametrize(
    ("image", "sentence"),
    [
        ("localhost/gyre-test/trian:1", "this machine has no image localhost/gyre-test/trian:1"),
        ("gyre-test/arch:1", "gyre-test/arch:1 is for s390x processors, and this machine has"),
        ("GYRE/test", "GYRE/test"),
    ],
)
def test_an_image_that_cannot_run_is_a_failure_of_the_launch(
    contained: dict[str, Any], image: str, sentence: str
) -> None:
    """What launch_workers() returns says it."""
    (launched,) = workers.launch_workers(1, **{**contained, "image": image}, code="pass")
    assert launched["status"] == "failed", launched
    assert sentence in launched["message"]
    assert failure_of([launched])["phase"] == "launch"


def test_a_machine_without_podman_or_docker_is_a_failure_of_the_launch(
    server: JobServer, contained: dict[str, Any], tmp_path: Path
) -> None:
    server.end()
    empty = tmp_path / "empty"
    empty.mkdir()
    server.environment["PATH"] = f"{server.gyre.parent}:{empty}"
    server.start()
    (launched,) = workers.launch_workers(1, **contained, code="pass")
    assert launched["status"] == "failed"
    assert "this machine has no podman, which starts the containers of jobs" in launched["message"]


def test_a_private_registry_wants_its_password_and_the_server_is_found_without_a_name(
    server: JobServer, contained: dict[str, Any], storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`image` can be all of a job file's containerSettings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", server.environment["XDG_CONFIG_HOME"])
    del contained["server"]
    with registry(tmp_path) as (name, certificate):
        credentials = f"{USER}:{PASSWORD}"
        wait_until(
            "the registry takes an image",
            lambda: storage.push(IMAGE, f"{name}/team/search:1", credentials, certificate),
        )
        server.end()
        server.environment["SSL_CERT_FILE"] = str(certificate)
        server.start()

        def settings(image: str, password: str) -> dict[str, Any]:
            source = {"serverUrl": name, "image": image, "credentials": {"username": USER, "password": password}}
            return {"imageSourceRegistry": source, "shmSize": "32m"}

        for image, password, sentence in (
            ("team/search:1", "guess", f"the registry {name} refuses user '{USER}'"),
            ("team/serach:1", PASSWORD, f"the registry {name} has no image {name}/team/serach:1"),
        ):
            (refused,) = workers.launch_workers(1, **{**contained, "image": settings(image, password)}, code="pass")
            assert refused["status"] == "failed"
            assert sentence in refused["message"]
            assert PASSWORD not in str(refused)
        size = "import os; s = os.statvfs('/dev/shm'); assert s.f_blocks * s.f_frsize == 32 << 20, s"
        launched = workers.launch_workers(
            1, **{**contained, "image": settings("team/search:1", PASSWORD)}, code=size, cluster="pool"
        )
        result = workers.await_workers(launched, timeout_seconds=LONG)
        assert [one["status"] for one in result["workers"]] == ["succeeded"], result
        assert storage.credentials() == []


def test_an_unknown_name_among_an_images_settings_is_a_failure_of_the_launch(contained: dict[str, Any]) -> None:
    image = {"imageSourceRegistry": {"image": IMAGE}, "shmsizes": "32m"}
    (refused,) = workers.launch_workers(1, **{**contained, "image": image}, code="pass")
    assert refused["status"] == "failed"
    assert "shmsizes" in refused["message"], refused


def test_an_image_with_a_folder_where_the_sessions_has_to_appear_is_named(
    server: JobServer, contained: dict[str, Any], storage: Storage
) -> None:
    """One that is empty is in nobody's way."""
    place = str(server.share).lstrip("/")
    for number, extra in enumerate(({f"{place}/own": "the image's"}, {place: ""})):
        image = f"gyre-test/in-the-way:{number}"
        storage.add(image, busybox_files({**extra}, packages=PYTHON_PACKAGES))
        failure = failure_of(workers.launch_workers(1, **{**contained, "image": image}, code="pass"))
        sentence = f"the image has a {server.share} of its own, where this machine's has to appear"
        assert (failure["phase"], failure["message"]) == ("start", sentence)
    empty = "gyre-test/in-the-way:2"
    storage.podman("build", "-t", empty, "-", stdin=f"FROM {IMAGE}\nWORKDIR {server.share}\n".encode())
    launched = workers.launch_workers(1, **{**contained, "image": empty}, code="import os; os.stat('../search')")
    result = workers.await_workers(launched, timeout_seconds=LONG)
    assert [one["status"] for one in result["workers"]] == ["succeeded"], result


def test_an_image_without_python_is_named(contained: dict[str, Any]) -> None:
    failure = failure_of(workers.launch_workers(1, **{**contained, "image": "gyre-test/no-python:1"}, code="pass"))
    sentence = "its image has no python3; name its Python with python, or take an image that has one"
    assert failure["message"] == sentence


def test_a_mistake_is_raised_before_anything_is_launched(
    contained: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "empty"))
    monkeypatch.setattr("gyre.jobs._connection._found_door", lambda: None)  # This machine may have a server.
    sentence = "workers in containers are jobs of a job server that root runs; no job server is known here"
    with pytest.raises(NotFoundError, match=sentence):
        workers.launch_workers(1, 1, 1, image=IMAGE, code="pass")
    with pytest.raises(UnsupportedError, match="GPUs are not passed into containers"):
        workers.launch_workers(1, **contained, nvidia_gpu=1, code="pass")
    with pytest.raises(InvalidArgumentError, match="image is empty"):
        workers.launch_workers(1, **{**contained, "image": ""}, code="pass")
    with pytest.raises(ServerError, match="there is no cluster 'nowhere'"):
        workers.launch_workers(1, **{**contained, "cluster": "nowhere"}, code="pass")
    (tmp_path / "away.py").write_text("pass\n")
    with pytest.raises(InvalidArgumentError, match="sees those folders alone that its cluster mounts"):
        workers.launch_workers(1, **contained, script=str(tmp_path / "away.py"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgumentError, match="sees those folders alone that its cluster mounts"):
        workers.launch_workers(1, **contained, script="away.py")
    assert workers.list_workers() == []
    # Code needs no folder.
    launched = workers.launch_workers(1, **contained, code="import os; assert os.getcwd() != '/'")
    assert len(workers.await_workers(launched, timeout_seconds=LONG)["workers"]) == 1
