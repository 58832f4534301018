"""`joulie demo`: all parts over a simulated cluster, with a live screen."""

import argparse
import asyncio
import contextlib
import json
import math
import os
import shutil
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.live import Live

from joulie_answers.views.placements import placements
from joulie_audit.access import heads_places
from joulie_audit.ledger import component as ledger
from joulie_bus.errors import ViewBehind
from joulie_bus.events import AnyEvent, FilterDecided, codec
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime import logging
from joulie_bus.runtime.child_process import die_with_parent
from joulie_bus.runtime.ports import free_port, take
from joulie_bus.runtime.presets import PRESET, SAVINGS
from joulie_bus.runtime.settings import BusSettings, HostPort, Source
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.roles import Role
from joulie_cli.demo import compare, farewell
from joulie_cli.demo.screen import DemoLocation, Screen, TerminalSize
from joulie_cli.display.output import show
from joulie_cli.supervisor.supervisor import Supervisor
from joulie_cli.supervisor.unfinished import FAILED, Unfinished
from joulie_console import component as console
from joulie_console.settings import ConsoleSettings
from joulie_extender import component as extender
from joulie_extender.settings import ServerSettings
from joulie_extender.terms.trend import SCALE
from joulie_operator import component as operator
from joulie_projections import projector_component as projector
from joulie_projections.component.data_directory import DEFAULT, DataDirectory
from joulie_projections.component.process import run_until_signalled
from joulie_projections.component.wiring import Wiring
from joulie_projections.history.history import History, StoredEntry
from joulie_projections.state.completeness import known_ms
from joulie_projections.store import database
from joulie_projections.view.view import View
from joulie_simulator import component as simulator
from joulie_simulator.service import SimulatorOptions

SETTINGS = (
    *projector.SETTINGS,
    *heads_places.SETTINGS,
    *operator.SETTINGS,
    *extender.SETTINGS,
    *console.SETTINGS,
    *ledger.SETTINGS,
    *simulator.SETTINGS,
)
PARTS = ("projector", "operator", "extender", "console", "ledger", "simulator")
SCREEN_S = 1.0
WAIT_LINE_S = 10.0  # between two lines about what a start waits for
NODES_PATIENCE_S = 30.0  # after the view is ready
RECONCILES_S = 1.0, 10.0  # the shortest and the longest time between plans; short, as a demo is
PROOF_S = 60.0  # when the replay starts: by then the log holds enough decisions
NODES_PER_ODD = 100  # of each kind: late, silent, leaving; a comparison has none
PODS_PER_S = (8.0, 50.0)  # minimum and maximum; between them one per 15 nodes


class DemoOptions(NamedTuple):
    """The parsed command line."""

    simulated: SimulatorOptions
    arguments: dict[str, str]  # passed on to `joulie simulator`
    headless: bool
    seconds: float | None  # None: until Ctrl-C


def run(args: argparse.Namespace, wires: Wiring) -> int:
    options = demo_options(args)
    if args.compare:
        return compare.run(args, wires, options.simulated, options.arguments)
    with contextlib.nullcontext() if options.headless else log_to_file(wires):
        found, code = run_until_signalled(lambda stop: run_demo(wires, options, stop))
    summary, unfinished = found
    speed, joulie = options.simulated.speed, command_name(sys.argv[0])
    last = farewell.text(summary, speed, joulie, _option(wires), wires.data.path)
    show(args, summary, last)
    for sentence in unfinished.sentences():
        print(sentence, file=sys.stderr)
    return FAILED if unfinished.has_failed else code


def demo_options(args: argparse.Namespace) -> DemoOptions:
    """Raises SettingsError before anything starts if an option is invalid."""
    if args.trace:
        args.trace = args.trace.resolve()  # parts run in another working directory
    arguments = simulator.given_arguments(args)
    nodes = simulator.options_of(arguments).nodes
    least, most = PODS_PER_S
    usual = {"--pods-per-second": f"{min(most, max(least, nodes / 15)):.1f}"}
    if not simulator.options_of(arguments).hours and not args.compare:
        usual["--odd-nodes"] = str(nodes // NODES_PER_ODD)
    arguments = usual | arguments
    headless = args.headless or args.output != "table"
    return DemoOptions(simulator.options_of(arguments), arguments, headless, args.seconds)


@contextlib.contextmanager
def log_to_file(wires: Wiring) -> Generator[None, None, None]:
    """Log to a file while the live screen is drawn: log lines would corrupt it."""
    level, style = wires.bus.log_level, wires.bus.log_format
    wires.data.create()
    with open(wires.data.logs / "demo.log", "a", buffering=1) as file:
        logging.configure(level, style, "demo", file)
        try:
            yield
        finally:
            logging.configure(level, style, "demo")


def command_name(program: str) -> str:
    """The command to print in hints: `joulie` if PATH finds this program, otherwise its path."""
    path = Path(program)
    found = shutil.which("joulie")
    if path.name != "joulie" or (found and Path(found).resolve() == path.resolve()):
        return "joulie"
    return os.path.relpath(path)


def _addresses(endpoints: Mapping[str, str]) -> str:
    return "joulie demo: " + ", ".join(f"{name} at {url}/" for name, url in endpoints.items())


def _option(wires: Wiring) -> str:
    """` --data DIR` if the data is not in the default directory, otherwise empty."""
    return "" if wires.data.path == DEFAULT.resolve() else f" --data {wires.data.path}"


async def run_demo(
    wires: Wiring, options: DemoOptions, stop: asyncio.Event
) -> tuple[dict[str, Any], Unfinished]:
    """Returns the summary. Ctrl-C sets `stop`."""
    extra, addresses = _environment(wires, options), addresses_of(wires.source)
    arguments = [word for pair in options.arguments.items() for word in pair]
    parts = {**dict.fromkeys(PARTS, ()), "simulator": arguments}
    wires.data.create()
    wires.data.simulated.unlink(missing_ok=True)
    over = wires.data.simulated if options.simulated.hours else None
    if not options.headless:
        print(f"Starting {', '.join(PARTS)} and a broker; the data is in {wires.data.path} ...")
    async with Supervisor.over(wires.data, parts, addresses, extra, wires.subjects) as supervisor:
        for line in moved(wires.source, addresses):
            print(line, file=sys.stderr, flush=True)
        async with _viewing(wires, supervisor) as view:
            await until_ready(view, supervisor, stop)
            start = view.position
            ending = Ending(stop, over, options.seconds, _knows_all(view, options.simulated.nodes))
            await _until(ending, wires, supervisor, view, options)
            summary = _summary(view, start, supervisor)
    spool = wires.source.load(ServerSettings).spool_in(wires.data.spool)
    unfinished = Unfinished.after(supervisor, spool)
    with History.of(wires.data.database) as history:  # all parts have stopped: all entries count
        found = {**_counts(history), **summary, **unfinished.as_json()}
    saved = farewell.saved_in(wires.data.database)
    return {**found, "simulated": simulated_in(wires.data), "saved": saved}, unfinished


async def _until(
    ending: "Ending", wires: Wiring, supervisor: Supervisor, view: View, options: DemoOptions
) -> None:
    if options.headless:
        print(_addresses(supervisor.endpoints), file=sys.stderr, flush=True)
        await ending.wait()
    else:
        await _show(_live_screen(wires, supervisor, view, options), ending)


async def until_ready(view: View, supervisor: Supervisor, stop: asyncio.Event) -> None:
    """Waits for the first state of the projector however busy the machine is, and says so; returns
    when `stop` is set, too."""
    began = said = time.monotonic()
    while not stop.is_set():
        with contextlib.suppress(ViewBehind):
            return await view.wait_ready(SCREEN_S)
        if (now := time.monotonic()) - said >= WAIT_LINE_S:
            said = now
            print(_waiting_line(now - began, supervisor), file=sys.stderr, flush=True)


def _waiting_line(waited_s: float, supervisor: Supervisor) -> str:
    load, cores = os.getloadavg()[0], os.cpu_count()
    trouble = f"; {supervisor.trouble}" if supervisor.trouble else ""
    return (
        f"joulie demo: has waited {waited_s:.0f} s for the first state of the projector, and "
        f"waits on; the load is {load:.0f} on {cores} cores{trouble}. Its log is "
        f"{supervisor.log_of('projector')}"
    )


def _environment(wires: Wiring, options: DemoOptions) -> dict[str, str]:
    return {
        **wires.source.from_file(),
        **demo_defaults(wires.source, options.simulated.speed),
        **trends_in_simulated_time(wires.source, options.simulated.speed),
        "JOULIE_CLUSTER": wires.bus.cluster,
        "KUBECONFIG": "",  # a demo never connects to a real cluster
        "EXTENDER_BINDS": "simulated",
    }


def demo_defaults(source: Source, speed: float) -> dict[str, str]:
    """The preset of a demo, and times of plans and of sleep in simulated time; what is given
    stays."""
    preset, (least, most) = source.given(PRESET) or SAVINGS, RECONCILES_S
    wanted = {
        PRESET: preset,
        "RECONCILE_INTERVAL": f"{min(most, max(least, compare.RECONCILE_S / speed)):g}s",
    }
    if preset == SAVINGS and not source.names("POLICY_TYPE"):
        wanted["POLICY_NUMBERS"] = compare.times_at(speed)
    return {name: value for name, value in wanted.items() if not source.names(name)}


def trends_in_simulated_time(source: Source, speed: float) -> dict[str, str]:
    """Readings come in real time, in which power changes `speed` times as fast as in the cluster:
    W/min in the setting are those of simulated time. A setting that is given stays as it is.
    """
    name = "SCORE_TREND_SCALE"
    return {} if source.names(name) else {name: f"{SCALE * speed:g}"}


def _knows_all(view: View, nodes: int) -> Callable[[], bool]:
    """Whether the view contains all nodes, or had the time for it."""
    latest = time.monotonic() + NODES_PATIENCE_S
    return lambda: len(view.cluster_state.nodes) >= nodes or time.monotonic() >= latest


def simulated_in(data: DataDirectory) -> dict[str, Any] | None:
    """What the simulator wrote at its end; None if it was killed."""
    try:
        found: dict[str, Any] = json.loads(data.simulated.read_bytes())
    except FileNotFoundError:
        return None
    return found


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
    """Addresses from the settings are used unchanged; a default port in use is replaced by a free
    one, so that a demo does not fail because of it.
    """
    return {
        part: address if source.names(name) else free_or(address.port)
        for part, (name, address) in _documented(source).items()
    }


def _documented(source: Source) -> dict[str, tuple[str, HostPort]]:
    """The setting of each address, and its value or default."""
    return {
        "extender": ("EXTENDER_ADDR", source.load(ServerSettings).addr),
        "console": ("CONSOLE_ADDR", source.load(ConsoleSettings).addr),
        "metrics": ("METRICS_ADDR", source.load(BusSettings).metrics_addr),
    }


def moved(source: Source, addresses: Mapping[str, HostPort]) -> list[str]:
    """One line for each documented port that something else has."""
    return [
        f"Port {address.port} is taken by another program: the {part} is at http://{taken}/ "
        f"instead. {name} chooses an address."
        for part, (name, address) in _documented(source).items()
        if (taken := addresses[part]).port != address.port
    ]


def free_or(port: int) -> HostPort:
    return HostPort("127.0.0.1", port if take(port) else free_port())


class Ending:
    """A demo ends with Ctrl-C, `seconds` after it has begun, or when its simulated time is over."""

    def __init__(
        self,
        stop: asyncio.Event,
        over: Path | None,
        seconds: float | None,
        has_begun: Callable[[], bool],
    ) -> None:
        self._stop = stop
        self._over = over  # a file that the simulator writes when its time is over
        self._seconds = math.inf if seconds is None else seconds
        self._has_begun = has_begun
        self._at = math.inf

    async def wait(self, at_most_s: float = math.inf) -> bool:
        """Returns whether it has come to its end; False after `at_most_s`."""
        until = time.monotonic() + at_most_s
        while not self._is_over():
            if (left_s := min(until, self._at) - time.monotonic()) <= 0:
                return self._is_over()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(SCREEN_S, left_s)):
                    await self._stop.wait()
        return True

    def _is_over(self) -> bool:
        if self._at == math.inf and self._has_begun():
            self._at = time.monotonic() + self._seconds
        is_written = self._over is not None and self._over.exists()
        return is_written or self._stop.is_set() or time.monotonic() >= self._at


class _LiveScreen(NamedTuple):
    wires: Wiring
    supervisor: Supervisor
    screen: Screen

    def draw(self, live: Live) -> None:
        size = TerminalSize(*live.console.size)
        with History.of(self.wires.data.database) as history:
            # A pod has two answers, and more if kube-scheduler retries it.
            newest = [_event(entry) for entry in history.newest_answers(4 * size.rows)]
        self.screen.trouble = self.supervisor.trouble
        live.update(self.screen.rendered(placements(newest), size), refresh=True)


def _live_screen(
    wires: Wiring, supervisor: Supervisor, view: View, options: DemoOptions
) -> _LiveScreen:
    joulie, speed = command_name(sys.argv[0]), options.simulated.speed
    location = DemoLocation(supervisor.endpoints, joulie, _option(wires), speed)
    return _LiveScreen(wires, supervisor, Screen(view, location))


async def _show(display: _LiveScreen, ending: Ending) -> None:
    """Draw once a second; after a minute, replay all decisions so far."""
    terminal = Console(stderr=True)
    with Live(console=terminal, auto_refresh=False) as live:
        async with background(
            replay_in_background(display.wires, display.screen, PROOF_S), "proof"
        ):
            while not await ending.wait(SCREEN_S):
                display.draw(live)
    if not terminal.is_terminal:
        terminal.line()  # Live ends the last frame itself on a terminal only


async def replay_in_background(wires: Wiring, screen: Screen, after_s: float) -> None:
    """Run `joulie replay` on the data of the running demo, in a separate process."""
    await asyncio.sleep(after_s)
    screen.proof = "replay: recomputing all decisions so far ..."
    replaying = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "joulie_cli.main", "replay", "--data", str(wires.data.path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=die_with_parent,
    )
    try:
        out, err = await replaying.communicate()
        output = out or err
        screen.proof = f"replay: {output.decode().strip().splitlines()[0]}" if output else ""
    finally:
        if replaying.returncode is None:
            replaying.kill()
            await replaying.wait()


def _summary(view: View, start: int, supervisor: Supervisor) -> dict[str, Any]:
    beat, is_ready = view.last_beat, view.is_ready
    return {
        "events": view.position - start if is_ready else None,
        "position": view.position if is_ready else None,
        "lag_ms": beat.lag_ms if beat else None,
        "behind_ms": known_ms(view.ages.behind_ms),
        "nodes": _nodes_of(view) if is_ready else None,
        "endpoints": supervisor.endpoints,
        "restarts": {part: count for part, count in supervisor.restarts.items() if count},
    }


def _nodes_of(view: View) -> int:
    return sum(node.present for node in view.cluster_state.nodes.values())


def _counts(history: History) -> dict[str, int]:
    """Counts answers, their pods, and filter answers that refused at least one node."""
    refused = sum(bool(_refusal(entry)) for entry in history.filters())
    answers = history.counts().answers
    return {"decisions": answers, "pods": history.count_pods(), "refused": refused}


def _refusal(entry: StoredEntry) -> str:
    event = _event(entry)
    return event.reason if isinstance(event, FilterDecided) else ""


def _event(entry: StoredEntry) -> AnyEvent:
    where = f"entry {entry.pos}"
    return codec.decoded(entry.message, where)
