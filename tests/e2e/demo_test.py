"""./dev demo builds little: its programs are those that users have, without what the demo does not run (ADR 116)."""

import re
import subprocess
from pathlib import Path

import pytest
from few_digits import few_digits

ROOT = Path(__file__).resolve().parents[2]
# As many as it takes today, and a few more; metrics, which the programs log, are eight.
MOST_STEPS = 377


def targets_of_demo() -> list[str]:
    found = re.search(r"^  build release (.+) \|\|", (ROOT / "tools/dev/demo.sh").read_text(), re.MULTILINE)
    assert found is not None
    return found[1].split()


def commands_for(*targets: str) -> list[str]:
    asked = ["ninja", "-C", str(ROOT / "build/release"), "-t", "commands", *targets]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()


def gyre_run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["gyre-run", *map(str, words)], capture_output=True, text=True, check=False, timeout=120)


def option_names(text: str) -> set[str]:
    return {name for names in re.findall(r"^  (-\S+)", text, re.MULTILINE) for name in names.split(",")}


def test_the_demo_builds_no_job_service_and_no_stores() -> None:
    """A new user waited for 607 steps, of which the demo ran half."""
    commands = commands_for(*targets_of_demo())
    assert 0 < len(commands) <= MOST_STEPS
    for folder in ("gyre/jobs/", "gyre/store/", "gyre/net/http/", "gyre/data/parquet/"):
        assert [command for command in commands if f"{ROOT}/{folder}" in command] == []


def test_a_build_is_what_is_installed() -> None:
    """It compiled the tests too, which are half of all steps."""
    made = [command for command in commands_for("gyre_product") if "_test" in command]
    assert made == []
    built = "\n".join(commands_for("gyre_product"))
    for name in ("bin/gyre", "bin/gyre-node", "bin/gyre-cosmoflow", "libgyre_train.so", "libgyre_parquet.so", "_core."):
        assert name in built, name


def test_the_demos_launcher_has_the_options_of_gyre_run_for_ranks_of_this_machine() -> None:
    """It is the same verb, made of the same files."""
    own = option_names(gyre_run("run", "--help").stdout)
    done = subprocess.run(["gyre", "run", "--help"], capture_output=True, text=True, check=True)
    missing = option_names(done.stdout) - own
    assert missing == {name for name in missing if name.startswith("--stage")} | {
        "--report",
        "--page",
        "--page-port",
        "--compare",
        "--cluster",
        "--server",
        "--token-file",
        "--workspace",
        "-w",
        "--cpus-per-node",
        "--memory-per-node",
        "--code",
        "--requirements",
        "--job-name",
        "--output",
    }
    assert "--stage-dir" in missing
    assert "--timeline" in own


@pytest.mark.parametrize("servers", [0, 1])
def test_the_demos_programs_train(tmp_path: Path, servers: int) -> None:
    for name, content in few_digits().items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    places = ("--data-dir", tmp_path / "cifar-10-batches-bin", "--output-dir", tmp_path / "out")
    done = gyre_run(
        "run", "-n", 2, "--servers", servers, "--", "gyre-cifar10-demo", *places, "--epochs", 1, "--verbose", 2
    )
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout


def test_the_demos_program_says_what_reads_urls() -> None:
    done = subprocess.run(
        ["gyre-cifar10-demo", "--data-dir", "https://data.example/digits"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "./dev build" in done.stderr


def test_a_wrong_option_of_the_demos_launcher_is_named() -> None:
    done = gyre_run("run", "--stage", "az://data/digits", "--", "true")
    assert done.returncode == 2
    assert "--stage" in done.stderr
    assert gyre_run("run", "-n", 2, "--", "false").returncode == 1
