"""The C++ half of ./dev lint, over the compile commands of the `lint` preset (Clang).

compile: has Clang look at our objects that do without libtorch, so that its warnings and its thread-safety analysis,
         which are errors, see every line (tools/dev/clang_check_only). Ninja makes the second run cheap.
tidy:    clang-tidy, without precompiled headers, over the files that changed since the base commit (--all: over
         everything). A file whose text, headers, command and rules are those of its last clean run is not run again.
"""

import argparse
import concurrent.futures
import hashlib
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from repository import ROOT, changed_files

BUILD = ROOT / "build" / "lint"
STAMPS = BUILD / "tidy"
# The compile commands of clang-tidy: without precompiled headers, so that a file that includes too little is found.
TIDY_COMMANDS = STAMPS / "compile_commands.json"
PRECOMPILED = re.compile(r" -Winvalid-pch| -Xclang -include(-pch)? -Xclang \S+")
CLANG_TIDY = "clang-tidy-19"
WITH_TORCH = (
    "gyre/train/",
    "workloads/",
    "tests/conformance/optimizer/",
    "tests/device/device.cc",
    "tests/device/kernels.cc",
    "tests/device/module.cc",
    "tests/device/sparse.cc",
    "tests/device/stand_in.cc",
)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
TIDY_CHATTER = re.compile(
    r"^\d+ warnings? generated\.$|^Suppressed \d+|^Use -header-filter|^\d+ warnings treated as errors$"
)


@dataclass(frozen=True)
class Unit:
    """One translation unit of ours."""

    source: Path  # relative to the root
    output: str  # relative to the build folder
    command: str


def units() -> list[Unit]:
    """Our own translation units; generated files and other people's are left out."""
    entries = json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8"))
    found = []
    for entry in entries:
        source = Path(entry["file"])
        if source.is_relative_to(ROOT) and not source.is_relative_to(ROOT / "build") and ".venv" not in source.parts:
            command = entry["command"]
            output = entry.get("output") or command.split(" -o ")[1].split()[0]
            found.append(Unit(source.relative_to(ROOT), output, command))
    return sorted(found, key=lambda unit: unit.source)


def compile_units(jobs: int) -> int:
    """Builds every object that needs no libtorch; 0 when Clang has nothing to say."""
    # First the build files themselves: a new CMakeLists.txt means new compile commands.
    subprocess.run(["ninja", "-C", str(BUILD), "--quiet", "build.ninja"], stdout=subprocess.DEVNULL, check=True)
    outputs = [unit.output for unit in units() if not unit.source.as_posix().startswith(WITH_TORCH)]
    return subprocess.run(
        ["ninja", "-C", str(BUILD), "-k", "0", "-j", str(jobs), "--quiet", *outputs], check=False
    ).returncode


def dependencies() -> dict[str, list[str]]:
    """Object -> every header it read, from Ninja's log of the compile step."""
    listing = subprocess.run(
        ["ninja", "-C", str(BUILD), "-t", "deps"], capture_output=True, text=True, check=True
    ).stdout
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in listing.splitlines():
        if line.startswith("    "):
            current.append(line.strip())
        elif ": #deps" in line:
            current = found.setdefault(line.split(": #deps")[0], [])
    return found


def key_of(unit: Unit, headers: list[str]) -> str:
    """A hash over everything that decides what clang-tidy says of this unit."""
    digest = hashlib.sha256(unit.command.encode())
    for path in [ROOT / ".clang-tidy", ROOT / unit.source, *sorted(BUILD / header for header in headers)]:
        digest.update(str(path).encode())
        if path.resolve().is_relative_to(ROOT):
            digest.update(path.read_bytes() if path.is_file() else b"gone")
    return digest.hexdigest()


def affected(all_units: list[Unit], changed: set[Path]) -> list[Unit]:
    """Units that changed, and for each changed header one that shows it: its own .cc, else any that includes it."""
    chosen = {unit for unit in all_units if unit.source in changed}
    for header in (path for path in changed if path.suffix == ".h"):
        own = [unit for unit in all_units if unit.source == header.with_suffix(".cc")]
        chosen.update(own or includers(all_units, header)[:1])
    return sorted(chosen, key=lambda unit: unit.source)


def includers(all_units: list[Unit], header: Path) -> list[Unit]:
    return [
        unit
        for unit in all_units
        if header.as_posix() in INCLUDE.findall((ROOT / unit.source).read_text(encoding="utf-8"))
    ]


def tidy_unit(unit: Unit) -> str:
    """What clang-tidy complains about; empty when it does not."""
    command = [CLANG_TIDY, "-p", str(STAMPS), "--quiet", str(ROOT / unit.source)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if result.returncode == 0:
        return ""
    lines = (result.stdout + result.stderr).splitlines()
    return (
        "\n".join(line for line in lines if not TIDY_CHATTER.match(line))
        or f"clang-tidy: exit code {result.returncode}"
    )


def tidy(jobs: int, everything: bool) -> int:
    """Runs clang-tidy where it is due; 0 when it has nothing to say."""
    all_units = units()
    chosen = all_units if everything else affected(all_units, changed_files(ROOT))
    headers = dependencies()
    STAMPS.mkdir(parents=True, exist_ok=True)
    commands = (BUILD / "compile_commands.json").read_text(encoding="utf-8")
    TIDY_COMMANDS.write_text(PRECOMPILED.sub("", commands), encoding="utf-8")
    # Without a dependency log (units with libtorch are not compiled here) there is no key to trust: those always run.
    keys = {unit: key_of(unit, headers[unit.output]) for unit in chosen if unit.output in headers}
    due = [unit for unit in chosen if unit not in keys or not (STAMPS / keys[unit]).exists()]
    print(f"clang-tidy: {len(due)} of {len(all_units)} files", file=sys.stderr, flush=True)
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for unit, complaint in zip(due, pool.map(tidy_unit, due), strict=True):
            if complaint:
                failures += 1
                print(complaint, file=sys.stderr, flush=True)
            elif unit in keys:
                (STAMPS / keys[unit]).touch()
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["compile", "tidy"])
    parser.add_argument("--all", action="store_true", help="tidy: every file, not only what changed")
    parser.add_argument("-j", "--jobs", type=int, default=1)
    options = parser.parse_args()
    return compile_units(options.jobs) if options.step == "compile" else tidy(options.jobs, options.all)


if __name__ == "__main__":
    sys.exit(main())
