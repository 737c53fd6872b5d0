"""A Debian 12 in a folder that has only python3, pip and torch: what the wheel must run in.

`tools/clean_tree.py make FOLDER TORCH` makes FOLDER/base with debootstrap, unless it is there; packages come from where
this machine's apt and pip get theirs. CleanTree is a copy of it that one test uses. Linux, root, debootstrap.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlparse

SUITE = "bookworm"
PACKAGES = "ca-certificates,python3,python3-pip"
PIP = ["python3", "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--break-system-packages"]
# Where pip looks for its configuration: copied into the tree, with what it names.
PIP_FILES = ("/etc/pip.conf", "~/.config/pip/pip.conf", "~/.pip/pip.conf")
# Enters the tree $1, in the folder $2, with a process table and mounts of its own; after the number $3 come so many
# folders to show there, then the command.
ENTER = r"""
set -e
tree=$1 folder=$2 count=$3
shift 3
mount --make-rprivate /
mount -t proc proc "$tree/proc"
mount --rbind /dev "$tree/dev"
while [ "$count" -gt 0 ]; do
  mkdir -p "$tree$1"
  mount --rbind "$1" "$tree$1"
  shift
  count=$((count - 1))
done
cd "$tree"
exec chroot "$tree" sh -c 'cd "$0" && exec "$@"' "$folder" "$@"
"""


class CleanTreeError(Exception):
    """The tree could not be made; the message says why and what to do."""


def command_in(tree: Path, command: Sequence[str], *, folder: str = "/", show: Sequence[str] = ()) -> list[str]:
    """`command`, run inside `tree` in its `folder`, with the machine's folders `show` under their own names. When it
    ends, so does everything that it has started."""
    inside = ["sh", "-c", ENTER, "enter", str(tree), folder, str(len(show)), *show, *command]
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--", *inside]


def environment(*, with_pip: bool = False) -> dict[str, str]:
    """Of a command in the tree: nothing of this machine's but, where pip has work to do, its settings."""
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root", "LANG": "C.UTF-8"}
    if with_pip:
        wanted = ("pip_", "http_proxy", "https_proxy", "no_proxy", "ssl_cert")
        variables |= {name: value for name, value in os.environ.items() if name.lower().startswith(wanted)}
    return variables


def folders_of_pip() -> list[str]:
    """The folders of this machine that pip's settings name: they are shown to the tree's pip."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    folders: set[str] = set()
    for line in listed.stdout.splitlines():
        for word in line.partition("=")[2].strip().strip("'\"").replace("\\n", " ").split():
            is_index = word.startswith("file://")
            path = Path(urlparse(word).path if is_index else word)
            if path.is_absolute() and path.exists():
                # An index's links may lead to its neighbours.
                folders.add(str((path.parent if is_index or path.is_file() else path).resolve()))
    return sorted(folders)


def run_pip(tree: Path, arguments: Sequence[str], *, show: Sequence[str] = ()) -> None:
    """Plain pip inside the tree, with this machine's settings."""
    command = command_in(tree, [*PIP, *arguments], show=[*folders_of_pip(), *show])
    if subprocess.run(command, env=environment(with_pip=True), check=False).returncode != 0:
        raise CleanTreeError(f"pip could not install {' '.join(arguments)} in {tree}; see above")


def mirror() -> str:
    """Where this machine's apt gets Debian 12 from."""
    wanted = os.environ.get("GYRE_DEV_DEBIAN_MIRROR", "")
    if wanted:
        return wanted
    listing = ["apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"]
    for line in subprocess.run(listing, capture_output=True, text=True, check=True).stdout.splitlines():
        release, component, address = line.split(maxsplit=2)
        if (release, component) == (SUITE, "main"):
            return address
    raise CleanTreeError(
        f"this machine's apt knows no Debian {SUITE}; set GYRE_DEV_DEBIAN_MIRROR to a mirror's address"
    )


def make(folder: Path, torch: str) -> Path:
    """FOLDER/base, with that version of torch. What is there and was made for the same is left alone."""
    base, stamp = folder / "base", folder / "made-for"
    wanted = hashlib.sha256(f"{SUITE} {PACKAGES} {torch}".encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return base
    if os.geteuid() != 0:
        raise CleanTreeError("debootstrap and chroot need root")
    if shutil.which("debootstrap") is None:
        raise CleanTreeError("debootstrap is not installed: apt-get install --no-install-recommends debootstrap")
    stamp.unlink(missing_ok=True)
    if base.exists():
        shutil.rmtree(base)
    folder.mkdir(parents=True, exist_ok=True)
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(base), mirror()]
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
        raise CleanTreeError(f"debootstrap failed; see above and {base}/debootstrap/debootstrap.log")
    give_network_and_settings(base)
    run_pip(base, [f"torch=={torch}"])
    stamp.write_text(wanted)
    return base


def give_network_and_settings(base: Path) -> None:
    """apt's and pip's settings, and how to find hosts."""
    shutil.rmtree(base / "etc" / "apt")
    shutil.copytree("/etc/apt", base / "etc" / "apt", symlinks=True)
    shutil.copy("/etc/resolv.conf", base / "etc" / "resolv.conf")
    for name in PIP_FILES:
        source = Path(name).expanduser()
        if source.is_file():
            target = base / ("root" + name[1:] if name.startswith("~") else name[1:])
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


class CleanTree:
    """A copy of a base, for one use. A context manager: the copy is gone when it ends."""

    def __init__(self, base: Path, folder: Path) -> None:
        self.root = folder.resolve()
        self._base = base.resolve()

    def __enter__(self) -> CleanTree:
        copy = ["cp", "--archive", "--reflink=auto", "--", str(self._base), str(self.root)]
        subprocess.run(copy, check=True)
        return self

    def __exit__(self, *_: object) -> None:
        # Mounts were made in namespaces that have ended, so nothing of the machine can be below it.
        shutil.rmtree(self.root)

    def install(self, wheel: Path) -> None:
        run_pip(self.root, [str(wheel.resolve())], show=[str(wheel.resolve().parent)])


def main() -> int:
    if len(sys.argv) != 4 or sys.argv[1] != "make":
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print(make(Path(sys.argv[2]).resolve(), sys.argv[3]))
    except CleanTreeError as error:
        print(f"clean_tree: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
