"""The plot of `joulie simulate energy`, as SVG: power over time, and energy against work.

Each load has two panels. On the diagonal of the right one, energy per work is the baseline's: a
policy below it takes less energy for its work, and one further left does less work. A policy has
one colour; with sleep its line is dashed and its point hollow.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean

from joulie_simulator.energy.suites import Row
from joulie_simulator.plots import svg
from joulie_simulator.plots.svg import Panel, Point

COLOURS = ("#4c566a", "#d08770", "#5e81ac", "#a3be8c", "#b48ead", "#bf616a", "#88c0d0", "#ebcb8b")
POINT_MINUTES = 15  # of one point of a line
PANEL, LEFT, HEIGHT, ROW = 420, 60, 220, 300
Case = tuple[str, bool]  # policy, and whether nodes sleep
Groups = Mapping[Case, Sequence[Row]]


def of(rows: Sequence[Row], baseline: str) -> str:
    loads: dict[str | float, dict[Case, list[Row]]] = {}
    for row in rows:
        loads.setdefault(row.load, {}).setdefault((row.policy, row.sleep), []).append(row)
    cases = list(dict.fromkeys(case for groups in loads.values() for case in groups))
    policies = list(dict.fromkeys(policy for policy, _ in cases))
    colours = {case: COLOURS[policies.index(case[0]) % len(COLOURS)] for case in cases}
    parts = list(_legend(colours, 20 + ROW * len(loads)))
    for at, (load, groups) in enumerate(loads.items()):
        parts += _power(f"{rows[0].suite}, load {load}: power, kW", groups, colours, 30 + ROW * at)
        parts += _work(groups, groups[baseline, False], colours, 30 + ROW * at)
    return svg.picture(2 * (PANEL + LEFT) + 40, 40 + ROW * len(loads) + 18 * len(cases), parts)


def _power(title: str, groups: Groups, colours: Mapping[Case, str], top: int) -> Iterable[str]:
    lines = {case: _line(group) for case, group in groups.items()}
    most = max(point.y for line in lines.values() for point in line) or 1.0
    hours = max(point.x for line in lines.values() for point in line) or 1.0
    panel = _panel(LEFT, top, Point(0, 0), Point(hours, most))
    yield from svg.axes(panel, title, "hours")
    for case, line in lines.items():
        points = " ".join(map(panel.at, line))
        yield f'<polyline fill="none" {_stroke(case, colours)} points="{points}"/>'


def _stroke(case: Case, colours: Mapping[Case, str]) -> str:
    dashes = ' stroke-dasharray="7 4"' if case[1] else ""
    return f'stroke="{colours[case]}" stroke-width="1.5"{dashes}'


def _filled(case: Case, colours: Mapping[Case, str]) -> str:
    fill = "#fff" if case[1] else colours[case]
    return f'fill="{fill}" stroke="{colours[case]}" stroke-width="2"'


def _line(group: Sequence[Row]) -> list[Point]:
    """Mean power over seeds, in kW by the hour."""
    minutes = range(0, len(group[0].power_w), POINT_MINUTES)
    watts = [
        mean(w for row in group for w in row.power_w[at : at + POINT_MINUTES]) for at in minutes
    ]
    return [Point(at / 60, each / 1000) for at, each in zip(minutes, watts, strict=True)]


def _work(
    groups: Groups, base: Sequence[Row], colours: Mapping[Case, str], top: int
) -> Iterable[str]:
    points = {case: _change(group, base) for case, group in groups.items()}
    every = [*points.values(), Point(0.0, 0.0)]
    (left, right), (bottom, above) = (_widened(axis) for axis in zip(*every, strict=True))
    low, high = Point(left, bottom), Point(right, above)
    panel = _panel(2 * LEFT + PANEL, top, low, high)
    yield from svg.axes(panel, "energy against the baseline, %", "work against the baseline, %")
    ends = (max(low.x, low.y), min(high.x, high.y))
    diagonal = " ".join(panel.at(Point(end, end)) for end in ends)
    yield f'<polyline stroke="#999" stroke-dasharray="4" points="{diagonal}"/>'
    for case, point in points.items():
        x, y = panel.at(point).split(",")
        yield f'<circle r="5" {_filled(case, colours)} cx="{x}" cy="{y}"/>'


def _widened(values: Iterable[float]) -> tuple[float, float]:
    """The ends of an axis, which cut off no circle."""
    low, high = min(found := [*values]), max(found)
    margin = max(1.0, 0.05 * (high - low))
    return low - margin, high + margin


def _change(group: Sequence[Row], base: Sequence[Row]) -> Point:
    """In per cent: of work, and of energy."""
    work = sum(row.work for row in group) / (sum(row.work for row in base) or 1.0)
    energy = sum(row.kwh for row in group) / (sum(row.kwh for row in base) or 1.0)
    return Point(100 * work - 100, 100 * energy - 100)


def _panel(left: float, top: float, low: Point, high: Point) -> Panel:
    return Panel(left, top, PANEL, HEIGHT, low, high)


def _legend(colours: Mapping[Case, str], top: int) -> Iterable[str]:
    for at, case in enumerate(colours):
        policy, sleep = case
        y = top + 18 * at
        yield f'<path d="M{LEFT} {y}h28" fill="none" {_stroke(case, colours)}/>'
        yield f'<circle r="4" {_filled(case, colours)} cx="{LEFT + 14}" cy="{y}"/>'
        text = f"{policy}, {'with' if sleep else 'without'} sleep"
        yield svg.text(LEFT + 36, y + 4, text)
