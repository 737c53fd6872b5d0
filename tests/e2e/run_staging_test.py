"""`gyre run --stage`: a data set is there before the ranks start, once per host, and gone after them; its secrets are
nowhere."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from azurite import ACCOUNT, PROGRAM, azurite
from fault_server import fault_server
from staging import MIB, some_files

needs_azurite = pytest.mark.skipif(
    not PROGRAM.exists(), reason="Azurite is not installed: `./dev setup test` does so where there is npm"
)

# Prints what a rank sees of the set.
LOOK = """
import hashlib, os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
assert str(folder) == os.environ["GYRE_STAGE_DIR"], os.environ
for path in sorted(folder.iterdir()):
    if path.is_file():
        print(path.name, hashlib.sha256(path.read_bytes()).hexdigest())
"""
NOTHING: Mapping[str, str] = {}


class Run:
    """`gyre run`, with a folder of its own for temporary files."""

    def __init__(self, gyre: Path, folder: Path) -> None:
        self.gyre = gyre
        self.temporary = folder / "tmp"
        self.temporary.mkdir()

    def command(self, *words: str | Path) -> list[str]:
        return [str(self.gyre), "run", *map(str, words)]

    def environment(self, more: Mapping[str, str] = NOTHING) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "TMPDIR": str(self.temporary), **more}

    def __call__(
        self, *words: str | Path, environment: Mapping[str, str] = NOTHING
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            env=self.environment(environment),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words), env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def folders(self) -> list[str]:
        return sorted(path.name for path in self.temporary.iterdir() if path.name.startswith("gyre-stage-"))


@pytest.fixture
def run(gyre: Path, tmp_path: Path) -> Run:
    return Run(gyre, tmp_path)


def wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_set_is_there_for_all_ranks_read_once_and_removed(run: Run) -> None:
    files = some_files(1)
    with fault_server(files) as server:
        done = run("-n", "3", "--stage", server.url, "--", sys.executable, "-c", LOOK, "{stage-dir}")
        assert done.returncode == 0, done.stderr
        for rank in range(3):
            lines = [line.split(" ", 1)[1] for line in done.stdout.splitlines() if line.startswith(f"[{rank}]")]
            assert [line.rsplit(" ", 1)[0] for line in lines] == sorted(files)
        assert len({line.split("] ", 1)[1] for line in done.stdout.splitlines()}) == len(files), "the same for all"
        assert server.sent_bytes == sum(map(len, files.values())), "by the launcher alone"
    assert run.folders() == []


def test_a_rank_that_fails_leaves_nothing_either(run: Run) -> None:
    with fault_server(some_files(2)) as server:
        done = run("-n", "2", "--stage", server.url, "--", "sh", "-c", "test -e {stage-dir}/empty && exit 7")
    assert done.returncode == 7, done.stderr
    assert run.folders() == []
    missing = run("--stage", str(run.gyre), "--", "no-such-program")
    assert missing.returncode == 127
    assert run.folders() == []


def test_a_set_that_cannot_be_brought_is_one_sentence_and_starts_nothing(run: Run, tmp_path: Path) -> None:
    files = some_files(3) | {"damaged.gz": b"\x1f\x8b\x08\x00 no gzip"}
    with fault_server(files) as server:
        for words, said in [
            (["--stage", f"{server.url}none.bin"], "the server does not have it (404)"),
            (["--stage", server.url, "--stage-decompress"], "1 of 13 files did not arrive: "),
            (["--stage", str(tmp_path / "none")], "No such file or directory"),
            (["--stage", "store:///none/job"], "no daemon of a store runs in"),
            (["--stage", server.url, "--stage-dir", str(tmp_path / "none")], "cannot use --stage-dir"),
        ]:
            done = run("-n", "2", *words, "--", "touch", str(tmp_path / "started"))
            assert done.returncode == 1, done.stderr
            assert said in done.stderr
            assert len(done.stderr.strip().splitlines()) == 1, done.stderr
            assert run.folders() == []
    assert not (tmp_path / "started").exists()


def test_wrong_words_are_usage_errors(run: Run) -> None:
    for words, said in [
        (["--stage-dir", "/tmp"], "--stage is missing"),
        (["--stage", "/etc", "--stage-keep"], "--stage-keep needs --stage-dir"),
        (["--stage", "/etc", "--stage-sas", "sv=1&sig=x"], "--stage-sas needs @FILE, env:NAME or -"),
        (["--stage", "/etc", "-H", "localhost:1"], "not for -H"),
    ]:
        done = run(*words, "--", "true")
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_set_arrives_ends_it_and_leaves_nothing(run: Run, sent: signal.Signals) -> None:
    files = {"large.bin": bytes(8 * MIB)}
    is_over = threading.Event()

    def late(_name: str, _number: int) -> None:
        assert is_over.wait(60)

    with fault_server(files, late) as server:
        launcher = run.start("-n", "2", "--stage", server.url, "--", "true")
        try:
            wait_until(run.folders)
            wait_until(lambda: server.requests["large.bin"] > 0)
            launcher.send_signal(sent)
            output, errors = launcher.communicate(timeout=30)
        finally:
            is_over.set()
    assert launcher.returncode == 128 + sent
    assert "while the data set was being brought here; nothing was started" in errors
    assert len(errors.splitlines()) == 1, errors
    assert output == ""
    assert run.folders() == []


def test_the_page_of_the_job_says_how_far_the_staging_is(run: Run) -> None:
    """An hour of staging with nothing to see: the page was opened behind it."""
    goes_on = threading.Event()

    def late(_name: str, _number: int) -> None:
        assert goes_on.wait(60)

    with fault_server(some_files(6), late) as server:
        launcher = run.start("--page", "--stage", server.url, "--", "sleep", "600")
        try:
            assert launcher.stderr is not None
            link = re.search(r"for one browser: (\S+)", launcher.stderr.readline())
            assert link is not None
            browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with browser.open(link[1]) as answer:
                place = re.search(r"url=(/\w+)/page", answer.read().decode())
            assert place is not None

            def job() -> dict[str, Any]:
                with browser.open(link[1].split("/open/")[0] + place[1] + "/api/job") as answer:
                    return dict(json.load(answer))

            wait_until(lambda: "of 12 files" in job()["preparing"])
            assert job()["state"] == "preparing"
            assert job()["ranks"] == []
            goes_on.set()
            wait_until(lambda: len(job()["ranks"]) == 1)
            assert job()["preparing"] == ""
            assert job()["events"][0]["text"].startswith("the data set is here, 12 files, in ")
        finally:
            goes_on.set()
            launcher.send_signal(signal.SIGTERM)
            launcher.communicate(timeout=30)
    assert run.folders() == []


def test_what_a_killed_launcher_leaves_is_removed_by_the_next_one(run: Run) -> None:
    """And what a living one has is not."""
    with fault_server(some_files(4)) as server:
        words = ["--stage", server.url, "--", "sh", "-c", "echo up; sleep 600"]
        killed, living = run.start(*words), run.start(*words)
        for launcher in (killed, living):
            assert launcher.stdout is not None
            assert launcher.stdout.readline().endswith("up\n")
        assert len(run.folders()) == 2
        killed.kill()
        killed.wait()

        def is_swept() -> bool:
            assert run("--stage", server.url, "--", "true").returncode == 0
            return len(run.folders()) == 1

        wait_until(is_swept)  # The guardian has the folder until the killed launcher's ranks have ended.
        living.terminate()
        living.communicate(timeout=60)
        killed.communicate(timeout=60)
    assert run.folders() == []


def test_a_kept_set_is_not_read_again_and_loses_what_the_source_has_lost(run: Run, tmp_path: Path) -> None:
    files = some_files(5)
    place = tmp_path / "scratch/set"
    with fault_server(files) as server:
        for _ in range(2):
            done = run(
                "--stage", server.url, "--stage-dir", place, "--stage-keep", "--", sys.executable, "-c", LOOK,
                "{stage-dir}",
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            assert server.sent_bytes == sum(map(len, files.values()))
        assert {path.name for path in place.iterdir()} == {*files, ".gyre-stage"}
        del files["part_003.bin"], server.files["part_003.bin"]
        (place / "mine").write_text("never staged")
        done = run("--stage", server.url, "--stage-dir", place, "--stage-keep", "--", "true")
    assert {path.name for path in place.iterdir()} == {*files, "mine", ".gyre-stage"}
    assert "this set does not have: part_003.bin\n" in done.stderr
    assert "1 file not of this set, left there: mine\n" in done.stderr


@needs_azurite
@pytest.mark.parametrize("way", ["variable", "file", "url", "environment"])
def test_no_secret_of_the_source_is_seen_anywhere(run: Run, tmp_path: Path, way: str) -> None:
    """Not by the ranks, on no command line, in no log and in no file."""
    look = (
        f"cp -rT {{stage-dir}}/.gyre-stage {tmp_path}/notes; env; "
        "for process in /proc/[0-9]*; do tr '\\0' ' ' < $process/cmdline; done 2>/dev/null"
    )
    (tmp_path / "azurite").mkdir()
    with azurite(tmp_path / "azurite") as server:
        server.container("data", {"set/a.bin": b"abc"})
        sas = server.sas()
        signature = sas.split("sig=")[1].split("&")[0]
        url = f"{server.endpoint}/data/set"
        anonymous = f"BlobEndpoint={server.endpoint};AccountName={ACCOUNT}"
        words: list[str] = []
        environment = {"AZURE_STORAGE_CONNECTION_STRING": anonymous}
        if way == "variable":
            words, environment["THE_SAS"] = ["--stage-sas", "env:THE_SAS"], sas
        elif way == "file":
            (tmp_path / "sas").write_text(sas)
            words = ["--stage-sas", f"@{tmp_path}/sas"]
        elif way == "url":
            url = f"{url}?{sas}"
        else:
            environment = {"AZURE_STORAGE_CONNECTION_STRING": server.connection_string}
            signature = server.connection_string.split("AccountKey=")[1].split(";")[0]
        done = run(
            "-n", "2", "-v", "--log-dir", tmp_path / "logs", "--stage", url, *words, "--", "sh", "-c", look,
            environment=environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "GYRE_STAGE_DIR=" in done.stdout
        assert "run -n 2 -v" in done.stdout, "the launcher's command line is among those"
        texts = {"stdout": done.stdout, "stderr": done.stderr} | {
            str(path): path.read_text(errors="replace")
            for folder in ("logs", "notes", "tmp")
            for path in (tmp_path / folder).rglob("*")
            if path.is_file()
        }
        assert len(texts) > 4
        assert [name for name, text in texts.items() if signature in text] == []
        kept = run(
            "--stage", url, *words, "--stage-keep-credentials", "--", "sh", "-c", "env | grep -c -e ^AZURE -e ^THE_SAS",
            environment=environment,
        )  # fmt: skip
        assert kept.stdout == f"[0] {len(environment)}\n", kept.stdout + kept.stderr
