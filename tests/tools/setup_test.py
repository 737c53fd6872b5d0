"""The set-up is the first thing a newcomer meets: it does nothing when all is there, and says what to do if it may not.

apt and dpkg are replaced by scripts that record how they were called; nothing is installed.
"""

import os
import subprocess
from pathlib import Path

import pytest

DEV = Path(__file__).resolve().parents[2] / "tools" / "dev"

FAKES = {
    # Installed is what stands in the file `installed`.
    "dpkg-query": 'grep -qx -- "${@: -1}" "$FAKES/installed" && printf installed',
    # Known to the distribution is what stands in the file `known`.
    "apt-cache": 'grep -qx -- "${@: -1}" "$FAKES/known"',
    "apt-get": 'echo "$*" >>"$FAKES/calls"; [[ $1 == install ]] && printf "%s\\n" "${@:2}" >>"$FAKES/installed"; true',
}


class Machine:
    """A machine with some packages, and the calls that were made on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, body in FAKES.items():
            (folder / name).write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
            (folder / name).chmod(0o755)
        for name in ("installed", "known", "calls"):
            (folder / name).touch()
        (folder / "list.txt").write_text("# what we need\nalpha\nbeta-2 | beta-3\n", encoding="utf-8")

    def has(self, name: str, *packages: str) -> None:
        (self.folder / name).write_text("".join(f"{package}\n" for package in packages), encoding="utf-8")

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text(encoding="utf-8").splitlines()

    def install(self, root: bool, call: str = 'install_packages "$FAKES/list.txt"') -> subprocess.CompletedProcess[str]:
        script = f"""
            set -uo pipefail; ROOT="$FAKES"; source "{DEV}/common.sh"; source "{DEV}/setup.sh"
            am_root() {{ {"true" if root else "false"}; }}
            sudo() {{ return 1; }}
            {call}
        """
        environment = {
            **os.environ,
            "CI": "true",
            "FAKES": str(self.folder),
            "PATH": f"{self.folder}:{os.environ['PATH']}",
        }
        return subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("beta", ["beta-2", "beta-3"])
def test_nothing_is_done_when_nothing_is_missing(machine: Machine, beta: str) -> None:
    machine.has("installed", "alpha", beta)
    assert machine.install(root=True).returncode == 0
    assert machine.calls() == []


def test_root_installs_the_alternative_that_the_distribution_has(machine: Machine) -> None:
    machine.has("installed", "alpha")
    machine.has("known", "alpha", "beta-3")
    assert machine.install(root=True).returncode == 0
    assert machine.calls() == ["update -q", "install -y -q --no-install-recommends beta-3"]
    assert machine.install(root=True).returncode == 0
    assert len(machine.calls()) == 2


def test_who_may_not_install_is_told_the_exact_command(machine: Machine) -> None:
    machine.has("known", "alpha", "beta-2", "beta-3")
    result = machine.install(root=False)
    assert result.returncode == 1
    assert "apt-get install -y --no-install-recommends alpha beta-2" in result.stderr
    assert machine.calls() == []


def test_without_root_the_tests_own_packages_are_named_and_left_out(machine: Machine) -> None:
    (machine.folder / "tools" / "dev").mkdir(parents=True)
    (machine.folder / "list.txt").rename(machine.folder / "tools" / "dev" / "apt-test.txt")
    machine.has("known", "alpha", "beta-2")
    machine.has("installed", "alpha")
    result = machine.install(root=False, call="install_test_packages")
    assert result.returncode == 0
    assert "only root can install them: beta-2" in result.stderr
    assert machine.calls() == []
    assert machine.install(root=True, call="install_test_packages").returncode == 0
    assert machine.calls()[-1] == "install -y -q --no-install-recommends beta-2"
