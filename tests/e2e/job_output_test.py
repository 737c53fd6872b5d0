"""`--output`: what a job writes into its work folder comes back, or the job's end says that it does not (ADR 85)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from job_server import JobServer


@pytest.fixture
def pool(server: JobServer) -> JobServer:
    """A server with one cluster of two nodes."""
    server.ok("cluster", "create", "pool", "-t", "2", "--mount", f"external={server.share}")
    return server


def wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def test_files_that_a_job_writes_into_its_code_are_kept_by_output_and_the_others_are_said(
    pool: JobServer, tmp_path: Path
) -> None:
    """They were wiped without a word when the next job started on the node."""
    code = tmp_path / "code"
    (code / "lib").mkdir(parents=True)
    (code / "lib" / "model.py").write_text("NAME = 'net'\n")
    (code / "config").write_text("a")
    line = "mkdir -p out/a && echo 1 > out/a/model.pt && echo 2 > 'two words.csv' && echo b > config && ln -s config l"
    ask = ("job", "submit", "-f", "--code", str(code), "-n")
    lost = pool.verb(*ask, "lost", "--", "sh", "-c", line)
    assert lost.returncode == 0, lost.stderr
    left = "3 files in the job's work folder (6 B) are not kept: config, out/a/model.pt, two words.csv; `--output"
    assert left in lost.stderr
    assert left in pool.verb("job", "wait", "lost").stderr
    assert left in pool.ok("job", "show", "lost")
    assert pool.verb("job", "files", "lost", "-d", "work").returncode == 1
    options = ("--output", "*.pt", "--output", "*.csv", "--output", "l", "--output", "*.onnx", "--nodes", "2")
    kept = pool.verb(*ask, "kept", *options, "--", "sh", "-c", line)
    assert kept.returncode == 0, kept.stderr
    for sentence in (
        "2 files in the job's work folder (4 B) are kept in output directory 'work': out/a/model.pt, two words.csv",
        "1 file in the job's work folder (2 B) is not kept: config;",
        "could not be read or copied in full: l (a link)",
        "matches --output '*.onnx'",
    ):
        assert sentence in kept.stderr
    assert [file["name"] for file in pool.json("job", "files", "kept", "-d", "work", "-r")] == [
        "out",
        "out/a",
        "out/a/model.pt",
        "two words.csv",
    ]
    pool.ok("job", "download", "kept", "-d", "work", "--to", "got")
    assert (pool.tmp_path / "got/out/a/model.pt").read_text() == "1\n"
    assert (pool.tmp_path / "got/two words.csv").read_text() == "2\n"


def test_files_are_kept_of_a_job_that_fails_or_is_stopped_and_beside_its_logs(pool: JobServer) -> None:
    properties = {**pool.custom("echo x > result; exit 3"), "outputFiles": ["result"]}
    failed = pool.verb("job", "submit", "-f", "-n", "failed", str(pool.job_file(properties)))
    assert failed.returncode == 3, failed.stderr
    (log,) = pool.share.rglob("stdouterr")
    assert (log.parent / "work" / "result").read_text() == "x\n"
    pool.ok("job", "submit", "-n", "long", "--output", "step-*", "--", "sh", "-c", "echo 7 > step-7; exec sleep 1000")
    wait_until(lambda: list(pool.folder.glob("nodes/*/jobs/long/step-7")) != [])
    pool.ok("job", "stop", "long")
    assert pool.verb("job", "wait", "long").returncode != 0
    pool.ok("job", "download", "long", "-d", "work", "--to", "stopped")
    assert (pool.tmp_path / "stopped/step-7").read_text() == "7\n"


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("../x", "--output: '../x' contains '..'"),
        ("/etc/passwd", "--output: '/etc/passwd' is absolute"),
        ("", "--output: '' names nothing"),
        ("!*.pt", "--output: '!*.pt' begins with '!'"),
        ("/" + "x" * 2000, "has more than 1024 bytes"),
    ],
)
def test_a_pattern_that_leads_out_of_the_work_folder_is_refused_at_submission(
    pool: JobServer, pattern: str, words: str
) -> None:
    refused = pool.verb("job", "submit", "--output", pattern, "--", "true")
    assert refused.returncode == 2
    assert words in refused.stderr
    assert len(refused.stderr.strip().splitlines()) <= 2, refused.stderr
    file = pool.job_file({**pool.custom("true"), "outputFiles": [pattern]})
    refused = pool.verb("job", "submit", str(file))
    assert refused.returncode == 2
    assert "outputFiles has a pattern that cannot be used: " in refused.stderr
    # Elsewhere --output is the form of what is printed; a script that means it must not lose it without a word.
    refused = pool.verb("job", "submit", "--output", "json", "--", "true")
    assert refused.returncode == 2
    assert "`-o json` is the form of what is printed" in refused.stderr
    assert json.loads(pool.ok("job", "submit", "-o", "json", "--", "true"))["properties"]["nodeCount"] == 1


def test_files_of_other_nodes_in_an_output_directory_of_their_own_are_said_to_be_lost(pool: JobServer) -> None:
    """They were nowhere, and nobody said so."""
    program = ["sh", "-c", 'echo $RANK > "$AZ_BATCHAI_OUTPUT_MODEL/rank-$RANK.txt"']
    properties = pool.custom("", 2) | {
        "gyreSettings": {"program": program, "processesPerNode": 1},
        "outputDirectories": [{"id": "MODEL", "pathPrefix": "$AZ_BATCHAI_JOB_TEMP_DIR"}],
    }
    del properties["customToolkitSettings"]
    pool.ok("job", "submit", "-n", "two", str(pool.job_file(properties)))
    assert pool.verb("job", "wait", "two").returncode == 0
    assert "rank-0.txt" in pool.ok("job", "files", "two", "-d", "MODEL")
    [note] = re.findall("node .* in output directory 'MODEL' .*", pool.ok("job", "events", "two"))
    assert "1 file (2 B) in output directory 'MODEL' is not kept: rank-1.txt; it lies in each node's own" in note


def test_the_id_of_kept_files_is_reserved_where_files_are_kept(pool: JobServer) -> None:
    output = {"id": "Work", "pathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external"}
    file = pool.job_file({**pool.custom("true"), "outputDirectories": [output]})
    assert pool.verb("job", "submit", "-f", str(file)).returncode == 0
    refused = pool.verb("job", "submit", "--output", "*.pt", str(file))
    assert refused.returncode == 2
    assert "--output keeps files as output directory 'work'" in refused.stderr
