"""Virtual environments of what a job's requirements name, made by its nodes with the real pip, without a network."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from job_server import JobServer
from packages import add_slow_package, add_wheel
from running_job import wait_until

KEPT = Path("/var/tmp")


def environments() -> set[Path]:
    return {folder for folder in KEPT.glob("gyre-environments-*/*") if folder.is_dir()}


@pytest.fixture
def kept() -> Iterator[Callable[[], set[Path]]]:
    """Those that the test has made so far; they go with it."""
    before = environments()
    yield lambda: environments() - before
    for folder in environments() - before:
        shutil.rmtree(folder)
        folder.with_name(f"{folder.name}.lock").unlink()


@pytest.fixture
def pool(job_server: JobServer) -> JobServer:
    job_server.start()
    job_server.ok("cluster", "create", "pool", "-t", "2", "--mount", f"external={job_server.share}")
    (job_server.tmp_path / ".gyreignore").write_text("*\n!*.py\n!*.txt\n")
    return job_server


def lines_of(server: JobServer, *packages: str) -> list[str]:
    """Of no other test."""
    return [f"# {server.folder}", "--no-index", f"--find-links {server.share}/wheels", *packages]


def job(server: JobServer, line: str, *packages: str, nodes: int = 1, **more: Any) -> dict[str, Any]:
    return {**server.custom(line, nodes), "requirements": lines_of(server, *packages), **more}


def submit(server: JobServer, name: str, properties: dict[str, Any], *options: str) -> None:
    file = str(server.job_file(properties, f"{name}.json"))
    server.ok("job", "submit", file, "-n", name, "-c", "pool", *options)


def ended(server: JobServer, name: str) -> dict[str, Any]:
    server.verb("job", "wait", name)
    return server.json("job", "show", name)["properties"]  # type: ignore[no-any-return]


def logs(server: JobServer, name: str, file: str) -> str:
    return "".join(found.read_text() for found in sorted(server.share.glob(f"**/jobs/{name}/**/{file}")))


def test_python_pip_and_programs_of_a_job_are_those_of_its_environment(
    pool: JobServer, kept: Callable[[], set[Path]]
) -> None:
    """Whatever starts them: preparation, a shell line, ssh to another node; and it is made once for two nodes."""
    add_wheel(pool.share / "wheels")
    line = (
        'tiny; python -c "import sys, tinypkg; print(sys.prefix)"; pip --version; '
        'for host in $(echo "$AZ_BATCH_HOST_LIST" | tr , " "); do ssh "$host" tiny; done'
    )
    preparation = {"commandLine": 'echo "$VIRTUAL_ENV"; python3 -c "import tinypkg"'}
    submit(pool, "uses", job(pool, line, "tinypkg==1.0", nodes=2, jobPreparation=preparation))
    assert ended(pool, "uses")["executionState"] == "succeeded", pool.ok("job", "events", "uses")
    [environment] = kept()
    said = logs(pool, "uses", "stdout.txt").splitlines()
    assert said[:2] == ["tiny says forty-two", str(environment)]
    assert f" from {environment}/" in said[2]
    assert said[3:] == ["tiny says forty-two"] * 2
    assert logs(pool, "uses", "stdout-job_prep-*.txt").split() == [str(environment)] * 2
    assert logs(pool, "uses", "stderr-environment-*.txt").count("gyre: makes ") == 1
    # A later job, by a command, finds it.
    made = (environment / "bin" / "tiny").stat()
    (pool.tmp_path / "needs.txt").write_text("\n".join(lines_of(pool, "tinypkg==1.0")))
    (pool.tmp_path / "train.py").write_text("import sys, tinypkg; print(sys.prefix)\n")
    ran = pool.verb(
        *("run", "--cluster", "pool", "--nnodes", "2", "-n", "2", "--requirements", "needs.txt", "--"),
        *("python", "train.py"),
    )
    assert (ran.returncode, sorted(ran.stdout.splitlines())) == (0, [f"[{rank}] {environment}" for rank in (0, 1)]), (
        ran.stderr
    )
    assert "makes the job's environment" not in ran.stderr
    assert (environment / "bin" / "tiny").stat() == made
    command = ("--requirements", "needs.txt", "--", "python", "train.py")
    pool.ok("job", "submit", "-n", "submitted", "-c", "pool", "--code", ".", *command)
    assert ended(pool, "submitted")["executionState"] == "succeeded", pool.ok("job", "events", "submitted")
    # And one whose file is part of its code.
    properties = {**pool.custom("tiny"), "requirements": "needs.txt"}
    submit(pool, "file", properties, "--code", ".")
    assert ended(pool, "file")["executionState"] == "succeeded", pool.ok("job", "events", "file")
    assert kept() == {environment}
    without = pool.verb("job", "submit", str(pool.tmp_path / "file.json"), "-c", "pool")
    assert without.returncode == 2
    assert "give its folder with --code DIR" in without.stderr


def test_gyre_of_the_node_is_found_from_the_environment(pool: JobServer, kept: Callable[[], set[Path]]) -> None:
    """The node's Python is one that has it, and which is itself in an environment. (A module stands in for Gyre.)"""
    node = pool.share / "node"
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", node], check=True)
    [packages] = node.glob("lib/python*/site-packages")
    (packages / "gyre.py").write_text("where = 'on the node'\n")
    pool.environment["PATH"] = f"{node}/bin:{pool.environment['PATH']}"
    pool.restart()
    pool.ok("cluster", "create", "fresh", "-t", "1", "--mount", f"external={pool.share}")
    add_wheel(pool.share / "wheels")
    line = "python3 -c 'import gyre, tinypkg, sys; print(gyre.where, sys.prefix)'"
    file = str(pool.job_file(job(pool, line, "tinypkg")))
    pool.ok("job", "submit", file, "-n", "finds", "-c", "fresh")
    assert ended(pool, "finds")["executionState"] == "succeeded", logs(pool, "finds", "stderr*.txt")
    assert logs(pool, "finds", "stdout.txt").split() == ["on", "the", "node", *map(str, kept())]


def test_two_jobs_at_once_make_it_once_and_the_other_waits(pool: JobServer, kept: Callable[[], set[Path]]) -> None:
    wheels = pool.share / "wheels"
    add_slow_package(wheels)
    line = "python -c 'import slowpkg; print(slowpkg.answer)'"
    for name in ("one", "two"):
        submit(pool, name, job(pool, line, "slowpkg"))
    wait_until("the wheel is being built", lambda: (wheels / "building").read_text() == "building\n")
    wait_until(
        "one job waits for the other",
        lambda: any("waits for it" in logs(pool, name, "stderr-environment.txt") for name in ("one", "two")),
    )
    (wheels / "go").touch()
    for name in ("one", "two"):
        assert ended(pool, name)["executionState"] == "succeeded", pool.ok("job", "events", name)
        assert logs(pool, name, "stdout.txt") == "forty-three\n"
    assert (wheels / "building").read_text() == "building\n"
    assert len(kept()) == 1


@pytest.mark.parametrize("by", ["stop", "limit"])
def test_what_is_ended_while_it_is_made_is_no_environment(
    pool: JobServer, kept: Callable[[], set[Path]], by: str
) -> None:
    """A job that is stopped, or has no time left, ends at once; the next one makes it."""
    wheels = pool.share / "wheels"
    add_slow_package(wheels)
    limit = {"constraints": {"maxWallClockTime": "PT5S"}} if by == "limit" else {}
    submit(pool, "never", job(pool, "echo ran", "slowpkg", **limit))
    if by == "stop":
        wait_until("the wheel is being built", lambda: (wheels / "building").read_text() == "building\n")
        pool.ok("job", "stop", "never")
    job_that_ended = ended(pool, "never")
    assert job_that_ended["executionState"] == "failed"
    why = "was terminated" if by == "stop" else "maxWallClockTime, PT5S, has passed"
    assert why in job_that_ended["executionInfo"]["errors"][0]["message"]
    assert logs(pool, "never", "stdout.txt") == ""
    (wheels / "go").touch()
    submit(pool, "next", job(pool, "python -c 'import slowpkg; print(slowpkg.answer)'", "slowpkg"))
    assert ended(pool, "next")["executionState"] == "succeeded", pool.ok("job", "events", "next")
    assert logs(pool, "next", "stdout.txt") == "forty-three\n"
    assert len(kept()) == 1


def test_what_cannot_be_installed_is_one_sentence_with_pips_words(
    pool: JobServer, kept: Callable[[], set[Path]]
) -> None:
    add_wheel(pool.share / "wheels")
    submit(pool, "fails", job(pool, "echo ran", "tinypkg==2.0", jobPreparation={"commandLine": "echo prepared"}))
    properties = ended(pool, "fails")
    [error] = properties["executionInfo"]["errors"]
    assert (error["code"], properties["executionInfo"]["exitCode"]) == ("JobPreparationFailed", 1)
    assert " cannot make the job's environment: ERROR: Could not find a version that" in error["message"]
    assert (
        "ERROR: No matching distribution found for tinypkg==2.0 (exit code 1); its output: stderr-environment.txt"
        in (error["message"])
    )
    assert logs(pool, "fails", "stdout*.txt") == ""
    assert kept() == set()
    # From the command line too, where its log is shown.
    (pool.tmp_path / "needs.txt").write_text("\n".join(lines_of(pool, "no-such-package")))
    ran = pool.verb("run", "--cluster", "pool", "--requirements", "needs.txt", "--", "echo", "ran")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "cannot make the job's environment: ERROR: " in ran.stderr


@pytest.mark.needs_root
def test_those_that_nobody_has_used_for_longest_go(gyre: Path, tmp_path: Path, kept: Callable[[], set[Path]]) -> None:
    """All of the account beyond the limit; never the job's own, nor one that another job has."""
    server = JobServer(gyre, tmp_path, {"gyrecleo": 61_003})
    try:
        server.start("--job-user", "gyrecleo", "--environment-cache", "1")
        server.ok("cluster", "create", "pool", "-t", "2", "--mount", f"external={server.share}")
        add_wheel(server.share / "wheels")
        waits = f"echo up; while [ ! -e {server.share}/go ]; do sleep 0.05; done; tiny"
        submit(server, "has", job(server, waits, "tinypkg"))
        wait_until("the job runs", lambda: logs(server, "has", "stdout.txt") == "up\n")
        [held] = kept()
        for name, package in (("second", "tinypkg==1.0"), ("third", "tinypkg>=1.0")):
            submit(server, name, job(server, "tiny", package))
            assert ended(server, name)["executionState"] == "succeeded", server.ok("job", "events", name)
            assert len(kept()) == 2
        assert held in kept()
        (server.share / "go").touch()
        assert ended(server, "has")["executionState"] == "succeeded", server.ok("job", "events", "has")
        submit(server, "last", job(server, "tiny", "tinypkg==1.0"))
        assert ended(server, "last")["executionState"] == "succeeded", server.ok("job", "events", "last")
        assert len(kept()) == 1
    finally:
        server.close()


@pytest.mark.needs_root
def test_each_account_has_its_own_which_no_other_can_touch(gyre: Path, tmp_path: Path) -> None:
    accounts = {"gyreada": 61_001, "gyrebob": 61_002}
    server = JobServer(gyre, tmp_path, accounts)
    made: list[Path] = []
    try:
        server.start()
        add_wheel(server.share / "wheels")
        server.ok("cluster", "create", "pool", "-t", "1", "--mount", f"external={server.share}")
        file = server.job_file(job(server, "tiny; pwd -P > /dev/null; echo $VIRTUAL_ENV", "tinypkg"))
        file.chmod(0o644)
        shared = server.share / "job.json"
        shared.write_text(file.read_text())
        for account in accounts:
            server.ok("user", "create", account, "--to", str(tmp_path / account))
            server.ok("workspace", "add-owner", "default", account)
            done = server.verb("job", "submit", str(shared), "-n", account, "-c", "pool", "-f", account=account)
            assert done.returncode == 0, done.stderr
            made.append(Path(logs(server, account, "stdout.txt").splitlines()[-1]))
        assert [path.parent.name for path in made] == [f"gyre-environments-{name}" for name in accounts]
        for path, number in zip(made, accounts.values(), strict=True):
            state = path.parent.stat()
            assert (state.st_uid, state.st_mode & 0o777) == (number, 0o700)
    finally:
        server.close()
        for path in made:
            shutil.rmtree(path.parent)


def test_what_variables_change_of_the_packages_makes_an_environment_of_its_own(
    pool: JobServer, kept: Callable[[], set[Path]]
) -> None:
    """The text alone was looked at: a job that set another version ran with the one of before."""
    add_wheel(pool.share / "wheels")
    line = "python -c 'import tinypkg; print(tinypkg.answer)'"
    for name, version in (("one", "1.0"), ("same", "1.0"), ("other", "2.0")):
        variables = [{"name": "TINY", "value": version}, {"name": "SEED", "value": name}]
        submit(pool, name, job(pool, line, "tinypkg==${TINY}", environmentVariables=variables))
        properties = ended(pool, name)
        if version == "1.0":
            assert properties["executionState"] == "succeeded", pool.ok("job", "events", name)
            assert len(kept()) == 1
    assert properties["executionState"] == "failed"
    assert "No matching distribution found for tinypkg==2.0" in properties["executionInfo"]["errors"][0]["message"]


def test_a_file_of_requirements_may_be_a_link_in_the_code_and_is_text(
    pool: JobServer, kept: Callable[[], set[Path]]
) -> None:
    add_wheel(pool.share / "wheels")
    code = pool.tmp_path / "linked"
    (code / "requirements").mkdir(parents=True)
    text = "\n".join(lines_of(pool, "tinypkg==1.0", "# café"))
    (code / "requirements" / "base.txt").write_text(text, encoding="utf-8")
    (code / "needs.txt").symlink_to("requirements/base.txt")
    submit(pool, "linked", {**pool.custom("tiny"), "requirements": "needs.txt"}, "--code", str(code))
    assert ended(pool, "linked")["executionState"] == "succeeded", pool.ok("job", "events", "linked")
    assert len(kept()) == 1
    (code / "requirements" / "base.txt").write_text(text, encoding="latin-1")
    (code / "none.txt").touch()
    why = f"line {text.count(chr(10)) + 1} is not UTF-8 text; save the file as UTF-8"
    for file, sentence in (("needs.txt", why), ("none.txt", "the file is empty")):
        words = ("--requirements", str(code / file), "--", "tiny")
        refused = pool.verb("job", "submit", "-c", "pool", "--code", str(code), *words)
        assert refused.returncode == 2
        assert f"{file}: {sentence}" in refused.stderr
    file = str(pool.tmp_path / "linked.json")
    refused = pool.verb("job", "submit", file, "-c", "pool", "--code", str(code))
    assert refused.returncode == 2
    assert why in refused.stderr
