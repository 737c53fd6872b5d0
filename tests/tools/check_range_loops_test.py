"""`gyre cluster create --driver-option` ran for ever: its loop was over the items of a table that was gone already."""

from pathlib import Path

import pytest
from check_range_loops import problems


def loop(over: str) -> str:
    return f"void f() {{\n  for (const auto& [name, value] : {over}) use(name, value);\n}}\n"


@pytest.mark.parametrize(
    "over",
    [
        'pairs_of(options.pairs, "--option").items()',
        "parser->parse(text).items()",
        "app::find<Table>(name).value()",
        'tables().at("one").items()',
        "std::string(name).substr(2)",
    ],
)
def test_a_view_of_what_a_call_returns_is_named(repository: Path, plant, over: str) -> None:
    plant("a.cc", loop(over))
    (found,) = problems(repository)
    assert found.startswith("a.cc:2: ")
    assert over in found


@pytest.mark.parametrize(
    "over",
    [
        "pairs_of(options.pairs)",
        "table.items()",
        'table.at("one").at("two").items()',
        'rows[next(i)].at("one").items()',
        "catalog.nodes().list()",
        "catalog.events().list({.job = id}).items",
        'job.value("errors", Json::array())',
    ],
)
def test_values_and_parts_of_variables_are_not(repository: Path, plant, over: str) -> None:
    plant("a.cc", loop(over) + "void g() { for (int i = 0; i < list().at(0); ++i) step(); }\n")
    assert problems(repository) == []
