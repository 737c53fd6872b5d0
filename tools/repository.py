"""What the checkers of ./dev lint share: which files there are and which of them changed."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def git(root: Path, *arguments: str) -> str | None:
    """The standard output of a git command, or None where it fails (no such commit, no repository)."""
    result = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return result.stdout if result.returncode == 0 else None


def source_files(root: Path, *suffixes: str) -> list[Path]:
    """Tracked files, and new ones that git does not ignore, relative to the root and sorted."""
    listing = git(root, "ls-files", "--cached", "--others", "--exclude-standard")
    if listing is None:
        raise SystemExit(f"{root} is not a git checkout")
    paths = (Path(line) for line in listing.splitlines())
    return sorted({path for path in paths if path.suffix in suffixes and (root / path).is_file()})


def base_commit(root: Path) -> str | None:
    """The commit that work is compared with: where this branch left main, or the previous commit on main itself."""
    head = git(root, "rev-parse", "HEAD")
    for main in ("origin/main", "main"):
        base = git(root, "merge-base", "HEAD", main)
        if base is not None and base != head:
            return base.strip()
    previous = git(root, "rev-parse", "--verify", "--quiet", "HEAD~1")
    return previous.strip() if previous is not None else None


def changed_files(root: Path) -> set[Path]:
    """Files that differ from the base commit, committed or not, and new ones."""
    base = base_commit(root) or "HEAD"
    changed = git(root, "diff", "--name-only", base) or ""
    untracked = git(root, "ls-files", "--others", "--exclude-standard") or ""
    return {Path(line) for line in (changed + untracked).splitlines()}


def report(problems: Callable[[Path], list[str]]) -> int:
    """Runs a check on the folder of the command line, or else on this checkout, and prints what it finds. The exit
    code."""
    found = problems(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
    print("\n".join(found), end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0
