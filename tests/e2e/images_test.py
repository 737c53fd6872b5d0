"""Images that nodes build for jobs: a real podman and a real pip, on images made of this machine's own files."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_place import IMAGE, SHARE, place_on
from images import Storage, busybox_files
from job_server import JobServer
from packages import add_wheel
from running_job import wait_until

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_programs("podman", "runc")]

BASE = "gyre-test/build-base:1"
PYTHON = "gyre-test/build-python:1"
PYTHON_PACKAGES = (
    *("python3-minimal", "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib"),
    *("python3-pip-whl", "python3-distutils", "python3-lib2to3"),
)


@pytest.fixture(scope="module")
def storage() -> Iterator[Storage]:
    with tempfile.TemporaryDirectory(prefix="gyre-images-", dir="/tmp") as folder:
        storage = Storage(Path(folder))
        storage.add(BASE, busybox_files({"etc/of-base": "base\n"}))
        yield storage
        left = storage.podman("ps", "--all", "--external", "--format", "{{.Names}}").stdout.decode().split()
        storage.remove()
        assert not left, f"left behind: {left}"
        Path(folder).mkdir(exist_ok=True)


@pytest.fixture
def pool(job_server: JobServer, storage: Storage) -> JobServer:
    job_server.environment["GYRE_CONTAINERS"] = str(storage.folder)
    job_server.start()
    job_server.ok("cluster", "create", "pool", "-t", "2", "--mount", f"external={job_server.share}")
    return job_server


def submit(
    server: JobServer, name: str, line: str, container: dict[str, Any], code: dict[str, str], **more: Any
) -> None:
    folder = server.tmp_path / "code"
    folder.mkdir(exist_ok=True)
    for file, text in code.items():
        (folder / file).write_text(text)
    properties = {**server.custom(line), "containerSettings": container, **more}
    file = str(server.job_file(properties, f"{name}.json"))
    server.ok("job", "submit", file, "-n", name, "-c", "pool", "--code", str(folder))


def ended(server: JobServer, name: str) -> dict[str, Any]:
    server.verb("job", "wait", name)
    return server.json("job", "show", name)["properties"]  # type: ignore[no-any-return]


def succeeded(server: JobServer, name: str) -> str:
    """What it has printed."""
    state = ended(server, name)["executionState"]
    assert state == "succeeded", (server.ok("job", "events", name), logs(server, name, "*"))
    return logs(server, name, "stdout.txt")


def logs(server: JobServer, name: str, file: str) -> str:
    return "".join(
        found.read_text() for found in sorted(server.share.glob(f"**/jobs/{name}/**/{file}")) if found.is_file()
    )


def error(server: JobServer, name: str) -> dict[str, Any]:
    properties = ended(server, name)
    assert properties["executionState"] == "failed"
    assert logs(server, name, "stdout.txt") == ""
    [one] = properties["executionInfo"]["errors"]
    return one  # type: ignore[no-any-return]


DOCKERFILE = f"""
ARG BASE={BASE}
FROM $BASE
COPY needs.txt /needs.txt
RUN cat /proc/sys/kernel/random/uuid > /built && cat /proc/self/uid_map > /uid_map \\
    # of whom it was
    && id -u > /id
"""


def test_a_dockerfile_is_built_once_for_what_it_reads(pool: JobServer) -> None:
    """Training code that changes builds nothing; a file that the Dockerfile copies does."""
    build = {"build": {"dockerfile": "Dockerfile"}}
    line = "cat /built /needs.txt /etc/of-base; cat train.txt"
    code = {"Dockerfile": DOCKERFILE, "needs.txt": "one\n", "train.txt": "first\n"}
    submit(pool, "first", line, build, code)
    first = succeeded(pool, "first").split()
    assert first[1:] == ["one", "base", "first"]
    assert "builds the image of Dockerfile" in pool.ok("job", "events", "first")
    assert "built from Dockerfile" in pool.ok("job", "show", "first")
    submit(pool, "second", line, build, {"train.txt": "second\n"})
    assert succeeded(pool, "second").split() == [first[0], "one", "base", "second"]
    events = pool.ok("job", "events", "second")
    assert "the image of Dockerfile is there" in events
    assert "builds" not in events
    submit(pool, "third", line, build, {"needs.txt": "two\n"})
    third = succeeded(pool, "third").split()
    assert third[1:] == ["two", "base", "second"]
    assert third[0] != first[0]


def test_a_build_has_the_rights_of_the_jobs_container(pool: JobServer) -> None:
    submit(pool, "rights", "cat /uid_map /proc/self/uid_map", {"build": {"dockerfile": "Dockerfile"}}, {
        "Dockerfile": DOCKERFILE, "needs.txt": "rights\n"
    })  # fmt: skip
    lines = succeeded(pool, "rights").splitlines()
    assert len(lines) == 4
    assert lines[:2] == lines[2:]
    assert lines[0].split()[1] != "0"


def test_a_build_reaches_nothing_of_the_machine(pool: JobServer, storage: Storage) -> None:
    """Neither the programs of the build nor the builder, which is root. Code with links out of it is refused."""
    secret = storage.folder / "secret"
    secret.write_text("of the machine\n")
    secret.chmod(0o600)
    written = storage.folder / "written"
    code = pool.tmp_path / "code"
    code.mkdir()
    (code / "needs.txt").write_text("needs\n")
    build = {"build": {"dockerfile": "Dockerfile"}}
    inside = f"FROM {BASE}\nRUN ! cat {secret} && ! echo x > {written} && ! test -e /.gyre && ! ls /dev/kmsg\n"
    submit(pool, "inside", "echo ran", build, {"Dockerfile": inside})
    assert succeeded(pool, "inside") == "ran\n"
    lines = [f"COPY ../../../../../..{secret} /x", f"ADD file://{secret} /x", f"ADD {secret} /x"]
    for number, line in enumerate([*lines, f'COPY ["{secret}", "/x"]']):
        submit(pool, f"outside{number}", "cat /x", build, {"Dockerfile": f"FROM {BASE}\n{line}\n"})
        assert "of the machine" not in str(error(pool, f"outside{number}")), line
    for ignored in (".dockerignore", ".containerignore"):
        (code / ignored).symlink_to("needs.txt")
        submit(pool, f"as{ignored[1:]}", "echo ran", build, {"Dockerfile": f"FROM {BASE}\nCOPY needs.txt /x\n"})
        assert f"{ignored} of its code is not a file" in error(pool, f"as{ignored[1:]}")["message"]
        (code / ignored).unlink()
    assert not written.exists()


def test_an_image_that_was_made_to_go_on_building_is_no_base(pool: JobServer, storage: Storage) -> None:
    """What it has for its children would never have been looked at."""
    storage.podman("build", "--format", "docker", "--tag", "gyre-test/triggers:1", "-", stdin=(
        f"FROM {BASE}\nONBUILD RUN --mount=type=cache,target=/x true\n".encode()
    ))  # fmt: skip
    build = {"build": {"dockerfile": "Dockerfile"}}
    submit(pool, "triggers", "echo ran", build, {"Dockerfile": "FROM gyre-test/triggers:1\nRUN true\n"})
    assert "an image of FROM has ONBUILD instructions" in error(pool, "triggers")["message"]


def test_stages_are_built_and_only_what_is_copied_stays(pool: JobServer) -> None:
    dockerfile = f"""ARG BASE={BASE}
FROM ${{BASE}} AS Made
WORKDIR /made
COPY --chown=7:8 needs.txt .
RUN echo made > it
FROM $BASE
COPY --from=made /made/it /made/needs.txt /
COPY --from={BASE} /etc/of-base /again
ENV WORD="two words"
RUN echo "$WORD" > /word
"""
    submit(pool, "stages", "cat /it /needs.txt /again /word; echo $WORD; stat -c %u:%g /needs.txt; ls /made", {
        "build": {"dockerfile": "Dockerfile"}
    }, {"Dockerfile": dockerfile, "needs.txt": "needs\n", ".dockerignore": "*\n!needs.txt\n"})  # fmt: skip
    state = ended(pool, "stages")["executionState"]
    assert logs(pool, "stages", "stdout.txt") == "made\nneeds\nbase\ntwo words\ntwo words\n7:8\n", (
        pool.ok("job", "events", "stages"), logs(pool, "stages", "*"))  # fmt: skip
    assert state == "failed"  # By the last command: there is no /made.


def test_two_jobs_at_once_build_it_once(pool: JobServer) -> None:
    code = {"Dockerfile": DOCKERFILE, "needs.txt": "at once\n"}
    for name in ("one", "two"):
        submit(pool, name, "cat /built", {"build": {"dockerfile": "Dockerfile"}}, code)
    assert succeeded(pool, "one") == succeeded(pool, "two")
    assert "cannot" not in pool.ok("job", "events", "one") + pool.ok("job", "events", "two")


@pytest.mark.parametrize(
    ("dockerfile", "sentence"),
    [
        (
            f"FROM {BASE}\nRUN echo says; echo it is missing >&2; exit 3\n",
            "the image of Dockerfile cannot be built: building at STEP",
        ),
        (
            f"FROM {BASE}\nRUN --mount=type=bind,target=/x true\n",
            "Dockerfile, line 2: RUN --mount=type=bind,target=/x is",
        ),
        ("FROM localhost/no/such:1\n", "localhost/no/such:1"),
        (f"FROM {BASE}\nCOPY no-such-file /x\n", "no-such-file"),
        ("nothing\n", "Dockerfile, line 1: 'NOTHING' is not an instruction"),
    ],
)
def test_what_cannot_be_built_is_one_sentence_before_anything_runs(
    pool: JobServer, dockerfile: str, sentence: str
) -> None:
    submit(pool, "fails", "echo ran", {"build": {"dockerfile": "Dockerfile"}}, {"Dockerfile": dockerfile})
    one = error(pool, "fails")
    assert one["code"] == "ContainerNotStarted"
    assert sentence in one["message"]
    if "it is missing" in dockerfile:
        assert "exit status 3: it is missing (execution.log has more)" in one["message"]
        assert "says" in logs(pool, "fails", "execution.log")


def test_a_missing_dockerfile_is_refused_when_the_job_is_submitted(pool: JobServer) -> None:
    properties = {**pool.custom("true"), "containerSettings": {"build": {"dockerfile": "none/Dockerfile"}}}
    file = str(pool.job_file(properties))
    for options, why in ((["--code", str(pool.share)], "there is no file"), ([], "give its folder with --code DIR")):
        refused = pool.verb("job", "submit", file, "-c", "pool", *options)
        assert refused.returncode == 2
        assert why in refused.stderr


def test_an_image_that_was_built_is_no_other_jobs(pool: JobServer, storage: Storage) -> None:
    """Of another account it may be; by its name nobody gets it."""
    submit(pool, "has", "true", {"build": {"dockerfile": "Dockerfile"}}, {"Dockerfile": f"FROM {BASE}\nRUN true\n"})
    succeeded(pool, "has")
    names = storage.podman("images", "--format", "{{.Repository}}:{{.Tag}}").stdout.decode().split()
    built = [name for name in names if name.startswith("localhost/gyre-built:")]
    assert built
    for number, name in enumerate((built[0], built[0].removeprefix("localhost/"))):
        submit(
            pool, f"taken{number}", "echo ran", {"build": {"dockerfile": "Dockerfile"}}, {"Dockerfile": f"FROM {name}"}
        )
        assert "gyre-built" in error(pool, f"taken{number}")["message"]
        image = {"imageSourceRegistry": {"image": name}}
        refused = pool.verb(
            *("job", "submit", str(pool.job_file({**pool.custom("echo ran"), "containerSettings": image}))),
            *("-c", "pool", "-n", f"named{number}"),
        )
        if refused.returncode == 0:
            error(pool, f"named{number}")


def leftovers(storage: Storage) -> list[str]:
    """Of builds: processes, mounts of any process, containers, and the folders that they read."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            mounts = (process / "mountinfo").read_text(errors="replace").splitlines()
        except OSError:
            continue
        if str(storage.folder / "root") in words and "build" in words:
            found.append(" ".join(words))
        found += [line for line in mounts if str(storage.folder) in line and "/merged" in line]
    return found + storage.podman("ps", "--all", "--external", "--format", "{{.ID}}").stdout.decode().split()


def processes_of(*words: str) -> list[Path]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1] == list(words):
                found.append(process)
        except OSError:
            continue
    return found


def test_a_build_whose_builder_was_killed_leaves_nothing(pool: JobServer, storage: Storage) -> None:
    """The program of a RUN ends with the agent, or, where podman alone was killed, at the end of the build."""
    code = {"Dockerfile": f"FROM {BASE}\nRUN exec sleep 87654\n"}
    build = {"build": {"dockerfile": "Dockerfile"}}
    submit(pool, "agent", "echo ran", build, code)
    wait_until("the build runs", lambda: processes_of("sleep", "87654") != [])
    [program] = processes_of("sleep", "87654")
    [order] = pool.folder.glob("nodes/*/agent/current.json")
    os.kill(int((order.parents[1] / "agent.lock").read_text()), signal.SIGKILL)
    wait_until("it has ended", lambda: not program.exists())
    # The next agent builds it again.
    wait_until("the build runs", lambda: processes_of("sleep", "87654") != [])
    pool.ok("job", "stop", "agent")
    assert "the job was terminated" in error(pool, "agent")["message"]
    wait_until("nothing is left", lambda: leftovers(storage) == [])
    submit(pool, "podman", "echo ran", build, code)
    wait_until("the build runs", lambda: processes_of("sleep", "87654") != [])
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if words[0] == "podman" and str(storage.folder / "root") in words and "build" in words:
            os.kill(int(process.name), signal.SIGKILL)
    wait_until("it has ended", lambda: "killed by SIGKILL" in pool.ok("job", "events", "podman"))
    pool.ok("job", "stop", "podman")
    pool.verb("job", "wait", "podman")
    assert leftovers(storage) == []
    assert not (Path("/var/lib/gyre/builds") / storage.state.name).exists()


def test_a_build_ends_with_its_job(pool: JobServer, storage: Storage) -> None:
    """And takes what it has started along."""
    code = {"Dockerfile": f"FROM {BASE}\nRUN exec sleep 98765\n"}
    submit(pool, "long", "echo ran", {"build": {"dockerfile": "Dockerfile"}}, code)

    wait_until("the build runs", lambda: processes_of("sleep", "98765") != [])
    pool.ok("job", "stop", "long")
    assert "the job was terminated" in error(pool, "long")["message"]
    assert processes_of("sleep", "98765") == []
    assert leftovers(storage) == []
    assert list(pool.folder.glob("nodes/*/**/image")) == []
    submit(pool, "next", "cat /built", {"build": {"dockerfile": "Dockerfile"}}, {
        "Dockerfile": DOCKERFILE, "needs.txt": "next\n"
    })  # fmt: skip
    assert succeeded(pool, "next")


def test_requirements_are_installed_on_top_of_an_image(pool: JobServer, storage: Storage) -> None:
    """By the image's own Python, for all of it; once."""
    wheels = pool.tmp_path / "wheels"
    add_wheel(wheels)
    wheel = next(wheels.iterdir())
    pip = next(Path("/usr/share/python-wheels").glob("pip-*.whl"))
    extra: dict[str, str | bytes] = {f"wheels/{wheel.name}": wheel.read_bytes()}
    changes = [f"ENV PYTHONPATH={pip}"]
    storage.add(PYTHON, busybox_files(extra, packages=PYTHON_PACKAGES), changes)
    container = {
        "imageSourceRegistry": {"image": PYTHON},
        "build": {"requirements": ["--no-index", "--find-links /wheels", "tinypkg==1.0"]},
    }
    line = "python3 -c 'import tinypkg; print(tinypkg.answer)'; tiny; stat -c %Y /usr/local/bin/tiny"
    for name in ("first", "second"):
        submit(pool, name, line, container, {"train.txt": name})
    first = succeeded(pool, "first")
    assert first.startswith("forty-two\ntiny says forty-two\n")
    assert succeeded(pool, "second") == first
    container["build"] = {"requirements": ["--no-index", "no-such-package"]}
    submit(pool, "fails", line, container, {})
    message = error(pool, "fails")["message"]
    assert "ERROR: No matching distribution found for no-such-package" in message


def test_built_images_that_nobody_has_used_for_longest_go(job_server: JobServer) -> None:
    """Beyond a size, when a further one is built; none that a job has."""
    with tempfile.TemporaryDirectory(prefix="gyre-images-", dir="/tmp") as folder:
        storage = Storage(Path(folder))
        storage.add(BASE, busybox_files())

        def built() -> dict[str, int]:
            listed = json.loads(storage.podman("images", "--format", "json").stdout)
            return {name: image["Size"] for image in listed for name in image["Names"] if "/gyre-built:" in name}

        def run(name: str, line: str = "cat /name") -> None:
            dockerfile = f"FROM {BASE}\nRUN cp /bin/busybox /more && echo {name.split('-', maxsplit=1)[0]} > /name\n"
            submit(job_server, name, line, {"build": {"dockerfile": "Dockerfile"}}, {"Dockerfile": dockerfile})

        job_server.environment["GYRE_CONTAINERS"] = str(storage.folder)
        job_server.start()
        job_server.ok("cluster", "create", "pool", "-t", "1", "--mount", f"external={job_server.share}")
        run("a")
        assert succeeded(job_server, "a") == "a\n"
        [(a, size)] = built().items()
        # Two and a half of them.
        job_server.ok("cluster", "delete", "pool", "-y")
        wait_until("its nodes have gone", lambda: job_server.json("cluster", "list") == [])
        job_server.environment["GYRE_BUILT_IMAGES"] = str(size * 5 // 2)
        job_server.restart()
        job_server.ok("cluster", "create", "pool", "-t", "2", "--mount", f"external={job_server.share}")
        run("b")
        assert succeeded(job_server, "b") == "b\n"
        [b] = built().keys() - {a}
        run("a-again", 'echo up; until [ -e "$AZ_BATCHAI_MOUNT_ROOT/external/go" ]; do sleep 0.05; done')
        wait_until("it runs", lambda: logs(job_server, "a-again", "stdout.txt") == "up\n")
        run("c")
        assert succeeded(job_server, "c") == "c\n"
        [c] = built().keys() - {a, b}
        assert built().keys() == {a, c}
        run("d")
        assert succeeded(job_server, "d") == "d\n"
        [d] = built().keys() - {a, c}
        assert built().keys() == {a, d}  # A job has the one that was used before.
        (job_server.share / "go").touch()
        job_server.verb("job", "wait", "a-again")
        run("e")
        assert succeeded(job_server, "e") == "e\n"
        assert a not in built()
        assert d in built()
        refused = job_server.verb("server", "--folder", f"{folder}/none", env={"GYRE_BUILT_IMAGES": "many"})
        assert refused.returncode == 2
        assert "GYRE_BUILT_IMAGES is 'many'" in refused.stderr
        job_server.close()
        storage.remove()
        Path(folder).mkdir(exist_ok=True)


@pytest.mark.needs_programs("sshd", "slurmctld", "slurmd", "munged")
@pytest.mark.parametrize("engine", ["ssh", "slurm"])
def test_nodes_of_every_engine_build_the_image_of_a_job(engine: str, gyre: Path, tmp_path: Path) -> None:
    """Once for both of its nodes, which are one machine here."""
    with place_on(engine, True, gyre, tmp_path) as place:
        code = tmp_path / "code"
        code.mkdir()
        (code / "Dockerfile").write_text(
            f"FROM {IMAGE}\nCOPY needs.txt /\nRUN cat /proc/sys/kernel/random/uuid > /built\n"
        )
        (code / "needs.txt").write_text("needs\n")
        properties = {
            "nodeCount": 2,
            "stdOutErrPathPrefix": SHARE,
            "gyreSettings": {"program": ["sh", "-c", "cat /built /needs.txt"]},
            "containerSettings": {"build": {"dockerfile": "Dockerfile"}},
        }
        file = str(place.server.job_file(properties))
        built = set()
        for name in ("first", "second"):
            place.server.ok("job", "submit", file, "-c", "lab", "-n", name, "--code", str(code))
            assert place.wait_for(name) == 0, (place.events(name), place.server.ok("job", "logs", name))
            [log] = place.server.share.glob(f"**/jobs/{name}/**/stdout.txt")
            words = [line.split()[1] for line in log.read_text().splitlines()]  # Behind the rank.
            assert words.count("needs") == 2
            built |= set(words) - {"needs"}
        assert len(built) == 1
        assert place.events("second").count("the image of Dockerfile is there") == 2
        place.expect_nothing_left()
        assert leftovers(place.storage) == []
