"""What the settings are is said in three places, which must agree: the program's list, the guide, and the sources that
read them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LIST = ROOT / "gyre" / "cli" / "settings.cc"
# What a string in the sources may be besides: rows of the timeline, words of our build, variables of tests.
OTHERS = re.compile("GYRE_(ALL|BROADCAST|REDUCESCATTER|TEST_|GUIDES|LIBTORCH_|PYARROW_|ARROW_|VERSION)")


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\bGYRE_[A-Z][A-Z_]*[A-Z]\b", text))


def strings_of_the_sources() -> set[str]:
    names: set[str] = set()
    for folder in ("gyre", "apps", "python", "workloads"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".cc", ".h", ".py") and "_test" not in path.stem and path != LIST:
                for text in re.findall(r"\"[^\"\n]*\"", path.read_text()):
                    names |= names_in(text)
    return {name for name in names if not OTHERS.match(name)}


def test_the_list_of_settings_has_what_the_guide_and_the_sources_name() -> None:
    known = names_in(LIST.read_text())
    guide = names_in((ROOT / "docs" / "guide" / "settings.md").read_text())
    assert len(known) > 30
    assert guide - known == set()
    assert strings_of_the_sources() - known == set()
    assert known - guide - strings_of_the_sources() == set()
