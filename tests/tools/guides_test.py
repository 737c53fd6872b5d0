"""A guide that the index does not name is not found, and a link that leads nowhere stops the reader."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ROOT / "docs" / "guide"
DECISIONS = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
PAGES = [ROOT / "README.md", *sorted(GUIDES.glob("*.md"))]
ORDER = ["install.md", "from_ddp.md", "from_horovod.md", "run.md", "explain.md", "troubleshooting.md"]


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Of its headings, as the web shows them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_index_names_every_guide() -> None:
    named = {link.partition("#")[0] for link in links(GUIDES / "README.md")}
    assert {page.name for page in GUIDES.glob("*.md")} - {"README.md"} <= named


def test_the_index_has_the_order_in_which_people_need_them() -> None:
    found = [link for link in links(GUIDES / "README.md") if link in ORDER]
    assert list(dict.fromkeys(found)) == ORDER


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page if not path else page.parent / path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_each_decision_has_a_number_of_its_own() -> None:
    """Texts name decisions by number. Two that are written at the same time take the same one."""
    numbers = [page.name[:4] for page in DECISIONS]
    assert [number for number in numbers if numbers.count(number) > 1] == []
    assert len(numbers) > 100
    for page in DECISIONS:
        assert re.match(rf"# (ADR )?0*{int(page.name[:4])}[.:]? ", page.read_text(encoding="utf-8")), page.name
