"""Behind `gyre run -H`: starts one `gyre run` (the agent) on each host, all at once, and watches over them. Other hosts
are reached through ssh, this one needs none.

Nothing secret is in anybody's arguments or environment: the job's description, its key included, goes through the
agent's stdin. That stdin then stays open for as long as the job may run, and brings what the ranks of a host must know
of other hosts' ranks. An agent that sees its end stops its ranks: whatever ends this process, nothing stays behind on
any host.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import shlex
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# A host that has not answered by then cannot be reached; ssh itself gives up a little earlier. Whoever named a dead
# host is told within 10 s, the start of this program included.
REACH_SECONDS = 7.0
CONNECT_SECONDS = 6
# From the end of an agent's stdin, or of its grace, until its ssh is killed.
FAREWELL_SECONDS = 8.0
# How long after the first failure a stronger one may still be told: a rank killed outright explains the others' errors.
SETTLE_SECONDS = 0.4
LONGEST_LINE_BYTES = 1 << 20
MOST_RANKS_PER_HOST = 4096
UNREACHABLE = 255
SIGNAL_BASE = 128

# How an agent says that a rank of its host has ended, which ranks of other hosts may be waiting for.
_NOTE = re.compile(rb"gyre-agent: (rank \d+ \(host .*\n)")

# What the ranks of other hosts get of our environment, beside what --env names.
_HANDED_ON = re.compile(
    r"^(PATH|PYTHON\w*|VIRTUAL_ENV|LD_LIBRARY_PATH|LANG|LC_\w+|TZ|OMP_\w+|MKL_\w+|OPENBLAS_\w+|GYRE_\w+|HOROVOD_\w+|"
    r"TORCH\w*|CUDA_\w+|NO_COLOR)="
)
_NOT_HANDED_ON = re.compile(
    r"^(GYRE_(RANK|SIZE|LOCAL_\w+|RENDEZVOUS\w*|KEY_\w+|VERDICT_FD|ENDED_FD|LAUNCH|PROGRAM)|TORCHELASTIC_\w+)="
)


class UsageError(Exception):
    """The person mistyped."""


@dataclass
class Host:
    """One of -H: a name for ssh (perhaps with a user), and how many ranks it takes."""

    name: str
    slots: int

    @property
    def is_here(self) -> bool:
        """Whether it is plainly this machine. With a user, or another of our addresses, it is reached through ssh."""
        own_name = socket.gethostname()
        return self.name.lower() in {"localhost", "127.0.0.1", own_name.lower(), own_name.partition(".")[0].lower()}

    def address_for(self, others: list[Host]) -> str:
        """Where `others` find it."""
        strangers = [other for other in others if not other.is_here]
        if self.is_here and strangers:
            return _own_address_towards(strangers[0]) or socket.gethostname()
        return self.name.rpartition("@")[2]


def _own_address_towards(host: Host) -> str | None:
    """This machine's address on the way there. Nothing is sent."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host.address_for([]), 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(place)
            return str(probe.getsockname()[0])
    except OSError:
        return None


def parse_hosts(text: str) -> list[Host]:
    """ "node1:4,user@node2:2"; without a number, one slot."""
    return [_parse_host(word, f"-H: '{word}'") for word in text.split(",") if word]


def parse_host_file(text: str) -> list[Host]:
    """Lines "node1 slots=4", "node1:4" or "node1"; # begins a comment."""
    hosts = []
    for number, line in enumerate(text.splitlines(), 1):
        shown = f"--hostfile, line {number}: '{line.strip()}'"
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) == 1:
            hosts.append(_parse_host(words[0], shown))
        elif len(words) == 2 and words[1].startswith("slots="):
            hosts.append(_parse_host(f"{words[0]}:{words[1].removeprefix('slots=')}", shown))
        else:
            raise UsageError(f"{shown} is no line like `node1 slots=4`")
    if not hosts:
        raise UsageError("--hostfile: it names no host")
    return hosts


def read_host_file(path: str) -> list[Host]:
    try:
        return parse_host_file(Path(path).read_text())
    except OSError as error:
        raise UsageError(f"--hostfile: cannot read '{path}': {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--hostfile: '{path}' is no text") from error


def _parse_host(word: str, shown: str) -> Host:
    match = re.fullmatch(r"([A-Za-z0-9_@.\-]+)(?::([0-9]+))?", word)
    if match is None or match[1].startswith("-"):
        raise UsageError(f"{shown} is no host with slots, like `node1:4`")
    slots = int(match[2] or 1)
    if not 1 <= slots <= MOST_RANKS_PER_HOST:
        raise UsageError(f"{shown}: a host has 1 to {MOST_RANKS_PER_HOST} slots")
    return Host(match[1], slots)


def divide(hosts: list[Host], ranks: int) -> list[Host]:
    """The hosts that are used, with as many slots as they get ranks. `ranks` 0: all slots."""
    if not hosts:
        raise UsageError("-H: no host was named")
    slots = sum(host.slots for host in hosts)
    if ranks > slots:
        raise UsageError(f"-n {ranks}: the hosts have {slots} slots in all")
    left = ranks or slots
    used = []
    for host in hosts:
        if left > 0:
            used.append(Host(host.name, min(host.slots, left)))
            left -= used[-1].slots
    return used


@dataclass
class Agent:
    """The `gyre run` of one host, seen from here."""

    host: Host
    process: asyncio.subprocess.Process | None = None
    ports: tuple[int, int] = (0, 0)
    errors: list[str] = field(default_factory=list)
    failure: str = ""

    async def reach(self, command: list[str], by_hand: str) -> None:
        """Starts it, and waits for its first words. `failure` says what went wrong. `by_hand`: how a person logs in."""
        try:
            self.process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=LONGEST_LINE_BYTES,
                process_group=0,  # A Ctrl-C is for us, not for ssh.
            )
        except OSError as error:
            self.failure = f"{command[0]}: {error.strerror}"
            return
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        try:
            async with asyncio.timeout(REACH_SECONDS):
                # A login script may say something first.
                while line := (await self.process.stdout.readline()).decode(errors="replace"):
                    if match := re.fullmatch(r"gyre-agent (\d+) (\d+)\n", line):
                        self.ports = (int(match[1]), int(match[2]))
                        return
                said = (await self.process.stderr.read()).decode(errors="replace").splitlines()
                code = await self.process.wait()
        except TimeoutError:
            self.failure = f"no answer within {REACH_SECONDS:g} s"
            return
        words = [line.strip() for line in said if line.strip()]
        self.failure = words[-1] if words else f"{command[0]} ended with exit code {code}"
        if "Host key verification failed" in self.failure:
            self.failure += f" (`{by_hand}`, once and by hand, makes it known)"

    def tell(self, description: dict[str, Any]) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(_with_bytes_as_characters(description)).encode() + b"\n")

    def let_go(self) -> None:
        """Closes its stdin: it stops its ranks and ends."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()

    def hear(self, note: bytes) -> None:
        """What the agent of another host has said, for the ranks of this one."""
        if self.process is not None and self.process.stdin is not None and not self.process.stdin.is_closing():
            self.process.stdin.write(note)

    async def pass_output_on(self, take_note: Callable[[bytes], None]) -> int:
        """Until it ends. Lines come whole, with their ranks in front; what is for the other agents goes to
        `take_note`. Returns the exit code."""
        assert self.process is not None
        await asyncio.gather(
            _pass_on(self.process.stdout, sys.stdout.buffer, take_note),
            _pass_on(self.process.stderr, sys.stderr.buffer, take_note),
        )
        return await self.process.wait()


async def _pass_on(source: asyncio.StreamReader | None, target: Any, take_note: Callable[[bytes], None]) -> None:
    assert source is not None
    while line := await source.readline():
        if note := _NOTE.fullmatch(line):
            take_note(note[1])
            continue
        target.write(line)
        target.flush()


# Variables, arguments and paths are bytes, and JSON has text only: in a description each byte is one character.
# Python's own strings for such bytes are os.fsdecode()'s.


def _with_bytes_as_characters(value: Any) -> Any:
    return _with_strings(value, lambda text: os.fsencode(text).decode("latin-1"))


def _with_characters_as_bytes(value: Any) -> Any:
    return _with_strings(value, lambda text: os.fsdecode(text.encode("latin-1")))


def _with_strings(value: Any, convert: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return convert(value)
    if isinstance(value, dict):
        return {name: _with_strings(each, convert) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_strings(each, convert) for each in value]
    return value


def login_words(job: dict[str, Any]) -> list[str]:
    """ssh as the options of this job want it."""
    words = shlex.split(job["ssh"])
    if job["ssh_port"]:
        words += ["-p", job["ssh_port"]]
    if job["ssh_identity"]:
        words += ["-i", job["ssh_identity"]]
    return words


def agent_command(job: dict[str, Any], host: Host) -> list[str]:
    here = os.environ.get("GYRE_PROGRAM", "gyre")
    if host.is_here:
        return [here, "run", "--agent"]
    command = [*login_words(job), "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_SECONDS}"]
    command += ["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=2"]
    # The same place as here, if Gyre is installed there too; else whatever the login's PATH has.
    program = shlex.quote(here)
    script = f"if [ -x {program} ]; then exec {program} run --agent; else exec gyre run --agent; fi"
    return [*command, host.name, f"exec sh -c {shlex.quote(script)}"]


def descriptions(job: dict[str, Any], agents: list[Agent]) -> list[dict[str, Any]]:
    """What each agent is told: the whole job, its own ranks, and the key."""
    own = {entry.partition("=")[0]: entry for entry in job["environment"]}
    handed_on = [entry for entry in own.values() if _HANDED_ON.match(entry) and not _NOT_HANDED_ON.match(entry)]
    size = sum(agent.host.slots for agent in agents)
    first = agents[0]
    address = first.host.address_for([agent.host for agent in agents])
    common = {
        "command": job["command"],
        "environment": [*handed_on, *job["variables"]],
        "size": size,
        "nodes": len(agents),
        "master_address": address,
        "master_port": first.ports[0],
        "rendezvous": f"tcp:{address}:{first.ports[1]}",
        "key": secrets.token_hex(32),
        "folder": job["folder"],
        "grace_seconds": job["grace_seconds"],
        "timeline": job["timeline"],
        "log_dir": job["log_dir"],
        "log_level": job["log_level"],
        "run_id": job["run_id"],
        "role": job["role"],
        "verbose": job["verbose"],
    }
    told = []
    first_rank = 0
    for node, agent in enumerate(agents):
        told.append({**common, "node": node, "ranks": agent.host.slots, "first_rank": first_rank})
        first_rank += agent.host.slots
    return told


class Watch:
    """The agents of one job, from the first connection to the last end."""

    def __init__(self, job: dict[str, Any], hosts: list[Host]) -> None:
        self._job = job
        self._agents = [Agent(host) for host in hosts]
        self._stopped_by: int | None = None
        self._ended = asyncio.Event()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            loop.add_signal_handler(number, self._stop, number)
        try:
            login = login_words(self._job)
            await asyncio.gather(
                *(
                    agent.reach(agent_command(self._job, agent.host), shlex.join([*login, agent.host.name]))
                    for agent in self._agents
                )
            )
            unreachable = [agent for agent in self._agents if agent.failure]
            if unreachable:
                reasons = "; ".join(f"{agent.host.name}: {agent.failure}" for agent in unreachable)
                say(f"cannot start a rank on host{'s' if len(unreachable) > 1 else ''} {reasons}")
                return UNREACHABLE
            for agent, description in zip(self._agents, descriptions(self._job, self._agents), strict=True):
                agent.tell(description)
            return await self._wait_for_end()
        finally:
            await self._end_all()

    async def _wait_for_end(self) -> int:
        names = {
            asyncio.create_task(agent.pass_output_on(self._note_for_others(agent))): agent for agent in self._agents
        }
        running = set(names)
        failures: list[tuple[int, Agent]] = []
        while running and self._stopped_by is None:
            wait = SETTLE_SECONDS if failures else None
            stop = asyncio.create_task(self._ended.wait())
            done, _ = await asyncio.wait({*running, stop}, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            ended = [task for task in done if task in names]
            running.difference_update(ended)
            failures += [(task.result(), names[task]) for task in ended if task.result() != 0]
            if failures and not ended:
                break
        for agent in self._agents:
            agent.let_go()
        if running:
            await asyncio.wait(running, timeout=self._job["grace_seconds"] + FAREWELL_SECONDS)
        if self._stopped_by is not None:
            say(f"stopped by {signal.Signals(self._stopped_by).name}; the ranks on all hosts have ended")
            return 128 + self._stopped_by
        if not failures:
            return 0
        code, agent = max(failures, key=lambda failure: evidence(failure[0]))  # The first of equals.
        if code == UNREACHABLE:
            say(f"lost the connection to host {agent.host.name}; its ranks end by themselves")
        elif len(self._agents) > 1:
            say(f"the failure was on host {agent.host.name}; the ranks on the other hosts were ended")
        return code

    def _note_for_others(self, origin: Agent) -> Callable[[bytes], None]:
        def tell(note: bytes) -> None:
            for agent in self._agents:
                if agent is not origin:
                    agent.hear(note)

        return tell

    def _stop(self, number: int) -> None:
        if self._stopped_by is not None:  # For the second time: at once.
            for agent in self._agents:
                _kill(agent)
        self._stopped_by = self._stopped_by or number
        self._ended.set()
        for agent in self._agents:
            agent.let_go()

    async def _end_all(self) -> None:
        """Lets every agent clean up behind itself; what does not end by itself is killed."""
        waits = []
        for agent in self._agents:
            agent.let_go()
            if agent.failure:
                _kill(agent)
            if agent.process is not None:
                waits.append(asyncio.create_task(agent.process.wait()))
        if waits:
            _, late = await asyncio.wait(waits, timeout=self._job["grace_seconds"] + FAREWELL_SECONDS)
            if late:
                for agent in self._agents:
                    _kill(agent)
                await asyncio.wait(late)


def evidence(code: int) -> int:
    """How surely a host's exit code is the cause, and no consequence of another host's failure: the rule by which each
    agent judges its own ranks (gyre/launch/internal/first_failure.h), as far as an exit code tells."""
    if code == UNREACHABLE:
        return 0
    if code <= SIGNAL_BASE:
        return 1
    may_be_a_consequence = code - SIGNAL_BASE in (signal.SIGABRT, signal.SIGPIPE)
    return 2 if may_be_a_consequence else 3


def _kill(agent: Agent) -> None:
    if agent.process is not None and agent.process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            agent.process.kill()


def say(words: str) -> None:
    print(f"gyre run: {words}", file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Called by the program `gyre` with the number of a descriptor that holds the job as JSON."""
    with os.fdopen(int(arguments[0]), "rb") as source:
        source.seek(0)
        job = _with_characters_as_bytes(json.load(source))
    try:
        hosts = read_host_file(job["host_file"]) if job["host_file"] else parse_hosts(job["hosts"])
        used = divide(hosts, job["ranks"])
    except UsageError as error:
        say(f"{error}\nSee `gyre run --help`.")
        return 2
    return asyncio.run(Watch(job, used).run())
