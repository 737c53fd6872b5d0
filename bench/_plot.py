"""A plot of lines over logarithmic axes as SVG: the same bytes for the same figures, and no dependency."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 40, 60
# Distinguishable by people who do not see all colours (Okabe and Ito).
COLOURS = ("#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#000000", "#009e73", "#cc79a7")
MOST_LABELS = 10  # Along the x axis; of more, every other one is named.


@dataclass(frozen=True)
class Line:
    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


class _Axis:
    """Values from `low` to `high`, evenly by their logarithm, to pixels from `begin` to `end`."""

    def __init__(self, values: Sequence[float], begin: float, end: float, base: int) -> None:
        self.base = base
        self._low = math.floor(math.log(min(values), base))
        self._high = max(math.ceil(math.log(max(values), base)), self._low + 1)
        self._begin, self._end = begin, end

    def place(self, value: float) -> float:
        share = (math.log(value, self.base) - self._low) / (self._high - self._low)
        return round(self._begin + share * (self._end - self._begin), 1)

    def ticks(self) -> list[float]:
        return [float(self.base) ** power for power in range(self._low, self._high + 1)]


def _text(x: float, y: float, text: str, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{more}>{escape(text)}</text>'


def svg(
    title: str,
    x_name: str,
    y_name: str,
    lines: Sequence[Line],
    x_text: Callable[[float], str],
    *,
    x_base: int = 4,
) -> str:
    """All coordinates positive."""
    points = [point for line in lines for point in line.points]
    x_axis = _Axis([x for x, _ in points], LEFT, WIDTH - RIGHT, x_base)
    y_axis = _Axis([y for _, y in points], HEIGHT - BOTTOM, TOP, 10)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text((LEFT + WIDTH - RIGHT) / 2, 22, title, more=' font-size="15"'),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_name),
        _text(18, HEIGHT / 2, y_name, more=f' transform="rotate(-90 18 {HEIGHT / 2})"'),
    ]
    labelled = 1 if len(x_axis.ticks()) <= MOST_LABELS else 2
    for index, tick in enumerate(x_axis.ticks()):
        x = x_axis.place(tick)
        parts.append(f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        if index % labelled == 0:
            parts.append(_text(x, HEIGHT - BOTTOM + 18, x_text(tick)))
    for tick in y_axis.ticks():
        y = y_axis.place(tick)
        parts.append(f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{tick:g}", "end"))
    for index, line in enumerate(lines):
        colour = COLOURS[index % len(COLOURS)]
        style = f'stroke="{colour}" stroke-width="2"' + (' stroke-dasharray="6 4"' if line.dashed else "")
        path = " ".join(f"{x_axis.place(x)},{y_axis.place(y)}" for x, y in line.points)
        parts.append(f'<polyline points="{path}" fill="none" {style}/>')
        for x, y in () if line.dashed else line.points:
            parts.append(f'<circle cx="{x_axis.place(x)}" cy="{y_axis.place(y)}" r="3" fill="{colour}"/>')
        y = TOP + 20 + 22 * index
        parts.append(f'<line x1="{WIDTH - RIGHT + 14}" y1="{y}" x2="{WIDTH - RIGHT + 40}" y2="{y}" {style}/>')
        parts.append(_text(WIDTH - RIGHT + 46, y + 4, line.name, "start"))
    return "\n".join([*parts, "</svg>", ""])
