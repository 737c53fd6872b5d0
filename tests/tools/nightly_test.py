"""./dev nightly repeats nothing that it has done, begins nothing when its time is up, and records complete runs."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEV = ROOT / "tools" / "dev"
PAGE = "| part | date | state | counts | found |\n|---|\n| `asan` | never | | | |\n| `tsan` | never | | | |\n"
# Three pieces, of which `bad` finds something; `broken` ends without having counted anything.
PIECES = """
    prepare_part() { true; }
    pieces_of() { printf '%s\\n' good bad broken; }
    run_piece() {
      echo "$2" >>"$ROOT/ran"
      case "$2" in
        good) count good 3 0 ;;
        bad) count bad 1 1; echo "not passed: bad.test" >>"$GYRE_DEV_TALLY.said" ;;
        *) die "a message" ;;
      esac
    }
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "testing.md").write_text(PAGE, encoding="utf-8")
    (tmp_path / ".gitignore").write_text("build\nran\n", encoding="utf-8")
    names = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-A"], [*names, "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def nightly(checkout: Path, part: str, pieces: str = PIECES, seconds: int = 1000) -> subprocess.CompletedProcess[str]:
    script = f"""
        set -uo pipefail; ROOT="{checkout}"; unset GYRE_DEV_TALLY
        source "{DEV}/common.sh"; source "{DEV}/nightly.sh"; {pieces}
        nightly "$1"
    """
    environment = {**os.environ, "GYRE_DEV_NIGHTLY_SECONDS": str(seconds)}
    command = ["bash", "-c", script, "dev", part]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=60, start_new_session=True
    )


def ran(checkout: Path) -> list[str]:
    return (checkout / "ran").read_text(encoding="utf-8").split() if (checkout / "ran").exists() else []


def row(checkout: Path, part: str) -> str:
    lines = (checkout / "docs" / "testing.md").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(f"| `{part}` |"))


def test_a_run_counts_its_pieces_names_what_failed_and_is_recorded(checkout: Path) -> None:
    result = nightly(checkout, "asan")
    assert (result.returncode, result.stdout) == (1, "4 passed, 2 failed\n")
    assert ran(checkout) == ["good", "bad", "broken"]
    assert "not passed: bad.test" in result.stderr
    commit = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], cwd=checkout, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert row(checkout, "asan").endswith(f"| `{commit}` | 4 passed, 2 failed | bad asan-broken |")
    assert row(checkout, "tsan") == "| `tsan` | never | | | |"


def test_what_was_done_is_not_done_again_at_the_same_commit(checkout: Path) -> None:
    first = nightly(checkout, "asan")
    again = nightly(checkout, "asan")
    assert again.stdout == first.stdout
    assert ran(checkout) == ["good", "bad", "broken"]
    assert "good was done before" in again.stderr
    assert "not passed: bad.test" in again.stderr
    (checkout / ".gitignore").write_text("build\nran\n# changed\n", encoding="utf-8")
    nightly(checkout, "asan")
    assert ran(checkout) == ["good", "bad", "broken"] * 2


def test_a_part_that_was_stopped_goes_on_where_it_was(checkout: Path) -> None:
    stopped = PIECES.replace("bad)", 'bad) [[ -n "${GYRE_TEST_GOES_ON:-}" ]] || kill -KILL 0;')
    assert nightly(checkout, "asan", stopped).returncode == -9
    assert row(checkout, "asan") == "| `asan` | never | | | |"
    result = nightly(checkout, "asan", f"GYRE_TEST_GOES_ON=1\n{stopped}")
    assert result.stdout == "4 passed, 2 failed\n"
    assert ran(checkout) == ["good", "bad", "bad", "broken"]


def test_nothing_is_begun_when_the_time_is_up_and_nothing_is_recorded(checkout: Path) -> None:
    result = nightly(checkout, "asan", seconds=0)
    assert (result.returncode, result.stdout) == (1, "0 passed, 3 failed\n")
    assert "3 of 3 pieces are left; `./dev nightly asan` goes on with them" in result.stderr
    assert ran(checkout) == []
    assert row(checkout, "asan") == "| `asan` | never | | | |"


@pytest.mark.parametrize("part", ["", "nothing", "asan tsan"])
def test_a_part_that_there_is_not_is_an_error_that_lists_them(checkout: Path, part: str) -> None:
    result = nightly(checkout, part)
    assert result.returncode == 2
    assert "asan tsan ubsan fuzz peers long" in result.stderr


def test_the_pieces_are_of_this_checkout() -> None:
    script = f'ROOT="{ROOT}"; source "{DEV}/common.sh"; source "{DEV}/nightly.sh"; pieces_of long; echo; fuzz_names'
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    long, _, targets = said.partition("\n\n")
    pieces = long.splitlines()
    assert {"engine", "jobs_catalog", "jobs_service", "tests/security/store_test.py"} <= set(pieces)
    assert all((ROOT / piece).exists() for piece in pieces if piece.startswith("tests/"))
    assert {"checkpoint", "frame", "http_request", "parquet"} <= set(targets.split())
    rows = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    for part in ("asan", "tsan", "ubsan", "fuzz", "peers", "long"):
        assert f"\n| `{part}` |" in rows
