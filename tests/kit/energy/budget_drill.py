"""A feed of simulated nodes under a power target, with the real plans, orders and writers of caps.

Time is virtual: a tick is a second. The plans take the time that they take here, and rest as those
of an operator do. The physics of the simulator obey the limits that the writers set.
"""

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from time import process_time
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from bus_kit import CLUSTER
from joulie_agent.caps.actuators import Actuator
from joulie_agent.caps.memory import Memory
from joulie_agent.caps.rules import Limit
from joulie_agent.caps.service import CHECK_S, CapService
from joulie_agent.caps.writer import Writer
from joulie_bus.events import CapOrder, Fact, NodeSeen, PodFinished, TargetSet
from joulie_bus.metering.reporter import Moment
from joulie_operator.apply.cap_orders import REPEAT_S
from joulie_operator.planning.cap_orders import cap_orders
from joulie_operator.planning.reconcile import Plan, PlanBasis, plan, recompute
from joulie_operator.planning.rules import Rules
from joulie_operator.plugins import load_policy
from joulie_operator.service import pause_s
from joulie_projections.fold.registry import evolve
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from joulie_simulator.cluster.cluster import SimCluster, SimNode
from joulie_simulator.engine import MORNING_S, Engine, Options
from joulie_simulator.hardware.shapes import card_uuid
from joulie_simulator.meters import Meters
from joulie_simulator.workload.workload import Job, Workload

SECOND = 1_000_000_000
START = 1_900_000_000 * SECOND
FEED, RACK_OF = "a", 20  # nodes of a rack
SETTABLE_S = 60
RECOMPUTED = 20  # each so many plans, one is computed again from its event
_LABELS = {"joulie.io/feed": FEED, "joulie.io/caps": "enforce"}


class SimLimit(NamedTuple):
    """The power limit of the processors or the cards of a simulated node."""

    engine: Engine
    node: SimNode
    kind: str
    card: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.node.name}"

    def _range(self) -> tuple[int | None, int]:
        """In the unit of the writer: microwatts of a package, milliwatts of a card."""
        cards = self.node.shape.cards
        if self.kind == "gpu" and cards is not None:
            return cards.min_w * 1000, cards.max_w * 1000
        return None, self.node.shape.cpu_max_w * 1_000_000

    def read(self) -> Limit:
        (low, high), caps = self._range(), self.node.caps
        pct = caps.gpu_pct if self.kind == "gpu" else caps.cpu_pct
        return Limit(high if pct is None else high * pct // 100, low, high, high, high // 100)

    def value_of(self, ordered: int) -> int:
        return ordered

    def problem(self) -> str:
        return ""

    def set(self, value: int) -> None:
        _, high = self._range()
        pct, caps = -(-value * 100 // high), self.node.caps
        wanted = caps._replace(gpu_pct=pct) if self.kind == "gpu" else caps._replace(cpu_pct=pct)
        self.engine.cap([(self.node.name, wanted)])


class SimCardLimit(NamedTuple):
    """The power limit of one card of a simulated node."""

    engine: Engine
    node: SimNode
    at: int
    kind: str = "gpu"

    @property
    def card(self) -> str:
        return card_uuid(self.node.name, self.at)

    @property
    def name(self) -> str:
        return f"card/{self.card}"

    def read(self) -> Limit:
        low, high = _card_range(self.node)
        pct = self.node.caps.each[self.at] if self.node.caps.each else None
        return Limit(high if pct is None else high * pct // 100, low, high, high, high // 100)

    def value_of(self, ordered: int) -> int:
        return ordered

    def problem(self) -> str:
        return ""

    def set(self, value: int) -> None:
        _, high = _card_range(self.node)
        pct, caps = -(-value * 100 // high), self.node.caps
        each = list(caps.each or [None] * self.node.shape.gpus)
        each[self.at] = None if pct >= 100 else pct
        self.engine.cap([(self.node.name, caps._replace(each=tuple(each) if any(each) else ()))])


def _card_range(node: SimNode) -> tuple[int, int]:
    assert node.shape.cards is not None
    return node.shape.cards.min_w * 1000, node.shape.cards.max_w * 1000


class Drill:
    """`broker` is whether orders, readings and reports arrive. With `mixed`, each node of class
    performance runs a job of its class on half of its cards, and one of class standard on the
    others."""

    def __init__(
        self, nodes: int, rules: Rules, folder: Path, seed: int = 1, *, mixed: bool = False
    ) -> None:
        self._mixed = mixed
        self.state, self.rules, self.seconds = ClusterState(), rules, 0
        self.plans = list[Plan]()
        self.broker = True
        self.busy = (0.5, 1.0)  # how busy a new job is
        self.slowed = 0  # ticks in which a card or a node of a performance pod was capped
        self.capped_cards = 0  # cards of class standard that were capped beside them, at most
        self.plan_s = list[float]()
        self._dice = Random(seed)
        self._engine = Engine(SimCluster(nodes), Workload(seed, "run"), Options(pods_per_s=1e-9))
        self._meters = Meters(seed, 1.0)
        self._writers = {name: self._writer(name, folder) for name in self._nodes}
        self._policy = load_policy(rules.policy)
        self._plan_at = self._ordered_at = self._told_at = 0.0
        self._view, self._jobs = 0, 0
        self._where = dict[str, tuple[str, str, float]]()
        racks = {name: f"r{at // RACK_OF}" for at, name in enumerate(self._nodes)}
        self.fold([_labelled(fact, racks) for fact in self._engine.initial_facts()])

    @property
    def _nodes(self) -> dict[str, SimNode]:
        return self._engine.cluster.nodes

    @property
    def now(self) -> int:
        return START + self.seconds * SECOND

    def _writer(self, name: str, folder: Path) -> CapService:
        node, memory = self._nodes[name], Memory(folder / f"{name}.json")
        cpu = SimLimit(self._engine, node, "cpu")
        cards = [SimCardLimit(self._engine, node, at) for at in range(node.shape.gpus)]
        whole = [cpu, SimLimit(self._engine, node, "gpu")] if cards else [cpu]

        def limits() -> list[Actuator]:
            known = self.state.nodes.get(name)
            performs = known is not None and known.profile == "performance"
            return [cpu, *cards] if performs else [*whole]

        async def pods() -> dict[str, list[str]]:
            """As the kubelet of the node gave the cards out."""
            return {
                card_uuid(name, at): [f"{running.job.namespace}/{running.job.name}"]
                for running in node.running.values()
                for at in running.cards
            }

        writer, clock = Writer(memory), lambda: float(self.seconds)
        return CapService(CLUSTER, name, writer, limits, pods, clock)

    def fold(self, facts: list[Fact]) -> None:
        draft = Draft(self.state)
        for fact in facts:
            evolve(draft, fact, self.now)
        draft.commit()

    def fill(self) -> None:
        """Each node runs one job on nearly all of it: of its own class, as the filter places it."""
        for name, node in self._nodes.items():
            performs = self.state.nodes[name].profile == "performance"
            if performs and self._mixed and node.shape.gpus:
                self._start(name, "performance", 0.5)
                self._start(name, "", 0.5)
            else:
                self._start(name, "performance" if performs else "", 1.0)

    def _start(self, name: str, workload: str, share: float) -> None:
        node, self._jobs = self._nodes[name], self._jobs + 1
        uid, busy = f"j{self._jobs}", self._dice.uniform(*self.busy)
        seconds, cores = self._dice.uniform(600, 3600), 0.9 * share * node.shape.cores
        gpus = round(node.shape.gpus * share)
        job = Job(uid, uid, "team", workload, cores, 1024, gpus, seconds, busy)
        self._where[uid] = (name, workload, share)
        self.fold(self._engine.bind(job, name))

    def target(self, watts: float, seconds: float) -> None:
        target = TargetSet(
            target="grid",
            feed=FEED,
            power_mw=round(watts * 1000),
            starts_at=self.now,
            ends_at=self.now + round(seconds * SECOND),
            because="demand response",
        )
        self.fold([target])

    def run(self, seconds: int, tick_s: int = 1) -> Iterator[float]:
        """What the feed really draws at each tick, not what was read."""
        for _ in range(0, seconds, tick_s):
            self._work()
            drawn = self._measure()
            self._operate()
            self._check(tick_s)
            self.seconds += tick_s
            yield drawn

    def _work(self) -> None:
        facts = self._engine.advance(MORNING_S + self.seconds)
        self.fold(facts)
        for fact in facts:
            if isinstance(fact, PodFinished):
                self._start(*self._where.pop(fact.uid))

    def _measure(self) -> float:
        """A broker that is cut off gets nothing, neither now nor later."""
        sampled = self._engine.sample(self._nodes)
        drawn = (self._engine.facility().it_mw or 0) / 1000
        readings = list(self._meters.readings(sampled, Moment(self.seconds, self.now)))
        if not self.broker:
            return drawn
        self.fold([*readings])
        if self.seconds >= self._told_at:
            self._told_at = self.seconds + SETTABLE_S
            self.fold([writer.settable() for writer in self._writers.values()])
        return drawn

    def _operate(self) -> None:
        """Plans at the pace of an operator, and orders as it repeats them."""
        if not self.broker:
            self._plan_at = 0.0
            return
        made = None
        if self.seconds >= self._plan_at:
            began = process_time()
            made = self._plan()
            spent = process_time() - began
            self.plan_s.append(spent)
            self._plan_at = self.seconds + spent + pause_s(spent, self.rules.interval_s)
        if made or self.seconds >= self._ordered_at + REPEAT_S:
            self._ordered_at = self.seconds
            for order in cap_orders(self.state, self._view, self.now):
                self._deliver(order)

    def _plan(self) -> Plan | None:
        self._view += 1
        made = plan(self.state, self._policy, self.rules, PlanBasis(self._view, self.now))
        if not made.changes and self.now - self.state.planned_at < self.rules.interval_s * SECOND:
            return None
        if not len(self.plans) % RECOMPUTED:
            assert recompute(made.made, self.state, self._policy) == made
        self.plans.append(made)
        self.fold([made.made, *made.events])
        return made

    def _deliver(self, order: CapOrder) -> None:
        writer = self._writers[order.node]
        writer.receive(msgspec.msgpack.encode(order))
        _done(writer.carry_out())

    def _check(self, tick_s: int) -> None:
        """Each writer checks its limits now and then; and no performance pod is slowed."""
        for at, writer in enumerate(self._writers.values()):
            if tick_s >= CHECK_S or (self.seconds + at) % int(CHECK_S) == 0:
                _done(writer.carry_out())
        performing = (n for n, node in self.state.nodes.items() if node.performance_pods)
        self.slowed += sum(self._slows(self._nodes[name]) for name in performing)
        each = (node.caps.each for node in self._nodes.values())
        self.capped_cards = max(self.capped_cards, sum(map(_lowered, each)))

    def _slows(self, node: SimNode) -> bool:
        """Whether processors or cards of a performance pod are capped."""
        each = node.caps.each
        of_pods = [
            each[at]
            for uid, running in node.running.items()
            if self._where[uid][1] == "performance" and each
            for at in running.cards
        ]
        return _lowered([node.caps.cpu_pct, node.caps.gpu_pct, *of_pods]) > 0


def _lowered(caps: Sequence[int | None]) -> int:
    return sum(pct not in (None, 100) for pct in caps)


def _done(work: Coroutine[None, None, None]) -> None:
    """Without a bus a writer waits for nothing."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("the writer waits")


def _labelled(fact: Fact, racks: Mapping[str, str]) -> Fact:
    if not isinstance(fact, NodeSeen):
        return fact
    rack = {"joulie.io/rack": racks[fact.node]}
    return replace(fact, labels={**fact.labels, **_LABELS, **rack})


class Report(NamedTuple):
    """What a target of a share of the power has shown. Figures are shares of the target."""

    before_w: float
    target_w: float
    met_s: int | None  # until the power was first below the target
    held_most: float
    held_mean: float
    above_s: int  # seconds above the target, of those that it was held
    lost_most: float  # after the broker was cut off, and before the safe caps
    safe_most: float  # with the safe caps
    after: float  # of the power before, when the target was over
    slowed: int
    capped_cards: int
    plans: int
    plan_ms: float  # mean processor time


SAFE_AFTER_S = 70  # the lease of an order, and a check
_SETTLES_S = 10  # the tick while nothing is measured
_LOST_S = 5  # the tick while the broker is cut off


def drill(made: Drill, share: float, hold_s: int, lost_s: int, tick_s: int = 1) -> Report:
    """Settles, sets the target, holds it, cuts the broker off, brings it back, and ends it."""
    list(made.run(60, _SETTLES_S))
    made.fill()
    *_, before = made.run(120, _SETTLES_S)
    goal = share * before
    made.target(goal, 30 + hold_s + lost_s + 120)
    first = [*made.run(30)]
    held = [*made.run(hold_s, tick_s)]
    made.broker, usual = False, made.busy
    made.busy = (1.0, 1.0)
    lost = [*made.run(lost_s, _LOST_S)]
    made.broker, made.busy = True, usual
    list(made.run(120, _SETTLES_S))
    *_, after = made.run(120, _SETTLES_S)
    met = next((at for at, watts in enumerate(first) if watts <= goal), None)
    return Report(
        before,
        goal,
        met,
        max(held) / goal,
        sum(held) / len(held) / goal,
        tick_s * sum(watts > goal for watts in held),
        max(lost[: SAFE_AFTER_S // _LOST_S]) / goal,
        max(lost[SAFE_AFTER_S // _LOST_S :]) / goal,
        after / before,
        made.slowed,
        made.capped_cards,
        len(made.plans),
        1000 * sum(made.plan_s) / len(made.plan_s),
    )
