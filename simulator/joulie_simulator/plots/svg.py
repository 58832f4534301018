"""Parts of a plot as SVG: a panel with axes, ticks and labels; bars with values to hover."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from xml.sax.saxutils import escape

MOST_TICKS = 6
STEPS = (1.0, 2.0, 5.0, 10.0)  # times a power of ten
TEXT, GRID = "#2e3440", "#d8dee9"


class Point(NamedTuple):
    x: float
    y: float


class Panel(NamedTuple):
    """Maps values to the picture. `low` and `high` are the ends of its axes."""

    left: float
    top: float
    width: float
    height: float
    low: Point
    high: Point

    def place(self, value: Point) -> Point:
        x = (value.x - self.low.x) / ((self.high.x - self.low.x) or 1.0)
        y = (value.y - self.low.y) / ((self.high.y - self.low.y) or 1.0)
        return Point(self.left + self.width * x, self.top + self.height * (1 - y))

    def at(self, value: Point) -> str:
        x, y = self.place(value)
        return f"{x:.1f},{y:.1f}"


def picture(width: float, height: float, parts: Iterable[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
    font = f'font-family="sans-serif" font-size="12" fill="{TEXT}">'
    ground = f'<rect width="{width:g}" height="{height:g}" fill="white"/>'
    return "\n".join([f"{head} {font}", ground, *parts, "</svg>\n"])


def ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """At most `MOST_TICKS` round values between the ends, such as 0, 20, 40."""
    rough = (high - low) / (MOST_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = next(power * each for each in STEPS if power * each >= rough * (1 - 1e-9))
    step = max(step, 1.0) if whole else step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 9) for number in range(first, last + 1)]


def axes(
    panel: Panel,
    title: str,
    below: str,
    *,
    rows: Mapping[str, float] | None = None,
    counts: bool = False,
) -> list[str]:
    """Grid and values, the title (what is upwards) and the label below, both with their units.

    `rows` names places on the vertical axis instead of values; `counts` are whole numbers.
    """
    bottom = panel.top + panel.height
    parts = [text(panel.left, panel.top - 8, title)]
    parts.append(text(panel.left + panel.width / 2, bottom + 32, below, "middle"))
    for value in ticks(panel.low.x, panel.high.x):
        x = panel.place(Point(value, panel.low.y)).x
        parts += [_line(x, panel.top, x, bottom), text(x, bottom + 16, f"{value:g}", "middle")]
    upwards = ticks(panel.low.y, panel.high.y, whole=counts)
    named = rows or {f"{value:g}": value for value in upwards}
    for name, value in named.items():
        y = panel.place(Point(panel.low.x, value)).y
        parts += [] if rows else [_line(panel.left, y, panel.left + panel.width, y)]
        parts.append(text(panel.left - 6, y + 4, name, "end"))
    return parts


def bar(panel: Panel, low: Point, high: Point, colour: str, says: str) -> str:
    """A rectangle between two values. `says` is shown under the pointer."""
    left, bottom = panel.place(low)
    right, top = panel.place(high)
    box = f'x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}"'
    return f'<rect {box} fill="{colour}"><title>{escape(says)}</title></rect>'


def legend(left: float, top: float, entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Names with their colours, one below the other."""
    for at, (name, colour) in enumerate(entries):
        y = top + 18 * at
        yield f'<circle r="5" fill="{colour}" cx="{left + 5:g}" cy="{y - 4:g}"/>'
        yield text(left + 18, y, name)


def text(x: float, y: float, words: str, anchor: str = "start", size: int = 12) -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f"<text {where}>{escape(words)}</text>"


def _line(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<path stroke="{GRID}" d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}"/>'
