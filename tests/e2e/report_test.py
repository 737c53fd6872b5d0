"""What a person does with the page of `gyre report`, in a browser: it draws, finds, zooms, and is shared as a link; and
what is a user's stays text."""

from __future__ import annotations

import csv
import io
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Page, browser_page
from running_job import StartJob

PACKAGE = {"PYTHONPATH": str(Path(__file__).resolve().parent.parent.parent / "python")}
MARKUP = "<img src=x onerror=document.title=1>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser_page(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def test_the_page_of_two_runs(gyre: Path, start_job: StartJob, tmp_path: Path, page: Page) -> None:
    script = f"""
import math, sys, gyre
for step in range(3000):
    gyre.log({{"train/loss": 1 / (step + 1), {MARKUP!r}: 1, "bad": math.nan}}, step=step)
    gyre.log({{"step seconds": 0.1}}, step=step, every_rank=True)
"""
    for name in ("first", "second"):
        job = start_job("-n", "2", "--metrics", name, "--", sys.executable, "-c", script, MARKUP, env=PACKAGE)
        assert job.wait() == 0, job.stderr
    subprocess.run([gyre, "report", "first", "second", "--to", "runs.html"], cwd=tmp_path, check=True)

    address = (tmp_path / "runs.html").as_uri()
    page.open(address)
    shown = "[...document.querySelectorAll('.chart h2')].map(each => each.textContent)"
    # Gyre's own come behind them, if the runs took so long that the launcher has looked at them.
    assert page.ask(shown)[:4] == [MARKUP, "bad", "step seconds", "train/loss"]
    page.wait_for("document.querySelectorAll('canvas').length >= 4")
    lines = "[...document.querySelectorAll('.chart')].map(each => each.querySelectorAll('.u-series').length - 1)"
    assert page.ask(lines)[:4] == [2, 2, 4, 2]
    assert MARKUP in page.ask("document.querySelector('.run pre').textContent")
    described = page.ask("document.querySelectorAll('.plot')[3].getAttribute('aria-label')")
    assert "first rank 0: ends at 3.333e-4, from 3.333e-4 to 1" in described

    page.ask("document.querySelector('input[type=search]').focus()")
    page.write("loss")
    page.wait_for("document.querySelectorAll('canvas').length === 1")
    assert page.ask("location.hash") == "#find=loss"

    # A line along the middle of the chart; afterwards the axis begins later.
    x, y, width, height = page.ask(
        "(r => [r.x, r.y, r.width, r.height])(document.querySelector('.u-over').getBoundingClientRect())"
    )
    picture = "document.querySelector('canvas').toDataURL()"
    before = page.ask(picture)
    page.drag((x + width * 0.5, y + height / 2), (x + width * 0.8, y + height / 2))
    page.wait_for(f"{picture} !== {before!r}")

    # The address is a link to the same view; on a narrow screen nothing is wider than it.
    page.open("about:blank")
    page.open(f"{address}#find=seconds&smooth=0.5&x=time&y=log", width=360, height=700)
    page.ask("document.querySelector('.chart').scrollIntoView()")  # Those out of sight are not drawn yet.
    page.wait_for("document.querySelectorAll('canvas').length === 1")
    assert page.ask("document.querySelector('output').textContent") == "0.50"
    assert page.ask("[...document.querySelectorAll('input[type=checkbox]')].map(each => each.checked)") == [True, True]
    assert page.ask("document.documentElement.scrollWidth") <= 360

    assert page.ask("document.querySelectorAll('img').length") == 0
    assert page.ask("document.title") == "Gyre report"
    assert page.faults == []
    assert {request.partition("#")[0] for request in page.requests} == {address}, "it has loaded something"


COMPARED = """
import gyre
for step in range(50):
    gyre.log({"train/loss": (1 + gyre_rank) / (step + 1)}, step=step, every_rank=True)
"""


@pytest.fixture(scope="module")
def compared(gyre: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a report of two runs of three ranks."""
    folder = tmp_path_factory.mktemp("compared")
    script = COMPARED.replace("gyre_rank", "int(__import__('os').environ['RANK'])")
    for name in ("first", "second"):
        command = [gyre, "run", "-n", "3", "--metrics", name, "--", sys.executable, "-c", script]
        subprocess.run(command, cwd=folder, check=True, env={**os.environ, **PACKAGE}, capture_output=True)
    subprocess.run([gyre, "report", "first", "second", "--to", "runs.html"], cwd=folder, check=True)
    return (folder / "runs.html").as_uri()


def test_lines_of_compared_runs_are_told_apart(compared: str, page: Page) -> None:
    """By colour and dashes, in the legend as on the canvas: rank 2 of the first run has the colour of rank 0 of the
    second."""
    page.open("about:blank")
    page.open(f"{compared}#find=train/loss")
    page.wait_for("document.querySelectorAll('canvas').length === 1")
    legend = page.ask(
        "[...document.querySelectorAll('.u-legend .u-series')].slice(1).map(row => {"
        "const style = getComputedStyle(row.querySelector('.u-marker'));"
        "return [row.querySelector('.u-label').textContent, style.borderColor, style.borderStyle,"
        " row.querySelector('.u-value').textContent]; })"
    )
    labels = [f"{run} rank {rank}" for run in ("first", "second") for rank in range(3)]
    assert [label for label, *_ in legend] == labels
    looks = [(colour, style) for _, colour, style, _ in legend]
    assert len(set(looks)) == 6, looks
    assert looks[2][0] == looks[3][0]
    assert {style for _, style in looks[:3]} == {"solid"}
    assert {style for _, style in looks[3:]} == {"dashed"}
    assert [value for *_, value in legend] == ["0.02", "0.04", "0.06"] * 2, "the last of each"
    drawn = page.ask(
        "(() => { const canvas = document.querySelector('canvas');"
        "const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);"
        "const colours = new Set();"
        "for (let i = 0; i < data.length; i += 4)"
        " if (data[i + 3] === 255) colours.add(`rgb(${data[i]}, ${data[i + 1]}, ${data[i + 2]})`);"
        "return [...colours]; })()"
    )
    assert {colour for colour, _ in looks[3:]} <= set(drawn), "the second run lies over the first"
    assert page.ask("document.querySelectorAll('.u-axis').length") >= 2


def test_a_report_is_printed_in_light_colours_with_all_charts(compared: str, page: Page) -> None:
    """On paper nobody scrolls: charts that were never in view are drawn, and what is for a mouse is left out."""
    page.open("about:blank")
    page.emulate(media="print", colour_scheme="dark")
    try:
        page.open(compared, height=300)
        charts = page.ask("document.querySelectorAll('.chart').length")
        page.ask("dispatchEvent(new Event('beforeprint'))")
        page.wait_for(f"document.querySelectorAll('.chart canvas').length === {charts}")
        assert page.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.ask("getComputedStyle(document.querySelector('h1')).color") == "rgb(0, 0, 0)"
        shown = "[...document.querySelectorAll('.controls, .tools')].filter(each => each.offsetHeight > 0).length"
        assert page.ask(shown) == 0
        wide = (
            "[...document.querySelectorAll('.chart')].every(chart =>"
            " chart.querySelector('canvas').clientWidth <= chart.clientWidth)"
        )
        assert page.ask(wide)
        page.ask("dispatchEvent(new Event('afterprint'))")
    finally:
        page.emulate(media="", colour_scheme="")


RESUMED = """
import os, random, gyre
dice = random.Random(int(os.environ["SEED"]))
step = 0
for _ in range(6000):
    step += 1
    if dice.random() < 0.001:
        step = dice.randrange(step)
    gyre.log({"train/loss": dice.gauss(0, 1) + 100 * (dice.random() < 0.002)}, step=step)
"""


def test_of_steps_that_were_done_again_the_last_are_drawn(
    gyre: Path, start_job: StartJob, tmp_path: Path, page: Page
) -> None:
    """A job that went on from checkpoints, with more points than a chart draws: over steps, none is drawn that a later
    one has overtaken; over time, all are. The model is of the exported series, point by point."""
    seed = random.SystemRandom().randrange(1_000_000)
    print("seed", seed)
    job = start_job(
        "-n", "1", "--metrics", "run", "--", sys.executable, "-c", RESUMED, env={**PACKAGE, "SEED": str(seed)}
    )
    assert job.wait() == 0, job.stderr
    subprocess.run([gyre, "report", "run", "--to", "run.html"], cwd=tmp_path, check=True)
    exported = subprocess.run(
        [gyre, "metrics", "export", "run", "--format", "csv"], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout
    rows = [row for row in csv.DictReader(io.StringIO(exported)) if row["name"] == "train/loss"]
    points = [(int(row["step"]), float(row["value"])) for row in rows]
    assert len(points) == 6000
    shown = [value for i, (step, value) in enumerate(points) if all(later > step for later, _ in points[i + 1 :])]
    for axis, values in (("", shown), ("&x=time", [value for _, value in points])):
        page.open("about:blank")
        page.open(f"{(tmp_path / 'run.html').as_uri()}#find=train{axis}")
        page.wait_for("document.querySelectorAll('canvas').length === 1")
        described = page.ask("document.querySelector('.plot').getAttribute('aria-label')")
        found = re.search(r"ends at (\S+), from (\S+) to (\S+)$", described)
        assert found is not None, described
        expected = (points[-1][1], min(values), max(values))
        assert list(map(float, found.groups())) == pytest.approx(expected, rel=1e-3), axis
    assert page.faults == []
