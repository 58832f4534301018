"""`joulie demo`: everything, over a cluster that does not exist."""

import argparse
import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from joulie_bus import codec
from joulie_bus.embedded import free_port
from joulie_bus.events import AnyEvent, FilterDecided, PrioritizeDecided
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.roles import Role
from joulie_bus.settings import HostPort
from joulie_cli.commands import extender, operator, projector, simulator
from joulie_cli.supervisor import Supervisor
from joulie_cli.wiring import Wiring, run_until_told
from joulie_projections import database
from joulie_projections.board import Board
from joulie_projections.history import History, Logged
from joulie_projections.twins import NodeClass
from joulie_projections.view import View

SETTINGS = (
    *projector.SETTINGS,
    *operator.SETTINGS,
    *extender.SETTINGS,
    *simulator.SETTINGS,
)
PARTS = ["projector", "operator", "extender", "simulator"]
SCREEN_S = 1.0
SHOWN = 10


class Wish(NamedTuple):
    """What the command line asked for."""

    nodes: int
    seed: int
    headless: bool
    seconds: float | None  # None: until Ctrl-C


def run(args: argparse.Namespace, wires: Wiring) -> int:
    wish = Wish(args.nodes, args.seed, args.headless or args.json, args.seconds)
    screen = Console(stderr=True)
    summary = run_until_told(lambda told: run_demo(wires, wish, told, screen))
    print(json.dumps(summary) if args.json else _farewell(summary, wires))
    return 0


def _farewell(summary: dict[str, Any], wires: Wiring) -> str:
    where = f"--data {wires.data.path}"
    return (
        f"{summary['decisions']} decisions for {summary['pods']} pods on {summary['nodes']} "
        f"nodes; {summary['refused']} of them refused some node.\n"
        f"All of it is in {wires.data.path}. To prove it:\n"
        f"  joulie verify {where}\n  joulie replay {where}"
    )


async def run_demo(
    wires: Wiring, wish: Wish, told: asyncio.Event, screen: Console
) -> dict[str, Any]:
    """Returns what happened. `told` is set by Ctrl-C."""
    extra = {
        "SIM_NODES": str(wish.nodes),
        "SIM_SEED": str(wish.seed),
        "JOULIE_CLUSTER": wires.bus.cluster,
        "RECONCILE_INTERVAL": "10s",
        "KUBECONFIG": "",  # a simulated cluster must never reach a real one
        "EXTENDER_BINDS": "simulated",
    }
    wires.data.create()
    async with (
        Supervisor.over(wires.data, PARTS, _addresses(), extra, wires.subjects) as supervisor,
        _viewing(wires, supervisor) as view,
    ):
        start = await _watch(wires, wish, told, _Screen(screen, view, supervisor))
        summary = _summary(view, start, supervisor)
    with History.of(wires.data.database) as history:  # everything that came in until the end
        return {**_told(history), **summary}


@contextlib.asynccontextmanager
async def _viewing(wires: Wiring, supervisor: Supervisor) -> AsyncGenerator[View, None]:
    engine = database.reader(wires.data.database)
    try:
        async with (
            JetStreamLog.open(supervisor.broker.address_of(Role.VIEWER), "joulie-demo") as bus,
            View.open(bus, engine, wires.subjects) as view,
        ):
            yield view
    finally:
        engine.dispose()


def _addresses() -> dict[str, HostPort]:
    """The documented ports if they are free, others if not: a demo must not fail over that."""
    return {"extender": _free_or(9876), "metrics": _free_or(9877)}


def _free_or(port: int) -> HostPort:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return HostPort("127.0.0.1", free_port())
    return HostPort("127.0.0.1", port)


async def _watch(wires: Wiring, wish: Wish, told: asyncio.Event, screen: "_Screen") -> int:
    """Until the time is over; returns the position at which it began."""
    await screen.view.wait_ready(30)
    start = screen.view.position
    ending = asyncio.create_task(told.wait())
    deadline = None if wish.seconds is None else time.monotonic() + wish.seconds
    with contextlib.nullcontext() if wish.headless else screen.live():
        while not ending.done() and (deadline is None or time.monotonic() < deadline):
            left = SCREEN_S if deadline is None else min(SCREEN_S, deadline - time.monotonic())
            await asyncio.wait([ending], timeout=max(0.0, left))
            if not wish.headless:
                screen.draw(wires)
    ending.cancel()
    return start


def _summary(view: View, start: int, supervisor: Supervisor) -> dict[str, Any]:
    beat = view.last_beat
    return {
        "events": view.position - start,
        "position": view.position,
        "lag_ms": beat.lag_ms if beat else None,
        "nodes": sum(node.present for node in view.world.nodes.values()),
        "endpoints": supervisor.endpoints,
    }


def _told(history: History) -> dict[str, int]:
    """Answers, pods they were about, and those filter answers that refused some node."""
    counts = history.counts()
    refused = sum(bool(_refusal(entry)) for entry in history.filters())
    return {"decisions": counts.answers, "pods": counts.pods, "refused": refused}


def _refusal(entry: Logged) -> str:
    event = _event(entry)
    return event.reason if isinstance(event, FilterDecided) else ""


def _event(entry: Logged) -> AnyEvent:
    where = f"entry {entry.pos}"
    return codec.read(codec.open_envelope(entry.body, where), where)


class _Screen:
    """The live picture: what the cluster looks like, and what was decided last."""

    def __init__(self, console: Console, view: View, supervisor: Supervisor) -> None:
        self.view = view
        self._console = console
        self._supervisor = supervisor
        self._live: Live | None = None
        self._before = (time.monotonic(), 0)

    def live(self) -> Live:
        self._live = Live(Text("starting ..."), console=self._console, auto_refresh=False)
        return self._live

    def draw(self, wires: Wiring) -> None:
        if self._live is not None:
            self._live.update(
                Group(self._head(), self._decisions(wires), self._foot(wires)), refresh=True
            )

    def _head(self) -> Text:
        board, beat = self.view.snapshot().board, self.view.last_beat
        classes = board.columns["node_class"]
        named = {kind: int(np.count_nonzero(classes == kind)) for kind in NodeClass}
        watts = float(board.floats("measured_w").sum())
        decisions = beat.decisions if beat else 0
        return Text(
            f"position {self.view.position}   lag {beat.lag_ms if beat else '?'} ms   "
            f"log entries {decisions} ({self._rate(decisions):.0f}/s)\n"
            f"nodes: {named[NodeClass.PERFORMANCE]} performance, {named[NodeClass.ECO]} eco, "
            f"{named[NodeClass.DRAINING]} draining   measured {watts / 1000:.1f} kW\n"
            f"headroom {_spark(board)}\n",
            style="bold",
        )

    def _rate(self, decisions: int) -> float:
        now = time.monotonic()
        (then, before), self._before = self._before, (now, decisions)
        return max(0, decisions - before) / max(0.001, now - then) if before else 0.0

    def _decisions(self, wires: Wiring) -> Table:
        table = Table("pod", "class", "asked", "answer", box=None, pad_edge=False)
        with History.of(wires.data.database) as history:
            newest = [_event(entry) for entry in history.newest_answers(SHOWN)]
        for event in newest:
            assert isinstance(event, FilterDecided | PrioritizeDecided)
            pod = f"{event.pod.namespace}/{event.pod.name}"
            asked = len(event.candidates.ordinals) // 4
            table.add_row(pod, event.pod.workload, f"{asked} nodes", _answer(event))
        return table

    def _foot(self, wires: Wiring) -> Text:
        where = f"--data {wires.data.path}"
        urls = "   ".join(f"{name} {url}" for name, url in self._supervisor.endpoints.items())
        return Text(
            f"\n{urls}\ntry, in another terminal:\n"
            f"  joulie status {where}\n  joulie verify {where}\n  joulie replay {where}\n"
            "Ctrl-C stops everything; the same command goes on where it was.",
            style="dim",
        )


def _answer(event: FilterDecided | PrioritizeDecided) -> str:
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


def _spark(board: Board) -> str:
    """How many nodes have how much of their cap still free: ten bars from 0 to 100 %."""
    capped = board.floats("capped_w")
    rows = capped > 0
    free = (1 - board.floats("measured_w")[rows] / capped[rows]) * 100
    bars, _ = np.histogram(np.clip(free, 0, 100), bins=10, range=(0, 100))
    highest = max(1, int(bars.max()))
    return "0 % " + "".join("▁▂▃▄▅▆▇█"[int(bar) * 7 // highest] for bar in bars) + " 100 %"
