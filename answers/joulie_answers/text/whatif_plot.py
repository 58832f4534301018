"""The plot of `joulie whatif`, as SVG: how scores change, and the watts of the best nodes."""

from collections.abc import Mapping, Sequence

from joulie_audit.recompute.score_changes import Comparison, Group
from joulie_simulator.plots import svg
from joulie_simulator.plots.svg import Panel, Point

WIDTH, HEIGHT = 760, 520
LEFT, RIGHT = 110, 30
BINS = 41  # odd, so that zero has its own bar
SCORES = "change of the best score, in points"
NO_SCORES = "change of the best score: no decision has both scores on one scale"
WATTS = "watts added and kept on, of the best nodes, in sum"
THEN, NOW = "#8c96a3", "#2a7de1"


def of(found: Comparison, title: str) -> str:
    parts = [
        svg.text(LEFT, 24, title, size=15),
        *_scores(found.score_deltas),
        *_watts(found.by_class),
        *svg.legend(LEFT, HEIGHT - 28, [("as decided", THEN), ("with these settings", NOW)]),
    ]
    return svg.picture(WIDTH, HEIGHT, parts)


def _scores(deltas: Sequence[float]) -> list[str]:
    furthest = max((abs(delta) for delta in deltas), default=0.0) or 1.0
    wide = 2 * furthest / (BINS - 1)
    counts = [0] * BINS
    for delta in deltas:
        counts[round((delta / furthest + 1) / 2 * (BINS - 1))] += 1
    end = furthest + wide / 2
    panel = _panel(66, 150, Point(-end, 0.0), Point(end, float(max(max(counts), 1))))
    parts = svg.axes(panel, "decisions", SCORES if deltas else NO_SCORES, counts=True)
    for at, count in enumerate(counts):
        low = -end + at * wide
        says = f"{low:+.2f} to {low + wide:+.2f} points: {count} decisions"
        parts.append(svg.bar(panel, Point(low, 0.0), Point(low + wide, count), NOW, says))
    return parts


def _watts(groups: Mapping[str, Group]) -> list[str]:
    most = max((max(g.watts_before, g.watts_after) for g in groups.values()), default=0.0) or 1.0
    panel = _panel(300, 120, Point(0.0, 0.0), Point(most, float(max(1, len(groups)))))
    rows = {name: len(groups) - at - 0.5 for at, name in enumerate(groups)}
    parts = svg.axes(panel, "class of the pods", WATTS, rows=rows)
    for name, group in groups.items():
        middle = rows[name]
        for low, watts, colour in (
            (middle, group.watts_before, THEN),
            (middle - 0.4, group.watts_after, NOW),
        ):
            bar = Point(0.0, low), Point(watts, low + 0.35)
            parts.append(svg.bar(panel, *bar, colour, f"{name}: {watts:.1f} W"))
    return parts


def _panel(top: float, height: float, low: Point, high: Point) -> Panel:
    return Panel(LEFT, top, WIDTH - LEFT - RIGHT, height, low, high)
