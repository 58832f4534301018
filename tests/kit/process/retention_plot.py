"""The plot of the retention drill: what is on disk, and the memory of each component, over time."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from joulie_cli.display import svg
from joulie_cli.display.svg import Panel, Point

# Okabe and Ito's palette.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#777777", "#000000")
LEFT, WIDTH, HEIGHT, LEGEND = 60, 560, 220, 650
PICTURE = 820, 620


class Sample(NamedTuple):
    at_s: float
    broker: float  # MiB
    database: float
    archive: float
    position: int
    memory: dict[str, float]

    @property
    def trimmed(self) -> float:
        """What a trim keeps flat."""
        return self.broker + self.database


Line = Callable[[Sample], float]


def of(samples: Sequence[Sample], title: str) -> str:
    disk: dict[str, Line] = {
        "broker": lambda each: each.broker,
        "database": lambda each: each.database,
        "archive": lambda each: each.archive,
    }
    names = sorted({name for each in samples for name in each.memory})
    memory: dict[str, Line] = {name: _memory_of(name) for name in names}
    parts = [svg.text(LEFT, 22, title, size=14)]
    parts += _panel(samples, disk, "on disk, MiB", 60)
    parts += _panel(samples, memory, "memory (PSS), MiB", 350)
    return svg.picture(*PICTURE, parts)


def _memory_of(name: str) -> Line:
    return lambda each: each.memory.get(name, 0.0)


def _panel(
    samples: Sequence[Sample], lines: Mapping[str, Line], title: str, top: float
) -> Iterable[str]:
    most = max(line(each) for line in lines.values() for each in samples) or 1.0
    ends = Point(0, 0), Point(samples[-1].at_s / 60, most)
    panel = Panel(LEFT, top, WIDTH, HEIGHT, *ends)
    yield from svg.axes(panel, title, "minutes")
    for (name, line), colour in zip(lines.items(), COLOURS, strict=False):
        points = " ".join(panel.at(Point(each.at_s / 60, line(each))) for each in samples)
        stroke = f'stroke="{colour}" stroke-width="1.5"'
        last = f"<title>{name}: {line(samples[-1]):.0f} MiB at the end</title>"
        yield f'<polyline fill="none" {stroke} points="{points}">{last}</polyline>'
    yield from svg.legend(LEGEND, top + 12, zip(lines, COLOURS, strict=False))
