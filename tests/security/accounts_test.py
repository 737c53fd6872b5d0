"""Each user of a server that root runs is an account of the machine: jobs of two users neither read, signal nor trace
each other, nobody's job runs as root, and a user without an account is told what to do."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_server import JobServer
from running_job import wait_until

pytestmark = pytest.mark.needs_root

ACCOUNTS = {"ada": 20_001, "robert": 20_002}
MOUNT = "$AZ_BATCHAI_MOUNT_ROOT/external"
PYTHON = "/usr/bin/python3"  # Ours may be in a folder that others cannot enter.


class Team:
    """A server with two users: ada, who has the account of her name, and bob, who has the account robert."""

    def __init__(self, server: JobServer) -> None:
        self.server = server
        server.ok("cluster", "create", "pool", "-t", "3", "--mount", f"external={server.share}")
        for user, options in (("ada", []), ("bob", ["--account", "robert"])):
            server.ok("user", "create", user, "--to", f"{user}.json", *options)
            server.ok("workspace", "add-owner", "default", user)

    def submit(self, user: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.server.verb(
            "job", "submit", *words, env={"GYRE_SERVER": str(self.server.tmp_path / f"{user}.json")}
        )

    def output(self, user: str, *command: str, logs: str = "") -> str:
        done = self.submit(user, "-f", *(["--logs", logs] if logs else []), "--", *command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def team(gyre: Path, tmp_path: Path, evidence: list[Path]) -> Iterator[Team]:
    server = JobServer(gyre, tmp_path, ACCOUNTS)
    evidence.append(server.log)
    server.start()
    try:
        yield Team(server)
    finally:
        server.close()


def test_a_job_runs_as_its_submitters_account_and_roots_own_as_nobody(team: Team) -> None:
    line = "echo $(id -un) $(id -u) $(id -G) $USER; stat -c %a $TMPDIR"
    assert team.output("ada", "sh", "-c", line) == "[0] ada 20001 20001 ada\n[0] 700\n"
    assert team.output("bob", "sh", "-c", line) == "[0] robert 20002 20002 robert\n[0] 700\n"
    own = team.server.ok("job", "submit", "-f", "--", "id", "-un")
    assert own == "[0] nobody\n"
    jobs = [job["gyre"] for job in team.server.json("job", "list")]
    assert {job["submitter"]: job["account"] for job in jobs} == {"ada": "ada", "bob": "robert", "root": ""}
    for folder in ("/tmp", "/dev/shm"):
        assert [job for job in jobs if Path(folder, f"gyre-{job['uuid']}-1").exists()] == []


def test_a_user_without_an_account_is_refused_with_the_command_that_gives_one(team: Team) -> None:
    team.server.ok("user", "create", "eve", "--to", "eve.json")
    team.server.ok("workspace", "add-owner", "default", "eve")
    refused = team.submit("eve", "--", "true")
    assert refused.returncode == 1
    assert "gyre user change eve --account ACCOUNT" in refused.stderr
    assert "useradd eve" in refused.stderr
    for account, why in (("root", "is root, as which no job runs"), ("nosuch", "has no account 'nosuch'")):
        wrong = team.server.verb("user", "change", "eve", "--account", account)
        assert wrong.returncode == 1
        assert why in wrong.stderr
        assert team.server.verb("user", "create", "mallory", "--account", account).returncode == 1
    taken = team.server.verb("user", "change", "eve", "--account", "robert")
    assert taken.returncode == 1
    assert "account 'robert' is that of user 'bob'" in taken.stderr
    team.server.ok("user", "delete", "bob", "-y")
    team.server.ok("user", "change", "eve", "--account", "robert")
    assert team.output("eve", "id", "-un") == "[0] robert\n"


VICTIM = """
import json, os, sys, time
from multiprocessing import shared_memory
share = os.environ["AZ_BATCHAI_MOUNT_ROOT"] + "/external/"
os.umask(0)
memory = open("/dev/shm/adas-memory", "w"); memory.write("secret"); memory.flush()
files = [os.environ["TMPDIR"] + "/secret", os.environ["AZ_BATCHAI_JOB_TEMP"] + "/secret"]
for file in files:
    with open(file, "w") as out: out.write("secret")
with open(share + "victim.new", "w") as out:
    json.dump({"pid": os.getpid(), "files": files + ["/dev/shm/adas-memory"]}, out)
os.rename(share + "victim.new", share + "victim")
while not os.path.exists(share + "go"): time.sleep(0.05)
print("undisturbed", [open(file).read() for file in files])
"""

ATTACKER = """
import ctypes, json, os, signal, sys
victim = json.load(open(sys.argv[1]))
libc = ctypes.CDLL(None, use_errno=True)
def tried(attack):
    try:
        return attack() or "done"
    except OSError as error:
        return error.strerror
def trace():
    if libc.ptrace(16, victim["pid"], 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
proc = "/proc/%d/" % victim["pid"]
attacks = {"kill": lambda: os.kill(victim["pid"], signal.SIGKILL), "trace": trace}
for name in ("environ", "mem", "maps", "fd", "root/etc/hostname"):
    attacks[name] = lambda path=proc + name: os.listdir(path) if path.endswith("fd") else open(path, "rb").read(1)
attacks["memory through proc"] = lambda: open(proc + "root/dev/shm/adas-memory").read()
for file in victim["files"]:
    attacks[file] = lambda file=file: open(file).read()
    attacks["remove " + file] = lambda file=file: os.remove(file)
    attacks["list " + file] = lambda file=file: [os.listdir(os.path.dirname(file)), open(file)] and None
print(json.dumps({name: str(tried(attack)) for name, attack in attacks.items()}))
"""


def test_the_job_of_another_user_is_neither_read_killed_traced_nor_its_memory_mapped(team: Team) -> None:
    share = team.server.share
    (share / "victim.py").write_text(VICTIM)
    (share / "attacker.py").write_text(ATTACKER)
    name = team.submit("ada", "--", PYTHON, "$AZ_BATCHAI_MOUNT_ROOT/external/victim.py").stdout.strip()
    deadline = time.monotonic() + 60
    while not (share / "victim").exists():
        assert time.monotonic() < deadline, team.server.ok("job", "why", name)
        time.sleep(0.05)
    mount = "$AZ_BATCHAI_MOUNT_ROOT/external/"
    of_job = team.output("bob", PYTHON, mount + "attacker.py", mount + "victim").removeprefix("[0] ")
    # The same account, outside any job.
    of_shell = subprocess.run(
        [PYTHON, str(share / "attacker.py"), str(share / "victim")],
        capture_output=True,
        text=True,
        user=ACCOUNTS["robert"],
        group=ACCOUNTS["robert"],
        extra_groups=[],
        cwd="/",
        check=True,
    ).stdout
    for said in (of_job, of_shell):
        for attack, outcome in json.loads(said).items():
            assert outcome in ("Permission denied", "Operation not permitted", "No such file or directory"), attack
    (share / "go").touch()
    assert team.server.verb("job", "wait", name).returncode == 0
    logs = team.server.ok("job", "logs", name)
    assert "undisturbed ['secret', 'secret']" in logs
    assert not os.path.exists("/dev/shm/adas-memory")


def test_jobs_of_one_user_on_several_nodes_share_their_memory(team: Team) -> None:
    """Ranks of one machine exchange data there, whichever virtual nodes they are on."""
    write = 'import os\nif os.environ["RANK"] == "0": open("/dev/shm/ranks", "w").write("x")\n'
    read = 'import time\nwhile not os.path.exists("/dev/shm/ranks"): time.sleep(0.05)\nprint("seen")\n'
    done = team.submit("ada", "--nodes", "2", "-f", "--", PYTHON, "-c", write + read)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] seen", "[1] seen"]


def test_two_users_jobs_of_one_name_keep_their_nodes_files_apart(team: Team) -> None:
    """Logs that lie on no mount are their account's alone on the node, and the server's once it has them."""
    go = Path(f"{team.server.share}/go")
    name = team.submit("ada", "--", "sh", "-c", f"echo private; until [ -e {go} ]; do sleep 0.02; done").stdout.strip()

    def denied(pattern: str) -> bool:
        wait_until("the log is there", lambda: any(team.server.folder.glob(pattern)))
        [log] = team.server.folder.glob(pattern)
        return "Permission denied" in as_account("robert", "cat", str(log)).stderr

    assert denied("nodes/*/jobs/*/*/workspaces/**/stdout.txt")
    assert denied("logs/*/*/*/workspaces/**/stdout.txt")
    go.touch()
    assert team.server.verb("job", "wait", name).returncode == 0
    assert not list(team.server.folder.glob("nodes/*/**/stdout.txt"))
    assert team.server.ok("job", "logs", name) == "[0] private\n"


def as_account(user: str, *command: str) -> subprocess.CompletedProcess[str]:
    account = ACCOUNTS[user]
    return subprocess.run(command, capture_output=True, text=True, user=account, group=account, check=False)


@pytest.mark.parametrize("mode", [0o1777, 0o755], ids=["open to all", "closed"])
@pytest.mark.parametrize("below", ["", "/storagedir"], ids=["mount", "directory below"])
def test_no_user_can_replace_what_others_have_on_a_mount_that_belongs_to_root(
    team: Team, below: str, mode: int
) -> None:
    top = Path(f"{team.server.share}{below}")
    top.mkdir(exist_ok=True)
    for folder in (team.server.share, top):
        folder.chmod(mode)
    assert team.output("ada", "echo", "hers", logs=MOUNT + below) == "[0] hers\n"
    assert team.output("bob", "echo", "his", logs=MOUNT + below) == "[0] his\n"
    [log] = [each for each in top.rglob("stdout.txt") if each.stat().st_uid == ACCOUNTS["robert"]]
    above = [folder for folder in log.parents if folder.is_relative_to(top)][2:]
    assert {folder.stat().st_uid for folder in above} == {0}
    for folder in [log.parents[1], *above]:
        if folder != top:
            moved = as_account("ada", "mv", str(folder), f"{folder}-moved")
            assert moved.returncode != 0, folder
    assert as_account("ada", "mkdir", str(log.parents[2] / "mine")).returncode != 0


SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
SQUATTERS = {
    "folder": f"mkdir {SUBSCRIPTION}; chmod 777 {SUBSCRIPTION}",
    "link": f"mkdir mine; chmod 777 mine; ln -s mine {SUBSCRIPTION}",
    "link out": f"ln -s /tmp {SUBSCRIPTION}",
}


@pytest.mark.parametrize("squat", SQUATTERS.values(), ids=list(SQUATTERS))
def test_who_was_on_roots_mount_before_root_gets_no_jobs_of_others_into_hands(team: Team, squat: str) -> None:
    team.server.share.chmod(0o1777)
    assert as_account("ada", "sh", "-c", f"cd {team.server.share}; {squat}").returncode == 0
    name = team.submit("bob", "--logs", MOUNT, "--", "true").stdout.strip()
    said = team.server.verb("job", "wait", name)
    assert said.returncode == 125
    place = team.server.share / SUBSCRIPTION
    assert f"'{place}' is not root's but a {'link' if place.is_symlink() else 'folder'} of 'ada'" in said.stderr
    assert f"`mv {place} {place}.ada`" in said.stderr
    assert not [each for each in team.server.share.rglob("*") if each.lstat().st_uid == ACCOUNTS["robert"]]
    place.rename(f"{place}.ada")
    assert team.output("bob", "echo", "his", logs=MOUNT) == "[0] his\n"


def test_a_directory_that_a_prefix_names_and_that_is_missing_on_roots_open_mount_is_roots(team: Team) -> None:
    team.server.share.chmod(0o1777)
    assert team.output("ada", "echo", "hers", logs=f"{MOUNT}/logs/of-all") == "[0] hers\n"
    for folder in (team.server.share / "logs", team.server.share / "logs/of-all"):
        assert (folder.stat().st_uid, folder.stat().st_mode & 0o7777) == (0, 0o1777)
    assert as_account("ada", "mv", f"{team.server.share}/logs", f"{team.server.share}/mine").returncode != 0


def test_the_error_of_a_place_names_a_link_in_it_and_nothing_that_would_open_where_it_leads(team: Team) -> None:
    team.server.share.chmod(0o1777)
    (team.server.tmp_path / "admins").mkdir(mode=0o700)
    link = team.server.share / "logs"
    link.symlink_to(team.server.tmp_path / "admins")
    os.lchown(link, ACCOUNTS["ada"], ACCOUNTS["ada"])
    name = team.submit("bob", "--logs", f"{MOUNT}/logs", "--", "true").stdout.strip()
    said = team.server.verb("job", "wait", name).stderr
    assert f"'{link}' is not root's but a link of 'ada'" in said
    assert "chmod" not in said


def test_a_missing_directory_of_a_prefix_on_a_closed_mount_is_named_with_the_command_that_makes_it(team: Team) -> None:
    team.server.share.chmod(0o755)
    name = team.submit("bob", "--logs", f"{MOUNT}/logs", "--", "true").stdout.strip()
    said = team.server.verb("job", "wait", name).stderr
    assert f"belongs to root and has no folder 'logs': `mkdir {team.server.share}/logs`" in said


def test_roots_folders_below_a_mount_that_others_cannot_enter_are_not_for_jobs(team: Team) -> None:
    (team.server.share / "admins").mkdir(mode=0o700)
    name = team.submit("ada", "--logs", f"{MOUNT}/admins", "--", "true").stdout.strip()
    assert team.server.verb("job", "wait", name).returncode != 0
    assert list((team.server.share / "admins").iterdir()) == []


def test_nobody_else_can_hold_the_lock_of_a_nodes_agent(team: Team) -> None:
    team.output("ada", "true")
    locks = list(team.server.folder.glob("nodes/*/agent.lock"))
    assert locks
    for lock in locks:
        assert as_account("ada", "flock", "--nonblock", str(lock), "true").returncode == 66  # Cannot open it.


def open_to_all_by_another(team: Team) -> None:
    """A directory that root does not own."""
    team.server.share.chmod(0o1777)
    os.chown(team.server.share, 65_534, 65_534)


def test_the_first_users_folders_in_anothers_directory_that_is_open_to_all_are_open_to_the_next_user(
    team: Team,
) -> None:
    open_to_all_by_another(team)
    assert team.output("ada", "echo", "hers", logs=MOUNT) == "[0] hers\n"
    assert team.output("bob", "echo", "his", logs=MOUNT) == "[0] his\n"
    owners = {log.stat().st_uid: log for log in team.server.share.rglob("stdout.txt")}
    assert set(owners) == set(ACCOUNTS.values())
    jobs = owners[ACCOUNTS["ada"]].parents[3]
    assert jobs.stat().st_mode & 0o7777 == 0o1777
    assert owners[ACCOUNTS["ada"]].parents[1].stat().st_mode & 0o022 == 0  # The job's own is hers.
    remove = ["rm", "-r", str(owners[ACCOUNTS["ada"]].parents[2])]
    done = subprocess.run(remove, capture_output=True, text=True, user=20_002, group=20_002, check=False)
    assert done.returncode != 0


def test_a_folder_of_another_account_in_a_jobs_way_is_named_with_what_opens_it(team: Team) -> None:
    open_to_all_by_another(team)
    assert team.output("ada", "echo", "hers", logs=MOUNT) == "[0] hers\n"
    [log] = team.server.share.rglob("stdout.txt")
    log.parents[3].chmod(0o755)
    name = team.submit("bob", "--logs", MOUNT, "--", "true").stdout.strip()
    said = team.server.verb("job", "wait", name).stderr
    # As it is called where she can see it, not in the mount namespace of the job.
    assert f"'{log.parents[3]}' belongs to 'ada'. If it belongs to root, " in said
    assert f"`chmod a+rwxt {log.parents[3]}`" in said


LISTS_FILES = """
import os
print("begun")
for fd in os.listdir("/proc/self/fd"):
    try:
        print(os.readlink(f"/proc/self/fd/{fd}"))
    except OSError:
        pass
"""


def with_open_files(*files: Path) -> list[str]:
    """The beginning of a command that inherits them, as from a supervisor that has forgotten them."""
    opened = " ".join(f"{7 + place}<{file}" for place, file in enumerate(files))
    return ["sh", "-c", f'exec {opened} && exec "$@"', "sh"]


def test_files_that_the_server_was_started_with_do_not_go_on_to_jobs(gyre: Path, tmp_path: Path) -> None:
    secret = tmp_path / "of-root-alone"
    secret.write_text("secret")
    secret.chmod(0o600)
    server = JobServer(gyre, tmp_path, ACCOUNTS)
    server.prefix += with_open_files(secret)
    server.start()
    try:
        output = Team(server).output("ada", PYTHON, "-c", LISTS_FILES)
    finally:
        server.close()
    assert "begun" in output
    assert "of-root-alone" not in output


def test_files_that_job_run_was_started_with_do_not_go_on_to_the_job(gyre: Path, tmp_path: Path) -> None:
    secret = tmp_path / "of-root-alone"
    secret.write_text("secret")
    secret.chmod(0o600)
    settings = {"program": [PYTHON, "-c", LISTS_FILES]}
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"properties": {"nodeCount": 1, "gyreSettings": settings}}))
    done = subprocess.run(
        [*with_open_files(secret), str(gyre), "job", "run", str(job)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "begun" in done.stdout
    assert "of-root-alone" not in done.stdout


LISTENS = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", 0))
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(listener.getsockname()[1]))
os.rename(sys.argv[1] + ".new", sys.argv[1])
while True:
    connection, peer = listener.accept()
    for line in open("/proc/net/tcp"):
        fields = line.split()
        if fields[1].endswith(f":{peer[1]:04X}"):
            connection.sendall(fields[7].encode())
    connection.close()
"""


def test_commands_run_in_a_job_for_its_submitter_alone_and_as_its_account(team: Team) -> None:
    begun = team.server.share / "begun"
    line = f"touch {begun}; exec sleep 1000"
    assert team.submit("ada", "-n", "mine", "--", "/bin/sh", "-c", line).returncode == 0
    wait_until("the job runs", begun.exists)
    words = ("job", "shell", "mine", "--", "/bin/sh", "-c", "id -u; id -g; cat /proc/self/status")
    refused = team.server.verb(*words, env={"GYRE_SERVER": str(team.server.tmp_path / "bob.json")})
    assert refused.returncode == 125
    assert "only user 'ada', who submitted job 'mine', and administrators" in refused.stderr
    for user in ("ada", "root"):
        server = {} if user == "root" else {"GYRE_SERVER": str(team.server.tmp_path / f"{user}.json")}
        done = team.server.verb(*words, env=server)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert lines[:2] == ["20001", "20001"]
        assert [line for line in lines if line.startswith("CapEff")] == ["CapEff:\t0000000000000000"]
    audit = [json.loads(line) for line in (team.server.folder / "audit.log").read_text().splitlines()]
    ours = [(one["user"], one["status"]) for one in audit if one["what"].endswith("/jobs/mine/shell")]
    assert ours == [("bob", 403), ("ada", 101), ("root", 101)]


def test_a_jobs_ports_are_forwarded_to_its_submitter_alone_and_as_its_account(team: Team) -> None:
    """The other user owns the workspace too, and may stop the job; but its nodes are reached as its account."""
    port = team.server.share / "port"
    assert team.submit("ada", "-n", "listens", "--", PYTHON, "-c", LISTENS, str(port)).returncode == 0
    wait_until("the job listens", port.exists)
    words = ("job", "forward", "listens", f"0:{port.read_text()}")
    refused = team.server.verb(*words, env={"GYRE_SERVER": str(team.server.tmp_path / "bob.json")})
    assert refused.returncode == 1
    assert "only user 'ada', who submitted job 'listens', and administrators" in refused.stderr
    for user in ("ada", "root"):
        server = {} if user == "root" else {"GYRE_SERVER": str(team.server.tmp_path / f"{user}.json")}
        command = [str(team.server.gyre), *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env={**team.server.environment, **server}) as verb:
            assert verb.stdout is not None
            local = int(verb.stdout.readline().split()[0].rpartition(b":")[2])
            with socket.create_connection(("127.0.0.1", local), timeout=60) as connection:
                assert connection.recv(100) == b"20001"
            verb.terminate()
    audit = [json.loads(line) for line in (team.server.folder / "audit.log").read_text().splitlines()]
    ours = [(one["user"], one["status"]) for one in audit if one["what"].endswith("/jobs/listens/forward")]
    assert ours[:3] == [("bob", 403), ("ada", 204), ("ada", 101)]
