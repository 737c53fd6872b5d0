"""One list for every engine that gives nodes to jobs, on hosts and in containers: docs/testing.md has what came of it.

It takes minutes for each, so that it is a part of `./dev nightly long`."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker_daemon import why_no_docker
from effort import is_long
from engine_place import DIGITS_IMAGE, ENGINES, LEASE, SHARE, Place, place_on, processes_with
from images import busybox_files
from running_job import wait_until
from slurm_cluster import start_slurmd, stop_slurmd

__test__ = is_long()
pytestmark = [pytest.mark.needs_root, pytest.mark.needs_programs("sshd", "slurmctld", "podman", "runc")]

CONTAINERS = ("podman", "docker")
EVERYWHERE = [f"{engine}-{where}" for engine in ENGINES for where in ("host", *CONTAINERS)]
SHORT_JOBS = 50
SLURMD_TIMEOUT = 15  # Seconds.
CODE_BYTES = 100_000_000
IN_CONTAINERS = [f"{engine}-{program}" for engine in ENGINES for program in CONTAINERS]
ON_SLURM = [where for where in EVERYWHERE if where.startswith("slurm-")]
on_slurm = pytest.mark.parametrize("place", ON_SLURM, indirect=True, scope="module")
in_containers = pytest.mark.parametrize("place", IN_CONTAINERS, indirect=True, scope="module")
everywhere = pytest.mark.parametrize("place", EVERYWHERE, indirect=True, scope="module")


def skip_without(containers: str) -> None:
    """./dev setup does not install docker, whose service changes the machine's network."""
    if containers == "docker" and (reason := why_no_docker()):
        pytest.skip(reason)


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest, gyre: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    engine, where = request.param.split("-")
    containers = "" if where == "host" else where
    skip_without(containers)
    with place_on(engine, containers, gyre, tmp_path_factory.mktemp("server")) as made:
        yield made


@pytest.fixture(scope="module")
def digits_image(gyre: Path) -> bytes:
    """With the program, and libtorch of this machine, which it loads. Hundreds of megabytes."""
    return busybox_files(programs=[gyre.with_name("gyre-cifar10")])


@everywhere
def test_digits_are_learnt_by_two_ranks_on_each_of_two_nodes(
    place: Place, gyre: Path, digits: dict[str, bytes], digits_image: bytes
) -> None:
    """From a job file, as any user trains. In a container everything but the data is the image's."""
    for name, content in digits.items():
        path = place.server.share / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    if place.contained:
        place.storage.add(DIGITS_IMAGE.removeprefix("localhost/"), digits_image)
    program = [str(gyre.with_name("gyre-cifar10")), "--data-dir", f"{SHARE}/data", "--epochs", "1", "--batch-size", "8"]
    place.submit("digits", {"gyreSettings": {"program": program, "processesPerNode": 2}}, image=DIGITS_IMAGE)
    assert place.wait_for("digits") == 0, (place.events("digits"), place.server.ok("job", "logs", "digits"))
    log = place.server.ok("job", "logs", "digits")
    assert "test accuracy" in log
    assert len(re.findall(r"runs in a container of " + DIGITS_IMAGE, place.events("digits"))) == 2 * place.contained
    place.expect_nothing_left()


@everywhere
def test_a_log_is_followed_while_its_job_runs(place: Place) -> None:
    line = f"echo early; until [ -e {SHARE}/followed ]; do sleep 0.05; done; echo late"
    place.submit("followed", {"customToolkitSettings": {"commandLine": line}})
    follower = place.server.start_verb("job", "logs", "-f", "followed")
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"early\n"
    (place.server.share / "followed").touch()
    assert follower.communicate(timeout=60)[0] == b"late\n"
    assert place.wait_for("followed") == 0
    place.expect_nothing_left()


@everywhere
def test_a_rank_that_is_killed_ends_the_others(place: Place) -> None:
    place.submit("killed", place.ranks('if [ "$GYRE_RANK" = 3 ]; then kill -9 $$; fi; sleep 1000'))
    assert place.wait_for("killed") == 137
    assert "the job's command failed" in place.events("killed")
    place.expect_nothing_left()


@everywhere
def test_a_job_whose_node_is_lost_runs_again(place: Place) -> None:
    line = f"[ ! -e {SHARE}/lost ] || exit 0; mkdir {SHARE}/up-$GYRE_RANK; sleep 1000"
    place.submit("lost", place.ranks(line))
    wait_until("four ranks run", lambda: len(list(place.server.share.glob("up-*"))) == 4)
    (place.server.share / "lost").touch()
    lock = place.roots()[0] / "agent.lock"
    os.kill(int(lock.read_text()), signal.SIGSTOP)
    assert place.wait_for("lost") == 0, place.events("lost")
    assert "attempt 2" in place.events("lost")
    place.expect_nothing_left()


@in_containers
def test_a_job_whose_container_is_killed_says_so_and_is_tried_again_if_it_may_be(place: Place) -> None:
    """Of one node: with two, the launcher on the other one may be the first to notice."""
    for retries, code in ((0, 125), (1, 0)):
        name = f"unheld-{retries}"
        work = place.ranks(f"[ ! -e {SHARE}/{name} ] || exit 0; mkdir {SHARE}/{name}; sleep 1000")
        work["gyreSettings"]["retries"] = retries
        place.submit(name, {"nodeCount": 1, **work})
        wait_until("the job runs", (place.server.share / name).exists)
        (container,) = place.storage.containers()
        place.storage.kill(container)
        assert place.wait_for(name) == code, place.events(name)
        assert "has ended: somebody removed it" in place.events(name), place.events(name)
        assert ("attempt 2" in place.events(name)) == bool(retries)
        place.expect_nothing_left()


@on_slurm
def test_a_job_goes_on_and_ends_while_a_slurmd_is_stopped(place: Place) -> None:
    """The node's agent is Slurm's to start and to end, and needs it for nothing in between."""
    assert place.slurm is not None
    line = f"mkdir {SHARE}/alone-$GYRE_RANK; until [ -e {SHARE}/alone ]; do sleep 0.05; done; exit 3"
    place.submit("alone", place.ranks(line))
    wait_until("four ranks run", lambda: len(list(place.server.share.glob("alone-*"))) == 4)
    stop_slurmd(place.slurm, "n2")
    try:
        (place.server.share / "alone").touch()
        assert place.wait_for("alone") == 3, place.events("alone")
        assert "attempt 2" not in place.events("alone")
    finally:
        start_slurmd(place.slurm, "n2", nodes=2)
    place.expect_nothing_left()


@pytest.mark.parametrize("containers", ["", *CONTAINERS])
def test_a_job_whose_node_slurm_gives_up_runs_again_when_the_node_is_back(
    containers: str, gyre: Path, tmp_path: Path
) -> None:
    """Its slurmd is stopped for longer than Slurm waits for it, while all that runs there goes on."""
    skip_without(containers)
    with place_on("slurm", containers, gyre, tmp_path, slurmd_timeout=SLURMD_TIMEOUT) as place:
        assert place.slurm is not None
        place.submit("again", place.ranks(f"[ ! -e {SHARE}/again ] || exit 0; mkdir {SHARE}/up-$GYRE_RANK; sleep 1000"))
        wait_until("four ranks run", lambda: len(list(place.server.share.glob("up-*"))) == 4)
        (place.server.share / "again").touch()
        stop_slurmd(place.slurm, "n2")
        wait_until("its node is lost", lambda: "attempt 1  ended" in place.events("again"), seconds=300)
        wait_until("its first attempt is gone", lambda: processes_with(place.mark) == [])
        start_slurmd(place.slurm, "n2", nodes=2)
        assert place.wait_for("again") == 0, place.events("again")
        assert "attempt 2" in place.events("again")
        place.expect_nothing_left()


@everywhere
def test_a_job_goes_on_while_the_server_is_killed_and_starts_again(place: Place) -> None:
    line = f"touch() {{ : > $1; }}; touch {SHARE}/runs; until [ -e {SHARE}/go ]; do sleep 0.05; done; echo over; exit 3"
    place.submit("restart", {"customToolkitSettings": {"commandLine": line}})
    wait_until("the job runs", (place.server.share / "runs").exists)
    wait_until("the server knows", lambda: "all nodes are prepared" in place.events("restart"))
    place.server.end(signal.SIGKILL)
    place.server.start("--lease", LEASE)
    (place.server.share / "go").touch()
    assert place.wait_for("restart") == 3, place.events("restart")
    assert "over\n" in place.server.ok("job", "logs", "restart")
    place.expect_nothing_left()


@everywhere
def test_a_job_is_cancelled_while_it_waits_prepares_and_runs(place: Place) -> None:
    waits = "sleep 1000"
    preparing = {"jobPreparation": {"commandLine": f"mkdir -p {SHARE}/preparing; sleep 1000"}}
    for phase, properties, file in (
        ("prepares", {**place.ranks("true"), **preparing}, "preparing"),
        ("runs", place.ranks(f"mkdir -p {SHARE}/running; {waits}"), "running"),
    ):
        place.submit(phase, properties)
        wait_until(f"the job {phase}", (place.server.share / file).exists)
        if phase == "runs":
            place.submit("queued", place.ranks("true"))
            place.server.ok("job", "stop", "queued")
            assert place.wait_for("queued") != 0
        place.server.ok("job", "stop", phase)
        assert place.wait_for(phase) != 0
        place.expect_nothing_left()


@everywhere
def test_a_hundred_megabytes_of_code_come_to_both_nodes(place: Place, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "weights").write_bytes(os.urandom(CODE_BYTES))
    line = 'echo "size $(stat -c %s weights)"'
    place.submit("code", place.ranks(line), "--code", str(tmp_path / "code"))
    assert place.wait_for("code") == 0, place.events("code")
    assert place.server.ok("job", "logs", "code").count(f"size {CODE_BYTES}") == 4
    place.expect_nothing_left()


@everywhere
def test_fifty_short_jobs_all_succeed(place: Place) -> None:
    names = [f"short-{number}" for number in range(SHORT_JOBS)]
    for name in names:
        place.submit(name, {"nodeCount": 1, "customToolkitSettings": {"commandLine": "true"}})
    assert [place.wait_for(name) for name in names] == [0] * SHORT_JOBS
    place.expect_nothing_left()
