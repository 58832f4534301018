"""`joulie demo`: everything, over a cluster that does not exist."""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.live import Live

from joulie_bus.broker.embedded import free_port
from joulie_bus.events import AnyEvent, FilterDecided, codec
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime import logging
from joulie_bus.runtime.child_process import die_with_parent
from joulie_bus.runtime.settings import BusSettings, HostPort, Source
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.roles import Role
from joulie_cli.commands import console, extender, operator, projector, simulator
from joulie_cli.display.placements import placements
from joulie_cli.display.screen import Extent, Place, Screen
from joulie_cli.supervisor.data_directory import DEFAULT
from joulie_cli.supervisor.supervisor import Supervisor
from joulie_cli.wiring import Wiring, run_until_told
from joulie_console.settings import ConsoleSettings
from joulie_extender.settings import ServerSettings
from joulie_projections.history.history import History, Logged
from joulie_projections.store import database
from joulie_projections.view.view import View
from joulie_simulator.service import SimulatorOptions

SETTINGS = (
    *projector.SETTINGS,
    *operator.SETTINGS,
    *extender.SETTINGS,
    *console.SETTINGS,
    *simulator.SETTINGS,
)
PARTS = ("projector", "operator", "extender", "console", "simulator")
SCREEN_S = 1.0
PROOF_S = 60.0  # after so long there is something to prove
RECONCILE = {"RECONCILE_INTERVAL": "10s"}  # a demo lasts for minutes
PODS_PER_S = (8.0, 50.0)  # least and most; between them, one for 15 nodes


class Wish(NamedTuple):
    """What the command line asked for."""

    simulated: SimulatorOptions
    words: dict[str, str]  # the options of the simulator
    headless: bool
    seconds: float | None  # None: until Ctrl-C


def run(args: argparse.Namespace, wires: Wiring) -> int:
    wish = wish_of(args)
    with contextlib.nullcontext() if wish.headless else lines_aside(wires):
        summary = run_until_told(lambda told: run_demo(wires, wish, told))
    print(json.dumps(summary) if args.json else _farewell(summary, wires))
    return 0


def wish_of(args: argparse.Namespace) -> Wish:
    """Raises SettingsError: what is wrong with an option is told before anything starts."""
    if args.trace:
        args.trace = args.trace.resolve()  # parts are started elsewhere
    words = simulator.words_of(args)
    nodes = simulator.options_of(words).nodes
    least, most = PODS_PER_S
    words = {"--pods-per-second": f"{min(most, max(least, nodes / 15)):.1f}"} | words
    headless = args.headless or args.json
    return Wish(simulator.options_of(words), words, headless, args.seconds)


@contextlib.contextmanager
def lines_aside(wires: Wiring) -> Generator[None, None, None]:
    """While a picture is drawn, our own log goes into a file: lines between would tear it."""
    level, style = wires.bus.log_level, wires.bus.log_format
    wires.data.create()
    with open(wires.data.logs / "demo.log", "a", buffering=1) as file:
        logging.configure(level, style, "demo", file)
        try:
            yield
        finally:
            logging.configure(level, style, "demo")


def _farewell(summary: dict[str, Any], wires: Wiring) -> str:
    joulie, where = as_called(sys.argv[0]), _option(wires)
    return (
        f"{summary['decisions']} decisions for {summary['pods']} pods on {summary['nodes']} "
        f"nodes; {summary['refused']} of them refused some node.\n"
        f"All of it is in {wires.data.path}. To prove it:\n"
        f"  {joulie} verify{where}\n  {joulie} replay{where}"
    )


def as_called(program: str) -> str:
    """How the user calls us again: by name if PATH leads here, else by the way there."""
    path = Path(program)
    found = shutil.which("joulie")
    if path.name != "joulie" or (found and Path(found).resolve() == path.resolve()):
        return "joulie"
    return os.path.relpath(path)


def _option(wires: Wiring) -> str:
    """What a command needs to find the data, with a blank before it."""
    return "" if wires.data.path == DEFAULT.resolve() else f" --data {wires.data.path}"


async def run_demo(wires: Wiring, wish: Wish, told: asyncio.Event) -> dict[str, Any]:
    """Returns what happened. `told` is set by Ctrl-C."""
    extra = {
        **wires.source.from_file(),
        **({} if wires.source.names("RECONCILE_INTERVAL") else RECONCILE),
        "JOULIE_CLUSTER": wires.bus.cluster,
        "KUBECONFIG": "",  # a simulated cluster must never reach a real one
        "EXTENDER_BINDS": "simulated",
    }
    addresses = addresses_of(wires.source)
    words = [word for pair in wish.words.items() for word in pair]
    parts = {**dict.fromkeys(PARTS, ()), "simulator": words}
    wires.data.create()
    if not wish.headless:
        print(f"Starting {', '.join(PARTS)} and a broker; the data is in {wires.data.path} ...")
    async with (
        Supervisor.over(wires.data, parts, addresses, extra, wires.subjects) as supervisor,
        _viewing(wires, supervisor) as view,
    ):
        await view.wait_ready(30)
        start = view.position
        if wish.headless:
            await _until_over(told, wish.seconds)
        else:
            joulie = as_called(sys.argv[0])
            place = Place(supervisor.endpoints, joulie, _option(wires), wish.simulated.speed)
            await _show(_Shown(wires, supervisor, Screen(view, place)), wish.seconds, told)
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


def addresses_of(source: Source) -> dict[str, HostPort]:
    """What somebody set is used as it is; else a port that is taken gives way to a free one:
    a demo must not fail over that.
    """
    documented = {
        "extender": ("EXTENDER_ADDR", source.load(ServerSettings).addr),
        "console": ("CONSOLE_ADDR", source.load(ConsoleSettings).addr),
        "metrics": ("METRICS_ADDR", source.load(BusSettings).metrics_addr),
    }
    return {
        part: address if source.names(name) else free_or(address.port)
        for part, (name, address) in documented.items()
    }


def free_or(port: int) -> HostPort:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return HostPort("127.0.0.1", free_port())
    return HostPort("127.0.0.1", port)


async def _until_over(told: asyncio.Event, seconds: float | None) -> bool:
    """Until somebody says so, or the time is over; was it said?"""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await told.wait()
    return told.is_set()


class _Shown(NamedTuple):
    wires: Wiring
    supervisor: Supervisor
    screen: Screen

    def draw(self, live: Live) -> None:
        extent = Extent(*live.console.size)
        with History.of(self.wires.data.database) as history:
            # Two answers for a pod, and more for those that are tried again.
            newest = [_event(entry) for entry in history.newest_answers(4 * extent.rows)]
        self.screen.fell = self.supervisor.fell
        live.update(self.screen.picture(placements(newest), extent), refresh=True)


async def _show(shown: _Shown, seconds: float | None, told: asyncio.Event) -> None:
    """Draws once a second; after a minute it has all decisions so far taken again."""
    ending = float("inf") if seconds is None else time.monotonic() + seconds
    with Live(console=Console(stderr=True), auto_refresh=False) as live:
        async with background(prove(shown.wires, shown.screen, PROOF_S), "proof"):
            while (left := ending - time.monotonic()) > 0:
                if await _until_over(told, min(SCREEN_S, left)):
                    return
                shown.draw(live)


async def prove(wires: Wiring, screen: Screen, after_s: float) -> None:
    """In a process of its own, as anybody could: `joulie replay` on the data of a running demo."""
    await asyncio.sleep(after_s)
    screen.proof = "proof: taking every decision so far again ..."
    replaying = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "joulie_cli.main", "replay", "--data", str(wires.data.path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=die_with_parent,
    )
    try:
        out, err = await replaying.communicate()
        said = out or err
        screen.proof = f"proof: {said.decode().strip().splitlines()[0]}" if said else ""
    finally:
        if replaying.returncode is None:
            replaying.kill()
            await replaying.wait()


def _summary(view: View, start: int, supervisor: Supervisor) -> dict[str, Any]:
    beat = view.last_beat
    return {
        "events": view.position - start,
        "position": view.position,
        "lag_ms": beat.lag_ms if beat else None,
        "nodes": sum(node.present for node in view.cluster_state.nodes.values()),
        "endpoints": supervisor.endpoints,
    }


def _told(history: History) -> dict[str, int]:
    """Answers, pods they were about, and those filter answers that refused some node."""
    refused = sum(bool(_refusal(entry)) for entry in history.filters())
    answers = history.counts().answers
    return {"decisions": answers, "pods": history.count_pods(), "refused": refused}


def _refusal(entry: Logged) -> str:
    event = _event(entry)
    return event.reason if isinstance(event, FilterDecided) else ""


def _event(entry: Logged) -> AnyEvent:
    where = f"entry {entry.pos}"
    return codec.read(codec.open_envelope(entry.message, where), where)
