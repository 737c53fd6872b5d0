"""What stands on a terminal while a job runs: read from a terminal emulator, because escape sequences that look right
in a string may still draw over the job's own lines."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from article_job import make_share
from job_server import JobServer
from terminal import terminal


@pytest.fixture
def share() -> Iterator[Path]:
    with make_share() as folder:
        yield folder


def job_command(gyre: Path, share: Path, line: str, nodes: int = 1) -> list[str]:
    """The job's line may wait for files of the share, which says when it goes on."""
    file = share / "job.json"
    properties = {
        "nodeCount": nodes,
        "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external",
        "customToolkitSettings": {"commandLine": f"cd $AZ_BATCHAI_MOUNT_ROOT/external; {line}"},
    }
    file.write_text(json.dumps({"properties": properties}))
    return [str(gyre), "job", "run", str(file), "--mount", f"external={share}", "--name", "train"]


def until(file: str) -> str:
    return f"while [ ! -e {file} ]; do sleep 0.05; done"


def has(lines: list[str], *texts: str) -> bool:
    return all(any(text in line for line in lines) for text in texts)


def test_the_block_shows_state_nodes_and_time_below_the_jobs_lines_and_goes_at_the_end(gyre: Path, share: Path) -> None:
    line = f"echo epoch 1; {until('one')}; echo epoch 2; printf 'step 3'; {until('two')}; echo ' of 3'"
    with terminal(job_command(gyre, share, line, nodes=2)) as view:
        view.wait_for(lambda lines: has(lines, "epoch 1", "train  running  2 nodes", "127.0.0.2", "127.0.0.3"))
        view.wait_for(lambda lines: any(re.fullmatch(r"train  running  2 nodes  [1-9]\d*s", text) for text in lines))
        (share / "one").touch()
        view.wait_for(lambda lines: has(lines, "epoch 2", "step 3"))
        shown = view.lines()
        # One block, however often it was drawn, below what the job has said; the line that grows is its last.
        assert len([text for text in shown if text.startswith("train  ")]) == 1, shown
        assert shown.index("epoch 1") < shown.index("epoch 2") < len(shown) - 3, shown
        assert shown[-1] == "step 3"
        (share / "two").touch()
        assert view.wait_for_end() == 0
        left = view.lines()
        assert has(left, "epoch 1", "epoch 2", "step 3 of 3", "gyre job run: job 'train' succeeded")
        assert not any(text.startswith("train  ") for text in left), left
        assert view.is_restored()


@pytest.mark.parametrize("columns", [40, 12])
def test_a_narrow_terminal_cuts_the_block_and_keeps_every_line_of_the_job(
    gyre: Path, share: Path, columns: int
) -> None:
    """A block line that wraps is drawn again one row too low each time, and the screen fills with it."""
    line = f"for i in 1 2 3 4 5 6; do echo line $i; done; {until('one')}"
    with terminal(job_command(gyre, share, line, nodes=2), columns=columns) as view:
        view.wait_for(lambda lines: has(lines, "line 6", "train  runn"))
        # Drawn anew each second.
        first = [text for text in view.lines() if text.startswith("train  ")]
        (share / "one").touch()
        assert view.wait_for_end() == 0
        assert len(first) == 1
        assert len(first[0]) < columns
        assert [text for text in view.lines() if text.startswith("line ")] == [f"line {i}" for i in range(1, 7)]
        assert not any(text.startswith("train  ") for text in view.lines())


def test_control_c_ends_the_job_and_leaves_the_terminal_as_it_was(gyre: Path, share: Path) -> None:
    with terminal(job_command(gyre, share, "echo up; sleep 600")) as view:
        view.wait_for(lambda lines: has(lines, "up", "train  running"))
        view.press_control_c()
        assert view.wait_for_end() not in (0, -signal.SIGINT)
        assert has(view.lines(), "up", "gyre job run: terminating the job")
        assert not any(text.startswith("train  ") for text in view.lines()), view.lines()
        assert view.is_restored()


def test_no_color_draws_the_block_without_colours(gyre: Path, share: Path) -> None:
    with terminal(job_command(gyre, share, f"echo up; {until('one')}"), {"NO_COLOR": "1"}) as view:
        view.wait_for(lambda lines: has(lines, "up", "train  running"))
        (share / "one").touch()
        assert view.wait_for_end() == 0
        assert re.search(rb"\x1b\[\d*m", view.bytes) is None
        assert b"\x1b[J" in view.bytes


def test_a_dumb_terminal_and_a_pipe_get_plain_lines(gyre: Path, share: Path) -> None:
    command = job_command(gyre, share, "echo trained")
    with terminal(command, {"TERM": "dumb"}) as view:
        assert view.wait_for_end() == 0
        assert b"\x1b" not in view.bytes
        assert has(view.lines(), "trained", "gyre job run: job running")
    piped = subprocess.run(
        command, capture_output=True, timeout=60, check=True, env={"PATH": os.environ["PATH"], "TERM": "xterm"}
    )
    assert piped.stdout == b"trained\n"
    assert b"\x1b" not in piped.stderr
    assert b"gyre job run: job running" in piped.stderr


def test_followed_logs_and_waits_of_a_server_have_the_block_too_and_control_c_leaves_the_job(
    gyre: Path, tmp_path: Path
) -> None:
    server = JobServer(gyre, tmp_path)
    try:
        server.start()
        server.ok("cluster", "create", "pool", "--target", "1", "--mount", f"external={server.share}")
        goes_on = server.share / "one"
        server.ok("job", "submit", "--name", "train", "--", "bash", "-c", f"echo up; {until(str(goes_on))}; echo done")
        variables = server.environment
        for verb in (["logs", "-f", "train"], ["wait", "train"]):
            with terminal([str(gyre), "job", *verb], variables) as view:
                view.wait_for(lambda lines: has(lines, "train  running  1 node"))
                view.press_control_c()
                assert view.wait_for_end() == -signal.SIGINT
                # On a line of its own, where the terminal may have echoed ^C.
                assert view.screen.cursor.x in (0, len("^C")), view.lines()
                assert view.modes_are_unchanged()
        with terminal([str(gyre), "job", "logs", "-f", "train"], variables) as view:
            view.wait_for(lambda lines: has(lines, "up", "train  running"))
            goes_on.touch()
            assert view.wait_for_end() == 0
            assert [text for text in view.lines() if not text.startswith("gyre job logs")] == ["[0] up", "[0] done"]
    finally:
        server.close()
