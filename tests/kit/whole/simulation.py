"""One seed, one run of the whole: real components, models around them, faults, and properties."""

import asyncio
import contextlib
import functools
import random
import tempfile
from collections.abc import Callable, Generator, Iterable, MutableMapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from simulated_broker import BrokerServer
from simulated_checks import Watching, require_all_equal
from simulated_clocks import Clocks, replaced
from simulated_cluster import ApiServer
from simulated_components import (
    Agents,
    Component,
    ExtenderComponent,
    OperatorComponent,
    ProjectorComponent,
    Surroundings,
    ViewComponent,
)
from simulated_copies import Copies
from simulated_database import DatabaseServer, migrated
from simulated_faults import (
    EXTENDERS,
    LEDGER,
    OF_COPIES,
    PROJECTORS,
    Fault,
    Faults,
    generated,
    generated_in_an_hour,
)
from simulated_hours import Lasting, Pace, bursts
from simulated_ledger import LedgerComponent
from simulated_models import Meters, Repeats
from simulated_pods import Pods
from simulated_truth import Truth
from simulated_versions import each_by_its_own
from virtual_time import RUNNING, VirtualLoop

from bus_kit import CLUSTER
from bus_kit.memory_broker import MemoryBroker
from joulie_bus.runtime.secret_files import keep_private
from joulie_projections.fold.sequence import SequencedBatch
from joulie_projections.projector import projector
from joulie_projections.store.store import Store

WITH_HOURS = 20  # one seed of so many has quiet hours
MOST_HOURS = 6


class Story(NamedTuple):
    """What happened in a run, and the property that did not hold; empty if all of them did."""

    seed: int
    hours: int  # quiet ones
    faults: list[Fault]
    lines: list[str]
    failure: str
    cluster_s: float
    run_s: float  # of them; the others were skipped

    def __str__(self) -> str:
        return "\n".join(self.lines)


class Simulation:
    def __init__(
        self, seed: int, faults: Sequence[Fault] | None, hours: int, directory: Path
    ) -> None:
        self._seed = seed
        self._hours = hours
        self._faults = faults_of(seed, hours) if faults is None else list(faults)
        self._lines: list[str] = []
        self._failure = ""
        self._loop = VirtualLoop(self._random_for("threads"))
        self._clocks = Clocks(self._loop)
        self._failed = asyncio.Event()
        rng = self._random_for("servers")
        skews = rng.uniform(-5, 5), rng.uniform(-5, 5)
        broker = MemoryBroker(CLUSTER, lambda: self._true_ns(skews[0]))
        server = BrokerServer(broker, self._loop.time)
        if any(fault.kind in OF_COPIES for fault in self._faults):
            server.copies = Copies(broker)
        meters = Meters()
        self._repeats = Repeats(broker, meters, self._fail)
        self._truth = Truth(broker, lambda: self._true_ns(skews[0]), self._fail)
        self.around = Surroundings(
            server,
            DatabaseServer(
                migrated(directory / "joulie.db"),
                lambda: self._true_ns(skews[1]),
                lambda: self._clocks.running_ns(skews[1]),
            ),
            ApiServer(self._random_for("API server"), self._fail),
            meters,
            Pace(self._loop),
            self._truth,
            directory,
            _key_in(directory, rng),
            self._record,
            self._random_for,
        )
        self._extenders = [ExtenderComponent(name, self.around) for name in EXTENDERS]
        self._components = self._built()

    def _built(self) -> dict[str, Component]:
        around = self.around
        made: list[Component] = [ProjectorComponent(name, around) for name in PROJECTORS]
        made += self._extenders
        made += [OperatorComponent("operator", around), ViewComponent("console", around)]
        made += [LedgerComponent(LEDGER, around), Agents("agents", around)]
        return {each.name: each for each in made}

    def _random_for(self, what: str) -> random.Random:
        return random_for(self._seed, what)

    def _true_ns(self, skew_s: float) -> int:
        return self._clocks.true_ns(skew_s)

    def _record(self, what: str) -> None:
        self._lines.append(f"{self._loop.cluster_s():8.3f} {what}")

    def _fail(self, why: str) -> None:
        if not self._failure:
            self._failure = why
            self._record(f"FAILED: {why}")
            self._failed.set()

    def run(self) -> Story:
        self._lines.append(f"seed {self._seed}" + f", {self._hours} h" * (self._hours > 0))
        self._lines += [f"  {fault}" for fault in self._faults]
        ids = self._random_for("ids")
        with (
            replaced(self._clocks, ids, self.around.database),
            each_by_its_own(),
            self._observed_commits(),
            _log_lines_to(self._record),
            contextlib.closing(self._loop),
            contextlib.closing(self.around.database),
        ):
            self._loop.run_until_complete(self._whole())
        if not self._failure:
            asyncio.run(self._recomputed())
        lasted = self._loop.cluster_s(), self._loop.time()
        return Story(self._seed, self._hours, self._faults, self._lines, self._failure, *lasted)

    @contextlib.contextmanager
    def _observed_commits(self) -> Generator[None, None, None]:
        """After each attempt of a projector, the simulator looks at what the database has."""
        with contextlib.ExitStack() as stack:
            for name in ("commit", "reset_incarnation"):
                observed = self._observed(getattr(Store, name))
                stack.enter_context(mock.patch.object(Store, name, observed))
            name = "sequence"  # or what another version has in its place
            sequenced = self._sequenced(getattr(projector, name))
            stack.enter_context(mock.patch.object(projector, name, sequenced))
            yield

    def _sequenced(self, call: Callable[..., SequencedBatch]) -> Callable[..., SequencedBatch]:
        def sequenced(*args: Any) -> SequencedBatch:
            batch = call(*args)
            self._repeats.sequenced(args[2], batch.duplicates)
            return batch

        return sequenced

    def _observed(self, call: Callable[..., None]) -> Callable[..., None]:
        truth, server = self._truth, self.around.database

        @functools.wraps(call)
        def observed(*args: Any) -> None:
            try:
                call(*args)
            finally:
                truth.committed(server.committed())

        return observed

    async def _whole(self) -> None:
        faults = Faults(self.around, self._components)
        in_turn = list(bursts(self._hours, [Lasting(f.at, f.at + f.lasts) for f in self._faults]))
        pods = Pods(self.around, self._extenders, self._random_for)
        watching = Watching(self.around, self._components)
        work = [component.supervise() for component in self._components.values()]
        work += [faults.carry_out(fault) for fault in self._faults]
        work += [pods.come_and_go(in_turn, self._loop.cluster_s), watching.follow()]
        work.append(self.around.pace.skip_quiet_time(watching.still_at))
        tasks = [self._loop.create_task(each) for each in work]
        for burst in in_turn:
            await self._run_until(burst.start, is_quiet=True)
            await self._run_until(burst.fresh_at, is_quiet=False)
            for task in tasks:
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    self._fail(f"the simulation itself: {error!r}")
            if self._failure:
                break
            watching.require_everything_fresh()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def _run_until(self, moment: float, *, is_quiet: bool) -> None:
        self.around.pace.is_quiet = is_quiet
        with contextlib.suppress(TimeoutError):
            left_s = moment - self._loop.cluster_s()
            await asyncio.wait_for(self._failed.wait(), max(0.0, left_s))

    async def _recomputed(self) -> None:
        done = await require_all_equal(self.around, self._fail)
        self._lines.append(f"end: {done}")


@contextlib.contextmanager
def _log_lines_to(record: Any) -> Generator[None, None, None]:
    """Warnings of components are part of the story."""
    before = structlog.get_config()

    def written(_: object, level: str, line: MutableMapping[str, Any]) -> str:
        process = RUNNING.get()
        if process is not None and process.is_dead:
            raise structlog.DropEvent
        line.pop("package", None)
        line.pop("exc_info", None)
        what = line.pop("event")
        fields = " ".join(f"{name}={value}" for name, value in line.items())
        record(f"{process.name if process else 'simulation'}: {level} {what} {fields}".rstrip())
        raise structlog.DropEvent

    structlog.configure(
        processors=[written],
        wrapper_class=structlog.make_filtering_bound_logger(30),
        logger_factory=structlog.ReturnLoggerFactory(),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)


def random_for(seed: int, what: str) -> random.Random:
    """Of its own for each purpose, so that one fault less does not change everything else."""
    return random.Random(f"{seed} {what}")


def faults_of(seed: int, hours: int) -> list[Fault]:
    in_hours = (
        each
        for hour in range(1, hours + 1)
        for each in generated_in_an_hour(random_for(seed, f"faults of hour {hour}"), hour)
    )
    return [*generated(random_for(seed, "faults"), hours), *in_hours]


def hours_of(seed: int) -> int:
    return 1 + seed // WITH_HOURS % MOST_HOURS if seed % WITH_HOURS == 0 else 0


def simulated(seed: int, faults: Sequence[Fault] | None = None, hours: int | None = None) -> Story:
    """Runs the faults and quiet hours of the seed, or these instead."""
    if hours is None:
        hours = hours_of(seed) if faults is None else 0
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="joulie-simulation-", dir=place) as directory:
        return Simulation(seed, faults, hours, Path(directory)).run()


def first_failure(stories: Iterable[Story]) -> Story | None:
    return next((story for story in stories if story.failure), None)


def _key_in(directory: Path, rng: random.Random) -> Path:
    """A key from the seed: signatures are a part of the log."""
    file = directory / "head.key"
    key = Ed25519PrivateKey.from_private_bytes(rng.randbytes(32))
    keep_private(
        file, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    )
    return file
