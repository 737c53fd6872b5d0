"""`gyre server` and the verbs around it, as a team uses them: from a shell, with restarts and kills in between."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from article_job import ARTICLE, script
from effort import rounds, seeded_random
from job_server import JobServer

NOT_THE_JOBS = 125


@pytest.fixture
def pool(server: JobServer) -> JobServer:
    """A server with one cluster of two nodes."""
    server.ok("cluster", "create", "pool", "-t", "2", "--mount", f"external={server.share}", "--containers-on-host")
    return server


def wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def counting(lines: int = 40) -> str:
    """A shell line that writes numbered lines until it may end, with letters of several bytes in them."""
    return (
        f"i=0; while [ $i -lt {lines} ] || [ ! -e $AZ_BATCHAI_MOUNT_ROOT/external/go ]; do "
        "i=$((i+1)); echo \"line $i é€\"; sleep 0.05; done; printf 'last é'"
    )


def test_the_articles_job_goes_through_the_service_from_submission_to_download(pool: JobServer) -> None:
    script(pool.share, "job-prep.sh", "echo prepared")
    script(pool.share, "run-cifar10.sh", 'echo "$NUM_NODES x $PROCESSES_PER_NODE"; echo {} > "$HOROVOD_TIMELINE"')
    name = pool.ok("job", "submit", str(ARTICLE), "-c", "pool").strip()
    assert name.startswith("job-")
    logs = pool.verb("job", "logs", "-f", name)
    assert logs.returncode == 0, logs.stderr
    assert "2 x 4\n" in logs.stdout
    assert logs.stdout.count("prepared\n") == 2
    waited = pool.verb("job", "wait", name)
    assert waited.returncode == 0
    assert f"job '{name}' succeeded" in waited.stderr
    shown = pool.json("job", "show", name)
    assert shown["properties"]["executionState"] == "succeeded"
    assert "timeline.json" in pool.ok("job", "files", name, "-d", "TIMELINE", "-r")
    there = pool.ok("job", "download", name, "-d", "TIMELINE", "--to", "got").split()
    assert [(pool.tmp_path / path).read_text() for path in there] == ["{}\n"]
    pool.ok("job", "download", name, "stdout.txt", "--to", "logs")
    assert "2 x 4" in (pool.tmp_path / "logs" / "stdout.txt").read_text()
    assert pool.ok("job", "why", name) == "succeeded: the job has succeeded, in its first attempt\n"
    table = pool.ok("job", "list")
    assert table.splitlines()[0].startswith("JOB ")
    assert f"{name}  succeeded" in table
    assert "succeeded" in pool.ok("job", "events", name)


def test_a_bare_command_is_a_job_and_its_exit_code_comes_back(pool: JobServer) -> None:
    program = "import os, sys; print(os.environ['WORD'], 'of', os.environ['WORLD_SIZE']); sys.exit(7)"
    done = pool.verb(
        *("job", "submit", "--nodes", "2", "--processes", "2", "--env", "WORD=hello", "--secret", "TOKEN", "-f"),
        *("--", "python3", "-c", program),
        env={"TOKEN": "hunter2-hunter2"},
    )
    assert done.returncode == 7, done.stderr
    assert "hello of 4" in done.stdout
    assert "failed with exit code 7: JobFailed" in done.stderr
    (job,) = pool.json("job", "list")
    assert job["name"].startswith("python3-")
    assert job["properties"]["secrets"] == [{"name": "TOKEN", "value": None}]
    assert pool.verb("job", "wait", job["name"], "-q").returncode == 7
    why = pool.ok("job", "why", job["name"])
    assert why.startswith("JobFailed: ")


def test_a_command_gets_its_words_as_they_were_typed_with_the_jobs_own_variables_in_them(pool: JobServer) -> None:
    """The node's shell replaced every $NAME in them, and a loop printed empty lines."""
    ask = ("job", "submit", "--follow", "--env", "LR=0 1", "--")
    assert pool.ok(*ask, "bash", "-c", 'for i in 1 2; do echo "$i $LR"; done') == "[0] 1 0 1\n[0] 2 0 1\n"
    words = ("$HOME", "${LR}/$AZ_BATCHAI_JOB_NAME_", "`date` \\ '\"", "$AZ_BATCHAI_CLUSTER_NAME")
    said = pool.ok(*ask, "printf", "%s\n", *words)
    assert said.replace("[0] ", "").splitlines() == ["$HOME", "0 1/", "`date` \\ '\"", "pool"]


def test_code_is_uploaded_once_and_jobs_start_in_a_copy_of_it(pool: JobServer, tmp_path: Path) -> None:
    code = tmp_path / "code"
    (code / "lib").mkdir(parents=True)
    (code / "train.py").write_text("import os, lib.model\nprint(lib.model.NAME, sorted(os.listdir('.')), flush=True)\n")
    (code / "lib" / "model.py").write_text("NAME = 'net'\n")
    (code / "data.bin").write_bytes(bytes(1000))
    (code / ".gyreignore").write_text("*.bin\n")
    ask = ("job", "submit", "--code", str(code), "--nodes", "2", "-f", "-n")
    first = pool.verb(*ask, "first", "--", "python3", "train.py")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "uploads 3 files" in first.stderr
    assert (
        first.stdout.count("net ['.gyreignore', '__pycache__', 'lib', 'train.py']")
        + (first.stdout.count("net ['.gyreignore', 'lib', 'train.py']"))
        == 2
    ), first.stdout
    assert pool.verb("job", "submit", "--code", str(code / "none"), "--", "true").returncode == 2
    # The same again is not uploaded, a job file may use it, and the archive goes with the last job that has it.
    file = pool.job_file(pool.custom("cat lib/model.py; pwd; echo $AZ_BATCHAI_JOB_WORK_DIR"))
    second = pool.verb("job", "submit", "--code", str(code), "-f", "-n", "second", str(file))
    assert second.returncode == 0, second.stderr
    assert "uploads" not in second.stderr
    text, here, there = second.stdout.splitlines()
    assert (text, here) == ("NAME = 'net'", there)
    archives = list(pool.folder.glob("code/*/*.tar"))
    assert len(archives) == 1
    pool.ok("job", "delete", "-y", "first")
    assert archives[0].exists()
    pool.ok("job", "delete", "-y", "second")
    assert not archives[0].exists()


def test_why_a_job_waits_and_what_would_start_it(pool: JobServer) -> None:
    big = pool.job_file(pool.custom("true", nodes=3))
    pool.ok("job", "submit", str(big), "-n", "big")
    assert "nodes" in pool.ok("job", "why", "big")
    assert pool.json("job", "show", "big")["properties"]["executionState"] == "queued"
    following = pool.start_verb("job", "logs", "-f", "big")
    assert following.stderr is not None
    assert b"big waits: " in following.stderr.readline()
    pool.ok("cluster", "resize", "pool", "--target", "3")
    assert pool.verb("job", "wait", "big").returncode == 0
    assert following.wait(timeout=60) == 0
    assert len(pool.json("cluster", "nodes", "pool")) == 3


def test_a_quota_holds_jobs_back_until_it_is_lifted(pool: JobServer) -> None:
    pool.ok("workspace", "quota", "default", "--cores", "0")
    assert pool.json("usage")[0]["limit"] == 0
    pool.ok("job", "submit", str(pool.job_file(pool.custom("true"))), "-n", "held")
    assert pool.ok("job", "why", "held").startswith("quota")
    pool.ok("workspace", "quota", "default", "--cores", "none")
    assert pool.verb("job", "wait", "held").returncode == 0
    refused = pool.verb("workspace", "quota", "default")
    assert (refused.returncode, "give --cores" in refused.stderr) == (2, True)


def test_jobs_are_stopped_and_deleted_and_nobody_is_asked_where_nobody_answers(pool: JobServer) -> None:
    pool.ok("job", "submit", str(pool.job_file(pool.custom("sleep 600"))), "-n", "long")
    wait_until(lambda: pool.json("job", "show", "long")["properties"]["executionState"] == "running")
    pool.ok("job", "stop", "long")
    assert pool.verb("job", "wait", "long").returncode not in (0, NOT_THE_JOBS)
    refused = pool.verb("job", "delete", "long")
    assert refused.returncode == 2
    assert "give -y" in refused.stderr
    pool.ok("job", "delete", "long", "-y")
    assert pool.verb("job", "show", "long").returncode == 1
    pool.ok("cluster", "delete", "pool", "-y")
    assert pool.json("cluster", "list") == []


@pytest.mark.parametrize("with_signal", [signal.SIGTERM, signal.SIGKILL])
def test_a_job_and_those_who_watch_it_outlive_a_restart_of_the_server(pool: JobServer, with_signal: int) -> None:
    pool.ok("job", "submit", str(pool.job_file(pool.custom(counting()))), "-n", "count")
    watching = pool.start_verb("job", "logs", "-f", "count")
    waiting = pool.start_verb("job", "wait", "count")
    assert watching.stdout is not None
    first = watching.stdout.readline()
    assert first == "line 1 é€\n".encode()
    pool.restart(with_signal)
    (pool.share / "go").touch()
    rest, errors = watching.communicate(timeout=120)
    assert watching.returncode == 0, errors
    text = (first + rest).decode()  # Whole characters.
    lines = text.split("\n")
    assert lines[-1] == "last é"
    assert lines[:-1] == [f"line {i} é€" for i in range(1, len(lines))], "a line is missing, or came twice"
    assert len(lines) > 40
    _, errors = waiting.communicate(timeout=120)
    assert waiting.returncode == 0, errors
    assert pool.json("job", "show", "count")["gyre"]["attempts"] == 1


def test_kills_of_the_server_at_random_moments_cost_a_follower_no_line_and_a_job_no_attempt(pool: JobServer) -> None:
    random = seeded_random()
    pool.ok("job", "submit", str(pool.job_file(pool.custom(counting()))), "-n", "count")
    watching = pool.start_verb("job", "logs", "-f", "count")
    for _ in range(rounds(everyday=4, long=40)):
        time.sleep(random.uniform(0, 0.6))  # The moment is what is random here.
        pool.restart(signal.SIGKILL)
    (pool.share / "go").touch()
    out, errors = watching.communicate(timeout=120)
    assert watching.returncode == 0, errors
    lines = out.decode().split("\n")
    assert lines == [*(f"line {i} é€" for i in range(1, len(lines))), "last é"]
    job = pool.json("job", "show", "count")
    assert (job["properties"]["executionState"], job["gyre"]["attempts"]) == ("succeeded", 1)


def test_one_user_sees_nothing_of_anothers_workspace(pool: JobServer) -> None:
    pool.ok("workspace", "create", "hers")
    pool.ok("user", "create", "ada", "--to", "ada.json")
    assert stat.S_IMODE((pool.tmp_path / "ada.json").stat().st_mode) == 0o600
    pool.ok("workspace", "add-owner", "hers", "ada")
    as_ada = {"GYRE_SERVER": str(pool.tmp_path / "ada.json")}
    assert json.loads(pool.ok("workspace", "list", "-o", "json", env=as_ada))[0]["name"] == "hers"
    assert len(json.loads(pool.ok("workspace", "list", "-o", "json", env=as_ada))) == 1
    pool.ok("job", "submit", str(pool.job_file(pool.custom("true"))), "-n", "mine")
    for words in (["job", "list"], ["job", "show", "mine"], ["job", "logs", "mine"], ["cluster", "list"], ["usage"]):
        there = pool.verb(*words, "-w", "default", env=as_ada)
        nowhere = pool.verb(*words, "-w", "nowhere", env=as_ada)
        assert there.returncode == nowhere.returncode == 1, words
        assert there.stderr.replace("default", "nowhere") == nowhere.stderr
    for words in (["user", "list"], ["user", "create", "eve"], ["workspace", "create", "more"]):
        refused = pool.verb(*words, env=as_ada)
        assert refused.returncode == 1, words
        assert "administrators" in refused.stderr
    assert pool.ok("workspace", "owners", "hers").split() == ["USER", own_user(pool), "ada"]


def own_user(server: JobServer) -> str:
    user: str = json.loads((server.folder / "server.json").read_text())["user"]
    return user


def test_a_wrong_token_is_one_sentence_and_an_old_one_is_void(server: JobServer) -> None:
    wrong = server.verb("job", "list", env={"GYRE_TOKEN": "0" * 64})
    assert wrong.returncode == 1
    assert len(wrong.stderr.splitlines()) == 1
    assert "token" in wrong.stderr
    old = server.ok("user", "create", "ada").strip()
    new = server.ok("user", "renew-token", "ada").strip()
    assert server.verb("workspace", "list", env={"GYRE_TOKEN": old}).returncode == 1
    server.ok("workspace", "list", env={"GYRE_TOKEN": new})
    server.ok("user", "delete", "ada", "-y")
    assert server.verb("workspace", "list", env={"GYRE_TOKEN": new}).returncode == 1


def test_tokens_are_in_no_file_of_the_servers_and_in_no_argument(server: JobServer) -> None:
    for file in (server.folder / "server.json", server.tmp_path / "config" / "gyre" / "server.json"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert "token" not in json.loads(file.read_text())
    server.ok("user", "create", "ada", "--to", "ada.json")
    token = json.loads((server.tmp_path / "ada.json").read_text())["token"]
    assert len(token) == 64
    for file in server.folder.rglob("*"):
        assert not file.is_file() or token.encode() not in file.read_bytes(), file


def test_one_server_works_in_a_folder_and_the_second_says_who(server: JobServer) -> None:
    second = server.verb("server", "--folder", str(server.folder), "--listen", f"unix:{server.folder.parent}/second")
    assert second.returncode == 1
    assert len(second.stderr.splitlines()) == 1
    assert server.process is not None
    assert f"process {server.process.pid}" in second.stderr
    server.ok("workspace", "list")  # It left the first one's files alone.


def test_a_place_that_is_taken_is_named_with_the_way_out(job_server: JobServer) -> None:
    job_server.start("--listen", "127.0.0.1:0")
    door, remote = job_server.places
    port = remote.removeprefix("https://").partition("#")[0]
    free = f"unix:{job_server.folder.parent}/second"
    for places in ([door], [free, port]):
        listen = [word for place in places for word in ("--listen", place)]
        second = job_server.verb("server", "--folder", str(job_server.folder.parent / "other"), *listen)
        assert second.returncode == 1
        assert len(second.stderr.splitlines()) == 1
        assert places[-1] in second.stderr
        assert "another place with --listen" in second.stderr
    job_server.ok("workspace", "list")  # Verbs still find the first one.


def test_on_its_machine_nobody_needs_a_token_and_over_tcp_everybody(job_server: JobServer) -> None:
    job_server.start("--listen", "127.0.0.1:0")
    door, remote = job_server.places
    assert stat.S_IMODE(Path(door.removeprefix("unix:")).stat().st_mode) == 0o666
    job_server.ok("workspace", "list", "--server", door)
    refused = job_server.verb("workspace", "list", "--server", remote)
    assert refused.returncode == 1
    assert f"there is no token for {remote}" in refused.stderr
    token = job_server.ok("user", "create", "ada").strip()
    job_server.ok("workspace", "list", "--server", remote, env={"GYRE_TOKEN": token})


def test_without_a_server_the_remedy_is_named_at_once(gyre: Path, tmp_path: Path) -> None:
    server = JobServer(gyre, tmp_path)
    unknown = server.verb("job", "list")
    assert unknown.returncode == 1
    assert "start one with `gyre server`" in unknown.stderr
    server.start()
    server.end()
    gone = server.verb("job", "list")
    assert gone.returncode == 1
    assert len(gone.stderr.splitlines()) == 1
    assert "no job server answers at unix:/" in gone.stderr
    server.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["job", "sumbit"], "did you mean 'submit'?"),
        (["job", "list", "--expermient", "x"], "did you mean --experiment?"),
        (["cluster", "crate", "x"], "did you mean 'create'?"),
        (["sever"], "did you mean 'server'?"),
        (["--vresion"], "unknown option --vresion; did you mean --version?"),
        (["server", "--lisen", "3"], "unknown option --lisen; did you mean --listen?"),
        (["usage", "--sevrer", "x"], "unknown option --sevrer; did you mean --server?"),
        (["job", "list", "--state", "qeued"], "--state: 'qeued' is not one of queued, "),
        (["job", "list", "--limit"], "--limit needs a value"),
        (["job", "submit"], "give a job file, or a command after --"),
        (["job", "submit", "--"], "there is no command after --"),
        (
            ["job", "submit", "train.py"],
            "train.py is not a job file; a command comes after `--`, as in `gyre job submit -- python train.py`",
        ),
        (["job", "submit", "python", "train.py"], "as in `gyre job submit -- python train.py`"),
        (["job", "submit", "-c", "pool", "./run.sh", "fast"], "as in `gyre job submit -- bash ./run.sh fast`"),
        (["job", "submit", "job.json", "pool"], "'pool' comes after the job file job.json; options come before it"),
        (["job", "submit", "x.json", "--", "true"], "a file or a command"),
        (["job", "submit", "--env", "X", "--", "true"], "--env takes NAME=VALUE"),
        (["job", "submit", "--secret", "NONE", "--", "true"], "no such variable"),
        (["cluster", "create", "x"], "give the number of nodes"),
        (["cluster", "create", "x", "-t", "1", "--max", "3"], "give either --target, or --min and --max"),
        (["cluster", "create", "x", "-t", "1", "--mount", "a=b"], "absolute path"),
        (["cluster", "resize", "x", "--target", "-1"], "--target: '-1' is not a whole number from 0 to 10000"),
        (["job", "submit", "--nodes", "0", "--", "true"], "--nodes: '0' is not a whole number of 1 or more"),
        (["job", "list", "--server", "http://10.0.0.1:1"], "https://HOST:PORT#FINGERPRINT"),
        (["job"], "name a verb"),
        (["job", "show", "a", "b"], "unexpected argument 'b'"),
    ],
)
def test_what_was_mistyped_is_named_with_what_was_meant(
    gyre: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        [str(gyre), *words], capture_output=True, text=True, env=environment, cwd=tmp_path, check=False, timeout=60
    )
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[0]


@pytest.mark.needs_root
@pytest.mark.parametrize(
    ("user", "said"), [("root", "jobs do not run as root"), ("nosuch", "there is no user 'nosuch' for jobs to run as")]
)
def test_a_user_as_whom_no_job_can_run_is_refused_before_a_job_is_lost(
    gyre: Path, tmp_path: Path, user: str, said: str
) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    words = [
        str(gyre),
        "server",
        "--listen",
        f"unix:{tmp_path}/door",
        "--folder",
        str(tmp_path / "server"),
        "--job-user",
        user,
    ]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False, timeout=60)
    assert done.returncode == 2
    assert f"--job-user {user}: {said}" in done.stderr.splitlines()[0]


def test_a_wrong_job_file_and_a_wrong_name_are_told_before_anything_starts(pool: JobServer) -> None:
    bad = pool.tmp_path / "bad.json"
    bad.write_text('{"properties": {\n"nodeCuont": 2}}')
    refused = pool.verb("job", "submit", str(bad))
    assert refused.returncode == 2
    assert "bad.json:2: " in refused.stderr
    pool.ok("job", "submit", str(pool.job_file(pool.custom("true"))), "-n", "train")
    mistyped = pool.verb("job", "show", "trian")
    assert mistyped.returncode == 1
    assert "did you mean 'train'?" in mistyped.stderr
    assert pool.verb("job", "wait", "train").returncode == 0
    nothing = pool.verb("job", "logs", "train")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    again = pool.verb("job", "submit", str(pool.job_file(pool.custom("false"))), "-n", "train")
    assert again.returncode == 1
    assert "jobs cannot be changed" in again.stderr
    assert pool.verb("job", "wait", "nothing").returncode == NOT_THE_JOBS


def test_a_cluster_or_workspace_that_is_not_there_is_answered_with_the_nearest_one(pool: JobServer) -> None:
    assert "there is no cluster 'poll'; did you mean 'pool'?" in pool.verb("cluster", "show", "poll").stderr
    assert "no workspace 'defualt' that you may use; did you mean 'default'?" in (
        pool.verb("job", "list", "-w", "defualt").stderr
    )
    submitted = pool.verb("job", "submit", "-c", "poool", "--", "true")
    assert "did you mean 'pool'?" in submitted.stderr


@pytest.mark.needs_root
def test_a_script_that_the_jobs_user_cannot_reach_is_named_with_the_folder_that_is_in_the_way(
    pool: JobServer,
) -> None:
    """The advice was to chmod +x the interpreter."""
    closed = pool.share / "closed"
    (closed / "bin").mkdir(parents=True)
    closed.chmod(0o700)
    (closed / "train.py").write_text("print('trained')\n")
    (closed / "bin" / "python").symlink_to("/usr/bin/python3")
    why = f"user 'nobody' cannot enter the folder {closed}, on the way to {closed}"
    for words in (["python3", str(closed / "train.py")], [str(closed / "bin" / "python"), "-c", "pass"]):
        done = pool.verb("job", "submit", "-f", "--", *words)
        assert done.returncode not in (0, NOT_THE_JOBS)
        assert why in done.stderr.splitlines()[-1], done.stderr
        assert "--job-user" in done.stderr
        assert "chmod" not in done.stdout + done.stderr


def test_a_mount_that_the_cluster_lacks_is_told_to_the_one_who_submits(pool: JobServer) -> None:
    file = pool.job_file({**pool.custom("true"), "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/extrenal"})
    refused = pool.verb("job", "submit", str(file))
    assert refused.returncode == 1
    assert "cannot run on cluster 'pool': stdOutErrPathPrefix of the job lies at $AZ_BATCHAI_MOUNT_ROOT/extrenal" in (
        refused.stderr
    )


def test_experiments_group_jobs_and_a_name_is_found_in_any_of_them(pool: JobServer) -> None:
    file = str(pool.job_file(pool.custom("true")))
    assert pool.ok("job", "submit", file, "-n", "a", "-e", "first").strip() == "first/a"
    assert pool.verb("job", "wait", "a").returncode == 0
    pool.ok("job", "submit", file, "-n", "a", "-e", "second")
    both = pool.verb("job", "show", "a")
    assert both.returncode == 2
    assert "second, first" in both.stderr or "first, second" in both.stderr
    assert pool.verb("job", "wait", "second/a").returncode == 0
    assert len(pool.json("job", "list", "-e", "first")) == 1
    assert [one["name"] for one in pool.json("experiment", "list")] == ["first", "second"]
    pool.ok("experiment", "delete", "first", "-y")
    assert len(pool.json("job", "list")) == 1


def test_output_is_json_or_yaml_for_programs_and_has_no_colours_on_a_pipe(pool: JobServer) -> None:
    assert pool.json("cluster", "show", "pool")["properties"]["scaleSettings"]["manual"]["targetNodeCount"] == 2
    yaml = pool.ok("cluster", "show", "pool", "-o", "yaml")
    assert "    manual:\n      nodeDeallocationOption: requeue\n      targetNodeCount: 2\n" in yaml
    for words in (["cluster", "list"], ["cluster", "show", "pool"], ["cluster", "nodes", "pool"], ["usage"]):
        assert "\x1b" not in pool.ok(*words)


def test_many_followers_of_one_job_each_get_all_of_it(pool: JobServer) -> None:
    pool.ok("job", "submit", str(pool.job_file(pool.custom(counting(10)))), "-n", "count")
    followers = [pool.start_verb("job", "logs", "-f", "count") for _ in range(8)]
    outputs: list[bytes] = [b""] * len(followers)

    def read(index: int) -> None:
        outputs[index] = followers[index].communicate(timeout=120)[0]

    threads = [threading.Thread(target=read, args=(index,)) for index in range(len(followers))]
    for thread in threads:
        thread.start()
    (pool.share / "go").touch()
    for thread in threads:
        thread.join()
    assert outputs[0].endswith("last é".encode())
    assert len(set(outputs)) == 1


def test_a_limit_that_is_none_is_refused_in_one_sentence(gyre: Path, tmp_path: Path) -> None:
    """A server that starts with another limit than was meant would be noticed only when it is reached."""
    for limit, words in (
        ("folowers=1", "--limit: there is no limit 'folowers'; did you mean 'followers'?"),
        (
            "x=1",
            "--limit: there is no limit 'x'; the limits are requests, followers, bodies, queued-jobs, code, job-logs",
        ),
        ("followers", "--limit: 'followers' must be NAME=N, as in followers=100"),
        ("bodies=0", "--limit bodies: '0' is not a whole number from 1 to 1000000000"),
        ("bodies=1k", "--limit bodies: '1k' is not a whole number from 1 to 1000000000"),
        ("requests=9999999999999999999999", "is not a whole number from 1 to 1000000000"),
    ):
        command = [str(gyre), "server", "--folder", str(tmp_path / "state"), "--limit", limit]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2, done.stderr
        assert words in done.stderr
        assert len(done.stderr.splitlines()) <= 2, done.stderr  # The second names --help.
        assert not (tmp_path / "state").exists()
