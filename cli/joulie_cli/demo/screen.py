"""The demo's live screen: the state of the cluster and the newest decisions.

All data comes from the view and the decision log. The screen fits the terminal, from 80 x 24 on;
columns keep their width between frames.
"""

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from joulie_answers.views.placements import Placement
from joulie_projections.state.completeness import NEVER_MS
from joulie_projections.state.state import ClusterState
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.twin import NodeClass
from joulie_projections.view.view import View

SMALL = (80, 24)  # the smallest terminal in which everything is visible
FIXED_ROWS = 15  # lines that are neither a bar of the map nor a decision
MAP_SHARE = 2  # the map gets at most one in MAP_SHARE of the other lines
FRAME = 8  # columns of the map's frame and padding
BARS = "▁▂▃▄▅▆▇█"
FRESH_NS = 300 * 10**9  # TWIN_STALENESS_THRESHOLD
ASLEEP, ASLEEP_COLOUR = "·", "grey50"
COLOURS = {
    NodeClass.UNKNOWN: "grey50",
    NodeClass.PERFORMANCE: "dodger_blue1",
    NodeClass.ECO: "green3",
    NodeClass.DRAINING: "dark_orange",
}


class DemoLocation(NamedTuple):
    """URLs and command texts that stay the same while the demo runs."""

    urls: Mapping[str, str]
    joulie: str  # the command to print in hints
    where: str  # the --data option for hints; empty for the default directory
    speed: float


class TerminalSize(NamedTuple):
    """Width and height of a terminal, and the room for each section."""

    width: int = SMALL[0]
    height: int = SMALL[1]

    @property
    def rows(self) -> int:
        """Lines for the map and the decisions."""
        return max(SMALL[1], self.height) - FIXED_ROWS

    @property
    def map_width(self) -> int:
        return max(SMALL[0], self.width) - FRAME

    @property
    def map_rows(self) -> int:
        return self.rows // MAP_SHARE

    def per_bar(self, nodes: int) -> int:
        """Number of nodes per bar of the map."""
        return max(1, -(-nodes // (self.map_width * self.map_rows)))


class DecisionRate:
    """Growth per second of a counter between two frames."""

    def __init__(self) -> None:
        self._before: tuple[float, int] | None = None

    def of(self, count: int, now_s: float) -> float:
        before, self._before = self._before, (now_s, count)
        if before is None or now_s <= before[0]:
            return 0.0
        return max(0, count - before[1]) / (now_s - before[0])


class Screen:
    def __init__(self, view: View, location: DemoLocation) -> None:
        self._view = view
        self._location = location
        self._rate = DecisionRate()
        self._example: Placement | None = None  # kept between frames, so that it can be copied
        self.proof = ""  # the result of the replay
        self.trouble = ""

    def rendered(self, newest: Sequence[Placement], size: TerminalSize) -> RenderableType:
        twin_columns, cluster_state = self._view.snapshot().twin_columns, self._view.cluster_state
        self._example = self._example or next((each for each in newest if each.node), None)
        asleep = asleep_in(cluster_state)
        bars = heat_map(twin_columns, size, asleep)
        shown = size.rows - bars.plain.count("\n") - 1
        return Group(
            self._head(twin_columns, cluster_state),
            _framed(twin_columns, bars, size),
            *decisions(newest[:shown]),
            self._foot(),
        )

    def _head(self, twin_columns: TwinColumns, cluster_state: ClusterState) -> RenderableType:
        beat = self._view.last_beat
        entries = beat.decisions if beat else 0
        rate = self._rate.of(entries, time.monotonic())
        speed = f"{self._location.speed:g}x real time"
        return _line(
            (f"Joulie over {len(twin_columns)} simulated nodes, {speed}   ", "bold"),
            (self.trouble, "bold red"),
            "\n",
            (f"{rate:.0f} decisions/s", "bold"),
            f"   {entries} in the log   position {self._view.position}   {_behind(self._view)}\n",
            *by_class(twin_columns, asleep_in(cluster_state)),
            f" {power_text(twin_columns)}\n",
            in_use(cluster_state),
        )

    def _foot(self) -> RenderableType:
        joulie, where = self._location.joulie, self._location.where
        example = self._example
        pod, node = (example.pod, example.node) if example else ("POD", "NODE")
        urls = "   ".join(f"{name} {url}" for name, url in self._location.urls.items())
        proof = self.proof or "after a minute: a replay that recomputes all decisions so far"
        return _line(
            ("In another terminal: explain a placement, show a twin, replay the log:\n", "dim"),
            f"  {joulie} explain {pod}{where}\n"
            f"  {joulie} twin {node} --at -10s{where}\n"
            f"  {joulie} replay{where}\n",
            (f"{proof}\n", "bold" if self.proof else "dim"),
            (f"{urls}\n", "dim"),
            ("Ctrl-C stops all parts; the same command resumes from the stored state.", "dim"),
        )


def _line(*parts: str | tuple[str, str]) -> Text:
    """A line that is truncated, never wrapped: the screen keeps its height."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def asleep_in(cluster_state: ClusterState) -> frozenset[str]:
    """Nodes that a plan switched off; those that wake up included."""
    return frozenset(name for name, node in cluster_state.nodes.items() if node.power_state)


def power_text(twin_columns: TwinColumns) -> str:
    """Of the nodes with a fresh reading; fresh, compared with the newest one. Unknown is no 0."""
    rows = [*twin_columns.rows.values()]
    sampled = twin_columns.ints("sampled_at")[rows]
    newest = int(sampled.max(initial=0))
    is_fresh = (sampled > 0) & (newest - sampled <= FRESH_NS)
    fresh = int(np.count_nonzero(is_fresh))
    if not fresh:
        return "power not measured yet"
    watts = float(twin_columns.floats("measured_w")[rows][is_fresh].sum())
    of = "" if fresh == len(rows) else f" on {fresh} of {len(rows)} nodes"
    return f"{watts / 1000:.1f} kW measured{of}"


def by_class(
    twin_columns: TwinColumns, asleep: frozenset[str] = frozenset()
) -> list[tuple[str, str]]:
    """The number of nodes that are awake of each class, in its colour, and of those asleep."""
    rows = [row for name, row in twin_columns.rows.items() if name not in asleep]
    classes = twin_columns.columns["node_class"][rows]
    counted = {kind: int(np.count_nonzero(classes == kind)) for kind in COLOURS}
    found = [
        (f"■ {count} {kind.name.lower()}  ", COLOURS[kind])
        for kind, count in counted.items()
        if count
    ]
    return [*found, (f"{ASLEEP} {len(asleep)} asleep  ", ASLEEP_COLOUR)] if asleep else found


def in_use(cluster_state: ClusterState) -> str:
    """The number of running pods and of GPUs in use."""
    nodes = [node for node in cluster_state.nodes.values() if node.present]
    loads = [node.load for node in nodes]
    used = sum(load.gpu_standard_milli + load.gpu_performance_milli for load in loads) // 1000
    pods = sum(node.pods for node in nodes)
    return f"{pods} pods running   {used} of {sum(node.gpus for node in nodes)} GPUs in use"


def heat_map(
    twin_columns: TwinColumns, size: TerminalSize, asleep: frozenset[str] = frozenset()
) -> Text:
    """One bar per node, or per group of nodes in a large cluster: the free share of the cap of
    those that are awake."""
    names = sorted(twin_columns.rows)
    width, per_bar = size.map_width, size.per_bar(len(names))
    rendered = Text()
    for at in range(0, len(names), per_bar):
        awake = [twin_columns.rows[name] for name in names[at : at + per_bar] if name not in asleep]
        bar = _bar(twin_columns, np.array(awake, np.int64)) if awake else (ASLEEP, ASLEEP_COLOUR)
        rendered.append(*bar)
        if (at // per_bar + 1) % width == 0 and at + per_bar < len(names):
            rendered.append("\n")
    return rendered


def _framed(twin_columns: TwinColumns, bars: Text, size: TerminalSize) -> Panel:
    per_bar = size.per_bar(len(twin_columns))
    title = "headroom by node" if per_bar == 1 else f"headroom, {per_bar} nodes per bar"
    return Panel(
        bars,
        title=f"{title} (low bar: little headroom; {ASLEEP}: asleep)",
        title_align="left",
        expand=False,
    )


def _bar(
    twin_columns: TwinColumns, rows: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> tuple[str, str]:
    capped = float(twin_columns.floats("capped_w")[rows].sum())
    measured = float(twin_columns.floats("measured_w")[rows].sum())
    free = min(1.0, max(0.0, 1 - measured / capped)) if capped else 0.0
    classes = twin_columns.columns["node_class"][rows]
    commonest = NodeClass(int(np.bincount(classes).argmax()))
    return BARS[min(len(BARS) - 1, int(free * len(BARS)))], COLOURS[commonest]


def decisions(newest: Sequence[Placement]) -> list[Text]:
    """A header, then one line per pod with columns of fixed width."""
    head = _line((_columns("pod", "class", "pass", "best node, with terms"), "dim"))
    return [
        head,
        *(
            _line(_columns(one.pod.partition("/")[2], one.workload, one.share, one.answer))
            for one in newest
        ),
    ]


def _columns(pod: str, workload: str, share: str, answer: str) -> str:
    return f"{pod:<20.20} {workload:<11} {share:>7}  {answer}"


def _behind(view: View) -> str:
    behind_ms = view.ages.behind_ms
    return f"{behind_ms} ms behind" if behind_ms < NEVER_MS else "behind by an unknown time"
