"""The demo's live picture: what the cluster looks like, and what was decided last.

Everything that it shows comes from the view and the decision log, as any other reader would see it.
"""

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from joulie_bus.events import AnyEvent, FilterDecided, PrioritizeDecided
from joulie_projections.board import Board
from joulie_projections.twins import NodeClass
from joulie_projections.view import View

SHOWN = 6  # decisions; all of the picture fits a terminal of 80 x 24
MAP_WIDTH, MAP_ROWS = 72, 8
BARS = "▁▂▃▄▅▆▇█"
COLOURS = {
    NodeClass.UNKNOWN: "grey50",
    NodeClass.PERFORMANCE: "dodger_blue1",
    NodeClass.ECO: "green3",
    NodeClass.DRAINING: "dark_orange",
}


class Place(NamedTuple):
    """What does not change while the demo runs."""

    urls: Mapping[str, str]
    where: str  # of the data, as commands want it
    speed: float


class Rate:
    """How fast a count grows, from one picture to the next."""

    def __init__(self) -> None:
        self._before: tuple[float, int] | None = None

    def of(self, count: int, now_s: float) -> float:
        before, self._before = self._before, (now_s, count)
        if before is None or now_s <= before[0]:
            return 0.0
        return max(0, count - before[1]) / (now_s - before[0])


class Screen:
    def __init__(self, view: View, place: Place) -> None:
        self._view = view
        self._place = place
        self._rate = Rate()
        self.proof = ""  # what the replay of all decisions so far has found

    def picture(self, newest: Sequence[AnyEvent]) -> RenderableType:
        board = self._view.snapshot().board
        return Group(self._head(board), decisions(newest), heat_map(board), self._foot())

    def _head(self, board: Board) -> RenderableType:
        beat = self._view.last_beat
        entries = beat.decisions if beat else 0
        rate = self._rate.of(entries, time.monotonic())
        line = Text.assemble(
            f"position {self._view.position}   lag {beat.lag_ms if beat else '?'} ms   ",
            (f"{rate:.0f} decisions/s", "bold"),
            f"   {entries} in the log   {self._place.speed:g}x real time\n",
            *by_class(board),
            f"   measured {float(board.floats('measured_w').sum()) / 1000:.1f} kW",
        )
        return line

    def _foot(self) -> RenderableType:
        where = self._place.where
        urls = "   ".join(f"{name} {url}" for name, url in self._place.urls.items())
        proof = self.proof or "after a minute: proof, by taking every decision so far again"
        return Text(
            f"{urls}\n"
            f"try elsewhere: joulie status|verify|replay {where}\n"
            f"{proof}\n"
            "Ctrl-C stops everything; the same command goes on where it was.",
            style="dim",
            no_wrap=True,
            overflow="ellipsis",
        )


def by_class(board: Board) -> list[tuple[str, str]]:
    """How many nodes are what, each in its colour."""
    rows = list(board.rows.values())
    classes = board.columns["node_class"][rows]
    counted = {kind: int(np.count_nonzero(classes == kind)) for kind in COLOURS}
    return [
        (f"■ {count} {kind.name.lower()}  ", COLOURS[kind])
        for kind, count in counted.items()
        if count or kind != NodeClass.UNKNOWN
    ]


def heat_map(board: Board) -> RenderableType:
    """One bar per node, or per few nodes of a large cluster: how much of its cap is free."""
    names = sorted(board.rows)
    rows = np.array([board.rows[name] for name in names], np.int64)
    per_bar = max(1, -(-len(rows) // (MAP_WIDTH * MAP_ROWS)))
    title = "headroom by node" if per_bar == 1 else f"headroom, {per_bar} nodes a bar"
    picture = Text()
    for at in range(0, len(rows), per_bar):
        picture.append(*_bar(board, rows[at : at + per_bar]))
        if (at // per_bar + 1) % MAP_WIDTH == 0 and at + per_bar < len(rows):
            picture.append("\n")
    return Panel(picture, title=f"{title} (low: little is free)", title_align="left", expand=False)


def _bar(board: Board, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> tuple[str, str]:
    capped = float(board.floats("capped_w")[rows].sum())
    measured = float(board.floats("measured_w")[rows].sum())
    free = min(1.0, max(0.0, 1 - measured / capped)) if capped else 0.0
    classes = board.columns["node_class"][rows]
    commonest = NodeClass(int(np.bincount(classes).argmax()))
    return BARS[min(len(BARS) - 1, int(free * len(BARS)))], COLOURS[commonest]


def decisions(newest: Sequence[AnyEvent]) -> RenderableType:
    table = Table(box=None, pad_edge=False)
    for column in ("pod", "class", "asked", "answer"):
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    for event in newest[:SHOWN]:
        if isinstance(event, FilterDecided | PrioritizeDecided):
            pod = f"{event.pod.namespace}/{event.pod.name}"
            asked = len(event.candidates.ordinals) // 4
            table.add_row(pod, event.pod.workload, f"{asked} nodes", answer(event))
    return table


def answer(event: FilterDecided | PrioritizeDecided) -> str:
    """What was said, and why."""
    if isinstance(event, FilterDecided):
        refused = sum(verdict > 0 for verdict in event.verdicts)
        return f"{refused} refused: {event.reason}" if refused else "all pass"
    if not event.top:
        return "nobody was asked about"
    winner = event.top[0]
    return (
        f"{winner.node} {winner.score:.1f} = headroom {winner.headroom:.0f} %, "
        f"cooling {winner.cooling:.0f}, +{winner.marginal_w:.0f} W"
    )
