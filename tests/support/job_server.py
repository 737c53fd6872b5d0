"""A job server for tests: started, ended and killed like a user's, and its verbs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from process_tree import TEST_VARIABLE

LONGEST_START_SECONDS = 60
LONGEST_VERB_SECONDS = 120
LISTENS = re.compile(r"listens on ([^;]+);")


def own_accounts(folder: Path, accounts: Mapping[str, int]) -> list[str]:
    """The beginning of a command that sees these accounts, each with a group of its own, next to the machine's."""
    for name, field in (("passwd", "::/nonexistent:/bin/sh"), ("group", "")):
        lines = [f"{account}:x:{number}:{number if field else ''}{field}\n" for account, number in accounts.items()]
        (folder / name).write_text(Path("/etc", name).read_text() + "".join(lines))
    binds = " && ".join(f"mount --bind {folder / name} /etc/{name}" for name in ("passwd", "group"))
    return ["unshare", "--mount", "sh", "-c", f'{binds} && exec "$@"', "sh"]


class JobServer:
    """`gyre server` in a folder of its own at a socket of its own, with a share that the jobs' user can use.

    `accounts`: by name, with their numbers; they exist for the server and its nodes alone, in the /etc of a mount
    namespace of its own. `run_as`: the one of them that starts the server; the tests' own if empty. Both need root."""

    def __init__(self, gyre: Path, tmp_path: Path, accounts: Mapping[str, int] | None = None, run_as: str = "") -> None:
        self.accounts = dict(accounts or {})
        self.run_as = run_as
        self.gyre = gyre
        self.tmp_path = tmp_path
        # Short, because sockets are made in it, and not in a folder that is root's alone.
        self._place = tempfile.TemporaryDirectory(prefix="gyre-srv-", dir="/tmp")
        self.folder = Path(self._place.name) / "state"
        Path(self._place.name).chmod(0o755)
        self.share = Path(self._place.name) / "share"
        self.share.mkdir()
        self.share.chmod(0o777)
        self.environment = {
            "PATH": f"{gyre.parent}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            # Whose it is, also when a test starts it again.
            TEST_VARIABLE: os.environ.get(TEST_VARIABLE, ""),
        }
        self.prefix = own_accounts(tmp_path, self.accounts) if accounts else []
        if run_as:
            self.prefix += ["setpriv", "--reuid", run_as, "--regid", run_as, "--clear-groups"]
            os.chown(self._place.name, self.accounts[run_as], self.accounts[run_as])
            self.environment["HOME"] = self._place.name
            self.environment["XDG_CONFIG_HOME"] = f"{self._place.name}/config"
        self.log = tmp_path / "server.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.places: list[str] = []  # Where it listens.

    def start(self, *options: str) -> None:
        """Returns once it listens."""
        listen = ("--listen", f"unix:{self.folder.parent}/gyre.sock")
        begin = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, str(self.gyre), "server", "--folder", str(self.folder), *listen, *options],
                stdout=log,
                stderr=log,
                env=self.environment,
            )
        deadline = time.monotonic() + LONGEST_START_SECONDS
        while not (found := LISTENS.search(self.log.read_text()[begin:])):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)
        self.places = found.group(1).split(", ")

    def end(self, with_signal: int = signal.SIGTERM) -> int:
        """Its exit code."""
        assert self.process is not None
        self.process.send_signal(with_signal)
        return self.process.wait(timeout=60)

    def restart(self, with_signal: int = signal.SIGTERM) -> None:
        self.end(with_signal)
        self.start()

    @property
    def url(self) -> str:
        return self.places[0]

    def verb(
        self,
        *words: str,
        env: dict[str, str] | None = None,
        account: str = "",
        seconds: float = LONGEST_VERB_SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        """As the account; if that is empty, as the one that runs the server."""
        number = self.accounts.get(account or self.run_as)
        home = {"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent", "GYRE_SERVER": self.url} if account else {}
        return subprocess.run(
            [str(self.gyre), *words],
            capture_output=True,
            text=True,
            env={**self.environment, **home, **(env or {})},
            cwd=self.tmp_path if number is None else "/",
            user=number,
            group=number,
            extra_groups=None if number is None else [],
            stdin=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )

    def ok(self, *words: str, env: dict[str, str] | None = None) -> str:
        """What a verb that succeeds says."""
        done = self.verb(*words, env=env)
        assert done.returncode == 0, (words, done.stdout, done.stderr, self.log.read_text()[-3000:])
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.ok(*words, "-o", "json"))

    def start_verb(self, *words: str) -> subprocess.Popen[bytes]:
        """One that is watched while it runs."""
        number = self.accounts.get(self.run_as)
        return subprocess.Popen(
            [str(self.gyre), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # So that communicate() goes on where readline() has stopped.
            env=self.environment,
            cwd=self.tmp_path if number is None else "/",
            user=number,
            group=number,
            extra_groups=None if number is None else [],
        )

    def job_file(self, properties: dict[str, Any], name: str = "job.json") -> Path:
        file = self.tmp_path / name
        file.write_text(json.dumps({"properties": properties}))
        return file

    def custom(self, line: str, nodes: int = 1) -> dict[str, Any]:
        """A job of one shell line whose logs go to the share."""
        return {
            "nodeCount": nodes,
            "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external",
            "customToolkitSettings": {"commandLine": line},
        }

    def close(self) -> None:
        """Ends the server, and what its nodes still run."""
        if self.process is not None and self.process.poll() is None:
            for cluster in json.loads(self.verb("cluster", "list", "-o", "json").stdout or "[]"):
                self.verb("cluster", "resize", cluster["name"], "--target", "0", "--when-busy", "terminate")
            deadline = time.monotonic() + 30
            while self._has_nodes() and time.monotonic() < deadline:
                time.sleep(0.05)
            self.end()
        for lock in self.folder.glob("nodes/*/agent.lock"):
            self._kill(lock)
        self._place.cleanup()

    def _has_nodes(self) -> bool:
        clusters = json.loads(self.verb("cluster", "list", "-o", "json").stdout or "[]")
        return any(cluster["properties"]["currentNodeCount"] > 0 for cluster in clusters)

    @staticmethod
    def _kill(lock: Path) -> None:
        text = lock.read_text().strip()
        if not text.isdigit():
            return
        words = Path(f"/proc/{text}/cmdline")
        if words.exists() and str(lock.parent) in words.read_text().split("\0"):
            os.kill(int(text), signal.SIGKILL)
