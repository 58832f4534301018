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
from simulated_faults import EXTENDERS, OF_COPIES, PROJECTORS, Fault, Faults, generated
from simulated_models import Meters, Repeats
from simulated_pods import Pods
from simulated_truth import Truth
from virtual_time import RUNNING, VirtualLoop

from bus_kit import CLUSTER
from bus_kit.memory_broker import MemoryBroker
from joulie_bus.runtime.secret_files import keep_private
from joulie_projections.fold.sequence import SequencedBatch, sequence
from joulie_projections.projector import projector
from joulie_projections.store.store import Store

QUIET_S = 8.0  # the shortest run, without its end
FRESH_AFTER_S = 12.0  # the last fault, everything must be fresh


class Story(NamedTuple):
    """What happened in a run, and the property that did not hold; empty if all of them did."""

    seed: int
    faults: list[Fault]
    lines: list[str]
    failure: str

    def __str__(self) -> str:
        return "\n".join(self.lines)


class Simulation:
    def __init__(self, seed: int, faults: Sequence[Fault] | None, directory: Path) -> None:
        self._seed = seed
        self._faults = generated(self._random_for("faults")) if faults is None else list(faults)
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
            DatabaseServer(migrated(directory / "joulie.db"), lambda: self._true_ns(skews[1])),
            ApiServer(self._random_for("API server"), self._fail),
            meters,
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
        made.append(Agents("agents", around))
        return {each.name: each for each in made}

    def _random_for(self, what: str) -> random.Random:
        """Of its own for each purpose, so that one fault less does not change everything else."""
        return random.Random(f"{self._seed} {what}")

    def _true_ns(self, skew_s: float) -> int:
        return self._clocks.true_ns(self._loop.time() + skew_s)

    def _record(self, what: str) -> None:
        self._lines.append(f"{self._loop.time():8.3f} {what}")

    def _fail(self, why: str) -> None:
        if not self._failure:
            self._failure = why
            self._record(f"FAILED: {why}")
            self._failed.set()

    def run(self) -> Story:
        self._lines.append(f"seed {self._seed}")
        self._lines += [f"  {fault}" for fault in self._faults]
        ids = self._random_for("ids")
        with (
            replaced(self._clocks, ids, self.around.database),
            self._observed_commits(),
            _log_lines_to(self._record),
            contextlib.closing(self._loop),
            contextlib.closing(self.around.database),
        ):
            self._loop.run_until_complete(self._whole())
        if not self._failure:
            asyncio.run(self._recomputed())
        return Story(self._seed, self._faults, self._lines, self._failure)

    @contextlib.contextmanager
    def _observed_commits(self) -> Generator[None, None, None]:
        """After each attempt of a projector, the simulator looks at what the database has."""
        with contextlib.ExitStack() as stack:
            for name in ("commit", "reset_incarnation"):
                observed = self._observed(getattr(Store, name))
                stack.enter_context(mock.patch.object(Store, name, observed))
            stack.enter_context(mock.patch.object(projector, "sequence", self._sequenced))
            yield

    def _sequenced(self, *args: Any) -> SequencedBatch:
        batch = sequence(*args)
        self._repeats.sequenced(args[2], batch.duplicates)
        return batch

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
        healed_s = max([QUIET_S, *(fault.at + fault.lasts for fault in self._faults)])
        pods = Pods(self.around, self._extenders, self._random_for)
        watching = Watching(self.around, self._components)
        work = [component.supervise() for component in self._components.values()]
        work += [faults.carry_out(fault) for fault in self._faults]
        work += [pods.come_and_go(healed_s), watching.follow()]
        tasks = [self._loop.create_task(each) for each in work]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._failed.wait(), healed_s + FRESH_AFTER_S)
        for task in tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                self._fail(f"the simulation itself: {error!r}")
        if not self._failure:
            watching.require_everything_fresh()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

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


def simulated(seed: int, faults: Sequence[Fault] | None = None) -> Story:
    """Runs the faults of the seed, or these instead."""
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="joulie-simulation-", dir=place) as directory:
        return Simulation(seed, faults, Path(directory)).run()


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
