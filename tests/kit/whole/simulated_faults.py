"""Faults: a generated list of values, and what each does to the whole."""

import asyncio
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from simulated_components import RESTART_S, Component, Surroundings
from simulated_database import Standby
from simulated_hours import HOUR_S
from simulated_moves import HOLE, MOVE, RESTORE, Move
from simulated_versions import NEXT

from joulie_bus.streams.subjects import Stream
from joulie_projections.fold.manifest import CODE_VERSION

PROJECTORS = ("projector-0", "projector-1")
EXTENDERS = ("extender-0", "extender-1")
LEDGER = "ledger"
COMPONENTS = (*PROJECTORS, *EXTENDERS, "operator", "console", LEDGER, "agents")
FAILOVER = "failover to a standby that lags"
DAMAGE = "copy of a stream incomplete"
ELECTION = "no leader makes consumers"
MOVES = (MOVE, RESTORE, HOLE)
VERSION = "next version of the folds"
CLOCK_STEP = "wall clock set back"
STREAM_FULL = "stream full"
DISK_FULL = "disk of the database full"
SLOW_DISK = "slow disk"
FORGETS = "broker forgets message ids"
LOST_ACKS = "acknowledgements lost"
# What happens, to what, and how likely it is beside the others.
KINDS: Mapping[str, tuple[tuple[str, ...], float]] = {
    "kill": (COMPONENTS, 4),
    "freeze": (COMPONENTS, 3),
    "cut from the broker": (COMPONENTS, 4),
    "cannot send to the broker": (COMPONENTS, 1),
    "cannot receive from the broker": (COMPONENTS, 1),
    LOST_ACKS: (COMPONENTS, 2),
    "slow link": (COMPONENTS, 1),
    "cut from the database": ((*PROJECTORS, *EXTENDERS, "operator", "console", LEDGER), 3),
    "replies of the database lost": ((*PROJECTORS, LEDGER), 2),
    "broker down": (("broker",), 1),
    "quorum lost": (("broker",), 1),
    FORGETS: (("broker",), 1),
    STREAM_FULL: (("broker",), 1),
    DAMAGE: (("broker",), 1),
    ELECTION: (("broker",), 1),
    "database down": (("database",), 1),
    FAILOVER: (("database",), 4),
    MOVE: (("database",), 0.5),
    RESTORE: (("database",), 0.5),
    HOLE: (("database",), 0.5),
    VERSION: (PROJECTORS, 1),
    "requests lost": (("API server",), 1),
    DISK_FULL: (("database",), 1),
    SLOW_DISK: (COMPONENTS, 1),
    CLOCK_STEP: (COMPONENTS, 1),
}
FROM_S, TO_S = 3.0, 12.0  # when faults begin
EMPTY_SHARE = 0.2  # of the standbys: those have nothing of the database
SHORTEST_S, LONGEST_S = 0.3, 5.0
CLOCK_STEP_S = 60.0  # the furthest, in either direction
SLOW_DISK_S = 0.2  # for each call of a thread, on average
FORGETS_EACH_S = 0.2
TAKEOVER_S = 6.0  # until a projector leads whose other one was killed, and has folded something
SIGNED_S = 12.0  # until the first head is signed: nothing can be trimmed before
SNAPSHOT_S = 10.0  # behind a hole, mostly
AWAY_S = 2.0  # the archiver, so that the archive gets a hole
PROMOTION_S = 3.0  # the longest time until a standby serves
# Some faults last longer than the whole may stand still.
LASTING_SHARE, LASTING_S = 0.4, 16.0
LASTING = (
    "cut from the broker",
    "cannot send to the broker",
    "cannot receive from the broker",
    DAMAGE,
    ELECTION,
)
OF_COPIES = (DAMAGE, ELECTION)
PROJECTORS_SHARE = 0.5  # of the faults of components: there the whole can stop


class Fault(NamedTuple):
    at: float
    kind: str
    target: str
    lasts: float  # seconds; of a process that is killed, until its restart
    lag: float = 0.0  # of a standby or a clock, or since what is trimmed was archived

    def __str__(self) -> str:
        lag = f", {self.lag:.2f} s behind" if self.lag else ""
        return f"at {self.at:.2f} s: {self.kind}: {self.target}, for {self.lasts:.2f} s{lag}"


def generated(rng: random.Random, hours: int = 0) -> list[Fault]:
    """One to six faults, ordered by their times; none of copies, with quiet hours: their readers
    ask five times a second."""
    likely = {kind: weight for kind, (_, weight) in KINDS.items()}
    if hours:
        likely |= dict.fromkeys(OF_COPIES, 0)
    kinds, weights = list(likely), list(likely.values())
    made = []
    for kind in rng.choices(kinds, weights, k=rng.randint(1, 6)):
        at, lasts = rng.uniform(FROM_S, TO_S), rng.uniform(SHORTEST_S, LONGEST_S)
        lasts += LASTING_S * (kind in LASTING and rng.random() < LASTING_SHARE)
        lasts += TAKEOVER_S * (kind == VERSION)
        lag = _lag(kind, at, rng)
        if kind in MOVES:
            shortest_s = SNAPSHOT_S if kind == HOLE else 0.2
            at, lag = at + SIGNED_S, rng.uniform(shortest_s, SIGNED_S)
        made.append(Fault(at, kind, _target(kind, rng), lasts, lag))
        if kind == FORGETS:  # which shows only where messages are sent again
            made.append(Fault(at, LOST_ACKS, rng.choice(COMPONENTS), lasts))
    if any(fault.kind in MOVES for fault in made):
        made = [fault for fault in made if fault.kind != FAILOVER]  # to what was trimmed meanwhile
    return sorted(made)


def generated_in_an_hour(rng: random.Random, hour: int) -> list[Fault]:
    """None to two faults while pods come at the end of an hour. A standby may lag by an hour."""
    kinds = [kind for kind in KINDS if kind not in (*OF_COPIES, *MOVES, FORGETS)]
    weights = [KINDS[kind][1] for kind in kinds]
    made = []
    for kind in rng.choices(kinds, weights, k=rng.randint(0, 2)):
        at, lasts = hour * HOUR_S + rng.uniform(0.5, FROM_S), rng.uniform(SHORTEST_S, LONGEST_S)
        lag = _lag(kind, at, rng)
        if kind == FAILOVER:
            lag = rng.choice((lag, rng.uniform(1, HOUR_S - 60)))
        made.append(Fault(at, kind, _target(kind, rng), lasts, lag))
    return sorted(made)


def _lag(kind: str, at: float, rng: random.Random) -> float:
    if kind == CLOCK_STEP:
        return rng.uniform(-CLOCK_STEP_S, CLOCK_STEP_S)
    return _lag_before(at, rng) if kind == FAILOVER else 0.0


def _lag_before(at: float, rng: random.Random) -> float:
    return at if rng.random() < EMPTY_SHARE else rng.uniform(0.2, min(4.0, at))


def _target(kind: str, rng: random.Random) -> str:
    targets = KINDS[kind][0]
    among = PROJECTORS if PROJECTORS[0] in targets and rng.random() < PROJECTORS_SHARE else targets
    return rng.choice(among)


def _cut(component: Component, *, sends: bool, receives: bool) -> None:
    component.link.sends, component.link.receives = sends, receives


def _lose_acknowledgements(component: Component) -> None:
    component.link.lost_share = 0.7


def _slow_down(component: Component) -> None:
    component.link.slow_s = 0.4


def _cut_from_the_database(component: Component) -> None:
    component.database_link.works = False


def _lose_replies(component: Component) -> None:
    component.database_link.lost_share = 0.5


OF_LINKS: Mapping[str, Callable[[Component], None]] = {
    "cut from the broker": partial(_cut, sends=False, receives=False),
    "cannot send to the broker": partial(_cut, sends=False, receives=True),
    "cannot receive from the broker": partial(_cut, sends=True, receives=False),
    LOST_ACKS: _lose_acknowledgements,
    "slow link": _slow_down,
    "cut from the database": _cut_from_the_database,
    "replies of the database lost": _lose_replies,
}


class Faults:
    """Carries out faults; each heals what it broke."""

    def __init__(self, around: Surroundings, components: Mapping[str, Component]) -> None:
        self._around = around
        self._components = components

    async def carry_out(self, fault: Fault) -> None:
        before_s = 0.0 if fault.kind == CLOCK_STEP else fault.lag
        await asyncio.sleep(fault.at - before_s)
        standby = self._around.database.standby() if fault.kind == FAILOVER else None
        move = Move(self._around)
        if fault.kind in MOVES:
            await move.keep()
        if fault.kind == HOLE:
            before_s -= AWAY_S
            await asyncio.sleep(AWAY_S)
            move.age_out()
        await asyncio.sleep(before_s)
        self._around.record(str(fault))
        match fault.target:
            case "broker":
                await self._of_the_broker(fault)
            case "API server":
                await self._of_the_api_server(fault)
            case "database":
                await self._of_the_database(fault, standby, move)
            case name:
                await self._of(self._components[name], fault)

    async def _of_the_broker(self, fault: Fault) -> None:
        server = self._around.broker
        if fault.kind == FORGETS:
            await self._forget_ids(fault.lasts)
            return
        if fault.kind == STREAM_FULL:
            server.broker.fill(Stream.OBS)
            server.broker.fill(Stream.DEC)
        elif fault.kind == DAMAGE:
            assert server.copies is not None
            server.copies.damage(Stream.OBS)
        elif fault.kind == ELECTION:
            assert server.copies is not None
            server.copies.elect()
        elif fault.kind == "broker down":
            server.is_up = False
        else:
            server.lost_quorum_at = server.clock()
        await asyncio.sleep(fault.lasts)
        server.heal()
        for component in self._components.values():
            component.link.came_back()

    async def _forget_ids(self, lasts: float) -> None:
        """As a broker whose window of duplicates is shorter than the pauses of its clients."""
        loop = asyncio.get_running_loop()
        until = loop.time() + lasts
        while loop.time() < until:
            self._around.broker.broker.forget_ids()
            await asyncio.sleep(FORGETS_EACH_S)

    async def _of_the_api_server(self, fault: Fault) -> None:
        self._around.api.lost_share = 0.5
        await asyncio.sleep(fault.lasts)
        self._around.api.lost_share = 0.0

    async def _of_the_database(self, fault: Fault, standby: Standby | None, move: Move) -> None:
        server = self._around.database
        if fault.kind == DISK_FULL:
            server.is_full = True
            await asyncio.sleep(fault.lasts)
            server.is_full = False
            return
        server.stops += 1
        await asyncio.sleep(min(fault.lasts, PROMOTION_S))
        if standby is not None:
            standby.promote()
        elif fault.kind in MOVES:
            for name in PROJECTORS:
                self._components[name].kill(RESTART_S)
            is_whole = int(fault.lag * 1000) % 2 == 1  # half of them
            await move.carry_out(fault.kind, is_whole=is_whole)
        server.stops -= 1

    async def _of(self, component: Component, fault: Fault) -> None:
        if fault.kind == "kill":
            component.kill(fault.lasts)
        elif fault.kind == "freeze":
            await self._freeze(component, fault.lasts)
        elif fault.kind == VERSION:
            await self._upgrade(component, fault.lasts)
        elif fault.kind == CLOCK_STEP:
            component.set_clock_back(fault.lag)
            await asyncio.sleep(fault.lasts)
            component.set_clock_back(-fault.lag)
        elif fault.kind == SLOW_DISK:
            component.set_disk(SLOW_DISK_S)
            await asyncio.sleep(fault.lasts)
            component.set_disk()
        else:
            OF_LINKS[fault.kind](component)
            await asyncio.sleep(fault.lasts)
            component.link.heal()
            component.database_link.heal()

    async def _upgrade(self, component: Component, lasts: float) -> None:
        """It leads alone, and goes back to the version that the other one still has."""
        for name in PROJECTORS:
            self._components[name].kill(lasts)
        component.fold_version = NEXT
        component.kill(RESTART_S)
        await asyncio.sleep(lasts)
        component.fold_version = CODE_VERSION
        component.kill(RESTART_S)

    async def _freeze(self, component: Component, lasts: float) -> None:
        if (process := component.process) is not None:
            process.freeze()
            await asyncio.sleep(lasts)
            if not process.is_dead:
                process.thaw()
