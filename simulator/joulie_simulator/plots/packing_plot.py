"""The plot of `joulie simulate gpus --published`, as SVG: GPUs and power as pods arrive."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import mean

from joulie_simulator.gpu_packing.published import LEVELS, Row
from joulie_simulator.plots import svg
from joulie_simulator.plots.energy_plot import COLOURS
from joulie_simulator.plots.svg import Panel, Point

PANEL, LEFT, TOP, HEIGHT = 420, 60, 30, 260
BOUND = "#999"
Lines = Mapping[str, Sequence[Point]]


def of(rows: Sequence[Row], bounds: Mapping[int, float]) -> str:
    names = list(dict.fromkeys(row.policy for row in rows))
    colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(names)}
    allocated = _lines(rows, names, lambda row: row.allocated)
    parts = [*svg.legend(LEFT, TOP + HEIGHT + 60, [*colours.items(), ("bound", BOUND)])]
    parts += _panel("GPUs allocated, %", allocated, colours, LEFT)
    ends = _panel_of(allocated, LEFT)
    dashes = " ".join(ends.at(Point(level, share)) for level, share in bounds.items())
    parts.append(f'<polyline fill="none" stroke="{BOUND}" stroke-dasharray="4" points="{dashes}"/>')
    watts = _lines(rows, names, lambda row: row.watts / 1000)
    parts += _panel("power, kW", watts, colours, 2 * LEFT + PANEL)
    return svg.picture(2 * (PANEL + LEFT) + 40, TOP + HEIGHT + 80 + 18 * len(names), parts)


def _lines(rows: Sequence[Row], names: Sequence[str], value: Callable[[Row], float]) -> Lines:
    """Means over seeds."""
    return {
        name: [
            Point(level, mean(value(row) for row in rows if (row.policy, row.arrived) == at))
            for level in LEVELS
            for at in [(name, level)]
        ]
        for name in names
    }


def _panel_of(lines: Lines, left: int) -> Panel:
    every = [point.y for line in lines.values() for point in line]
    return Panel(
        left, TOP, PANEL, HEIGHT, Point(LEVELS[0], min(every)), Point(LEVELS[-1], max(every))
    )


def _panel(title: str, lines: Lines, colours: Mapping[str, str], left: int) -> Iterable[str]:
    panel = _panel_of(lines, left)
    yield from svg.axes(panel, title, "GPUs requested, %")
    for name, line in lines.items():
        points = " ".join(map(panel.at, line))
        yield f'<polyline fill="none" stroke="{colours[name]}" points="{points}"/>'
