"""Power targets in a closed loop: plans, the fold, and the physics of the simulated cluster."""

import pytest
from msgspec.structs import replace

from joulie_bus.events import (
    CapsSet,
    Fact,
    PlacementClosed,
    PlacementOpened,
    SleepOrdered,
    TargetSet,
)
from joulie_bus.metering.reporter import Moment
from joulie_operator.planning.reconcile import Plan, PlanBasis, plan, recompute
from joulie_operator.planning.rules import Rules
from joulie_operator.plugins import load_policy
from joulie_projections.fold.registry import evolve
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from joulie_simulator.cluster.cluster import SimCluster
from joulie_simulator.engine import MORNING_S, Engine, Options
from joulie_simulator.hardware.physics import Caps
from joulie_simulator.meters import Meters
from joulie_simulator.workload.workload import Job, Workload

pytestmark = pytest.mark.long

SECOND = 1_000_000_000
START = 1_900_000_000 * SECOND
TICK_S, SAMPLE_S = 0.5, 2.0
BUSY = Rules(static_hp_frac=0.1, cpu_eco_pct=100, gpu_eco_pct=100)
SLEEPY = BUSY._replace(
    policy="consolidate_and_sleep",
    queue_hp_base_frac=0.1,
    policy_numbers="sleep_after_s=60,reserve=1",
)


class ClosedLoop:
    """A simulated cluster whose operator plans every half second, without processes."""

    def __init__(self, rules: Rules, nodes: int = 60) -> None:
        self.state = ClusterState()
        self.rules, self.plans = rules, list[Plan]()
        self.seconds = 0.0
        self._engine = Engine(SimCluster(nodes), Workload(1, "run"), Options(pods_per_s=1e-9))
        self._meters = Meters(1, 1.0)
        self.fold(self._engine.initial_facts())

    @property
    def now(self) -> int:
        return START + int(self.seconds * SECOND)

    def fold(self, facts: list[Fact]) -> None:
        draft = Draft(self.state)
        for fact in facts:
            evolve(draft, fact, self.now)
        draft.commit()

    def fill(self, share: float, *, performance: bool = False, nodes: int | None = None) -> None:
        """Every node runs one job on a share of its cores and all of its cards."""
        for name, node in list(self._engine.cluster.nodes.items())[:nodes]:
            annotation = "performance" if performance else ""
            cores = share * node.shape.cores
            job = Job(name, name, "team", annotation, cores, 1024, node.shape.gpus, 1e9, 0.9)
            self.fold(self._engine.bind(job, name))

    def run(self, seconds: float) -> None:
        until = self.seconds + seconds
        while self.seconds < until:
            self.fold(self._engine.advance(MORNING_S + self.seconds))
            if self.seconds % SAMPLE_S == 0:
                self._measure()
            self._plan()
            self.seconds += TICK_S

    def _measure(self) -> None:
        nodes = self.state.nodes
        caps = ((n, Caps(node.cpu_cap_pct, node.gpu_cap_pct)) for n, node in nodes.items())
        self._engine.cap(caps)
        self.fold(
            self._engine.order_power((n, s.power_state == "asleep") for n, s in nodes.items())
        )
        moment = Moment(self.seconds, self.now)
        self.fold([*self._meters.readings(self._engine.sample(nodes), moment)])

    def _plan(self) -> None:
        policy = load_policy(self.rules.policy)
        made = plan(self.state, policy, self.rules, PlanBasis(len(self.plans), self.now))
        if made.changes:
            assert recompute(made.made, self.state, policy) == made
            self.plans.append(made)
            self.fold([made.made, *made.events])

    def watts(self) -> float:
        """What the cluster really draws, not what was read."""
        return sum(node.watts(20.0) for node in self._engine.cluster.nodes.values())

    def limit(self, watts: float, seconds: float = 600) -> None:
        ends = self.now + int(seconds * SECOND)
        self.fold(
            [
                TargetSet(
                    target="grid",
                    power_mw=round(watts * 1000),
                    starts_at=self.now,
                    ends_at=ends,
                    because="demand response",
                )
            ]
        )

    def clear(self) -> None:
        self.fold([TargetSet(target="grid")])


def settled(rules: Rules = BUSY, share: float = 0.8) -> ClosedLoop:
    loop = ClosedLoop(rules)
    loop.fill(share)
    loop.run(30)
    return loop


def test_the_cluster_draws_a_fifth_less_within_thirty_seconds_and_stays_there() -> None:
    loop = settled()
    before = loop.watts()
    target = 0.8 * before

    loop.limit(target)
    loop.run(30)

    for _ in range(60):
        assert 0.94 * target <= loop.watts() <= 1.0 * target
        loop.run(2)


def test_the_power_never_exceeds_the_target_by_two_percent_while_nodes_change_their_class() -> None:
    loop = settled()
    target = 0.85 * loop.watts()
    loop.limit(target)
    loop.run(30)

    loop.rules = loop.rules._replace(static_hp_frac=0.14)  # nodes with cards lose their caps
    for _ in range(60):
        loop.run(1)
        assert loop.watts() <= 1.02 * target
    assert len({node.profile for node in loop.state.nodes.values()}) == 2


def test_the_caps_are_lifted_when_the_target_ends() -> None:
    loop = settled()
    before = loop.watts()
    loop.limit(0.8 * before, seconds=60)
    loop.run(59)
    assert loop.watts() < 0.81 * before

    loop.run(10)

    assert loop.watts() > 0.99 * before


def test_a_target_that_is_withdrawn_ends_at_once() -> None:
    loop = settled()
    before = loop.watts()
    loop.limit(0.8 * before)
    loop.run(30)

    loop.clear()
    loop.run(5)

    assert loop.watts() > 0.99 * before


def test_nodes_with_performance_pods_keep_their_caps() -> None:
    loop = ClosedLoop(BUSY)
    loop.fill(0.8, performance=True)
    loop.run(30)
    before = loop.watts()

    loop.limit(0.5 * before)
    loop.run(60)

    assert loop.watts() > 0.99 * before


def test_every_step_says_why() -> None:
    loop = settled()
    loop.plans.clear()

    loop.limit(0.8 * loop.watts())
    loop.run(10)

    assert loop.plans
    assert all("(demand response) and draws" in made.made.because for made in loop.plans)
    assert {"target_w", "drawn_w", "eco_cap_permille"} <= loop.plans[0].made.inputs.keys()


@pytest.mark.parametrize("share", [0.7, 0.8])
def test_empty_nodes_sleep_where_caps_do_not_suffice_and_wake_up_afterwards(share: float) -> None:
    loop = ClosedLoop(SLEEPY)
    loop.fill(0.1, nodes=20)  # most of the power is that of idle nodes
    loop.run(30)
    before = loop.watts()

    loop.limit(share * before)
    loop.run(30)

    assert loop.watts() <= share * before
    assert loop.watts() >= (share - 0.05) * before
    loop.clear()
    loop.run(400)
    assert loop.watts() > 0.98 * before


def idle_cluster(rules: Rules = SLEEPY) -> ClosedLoop:
    """Most of the power is that of idle nodes: caps halve it at no level."""
    loop = ClosedLoop(rules)
    loop.fill(0.1, nodes=20)
    loop.run(30)
    loop.plans.clear()
    return loop


def closed_nodes(loop: ClosedLoop) -> set[str]:
    return {name for name, node in loop.state.nodes.items() if node.closed_at}


def test_caps_that_suffice_close_no_node() -> None:
    loop = settled()

    loop.limit(0.8 * loop.watts())
    loop.run(60)

    assert closed_nodes(loop) == set()


def test_nodes_are_capped_then_closed_then_put_to_sleep() -> None:
    """No step is taken for nothing: each comes with or after the one before it."""
    loop = idle_cluster()

    loop.limit(0.5 * loop.watts())
    loop.run(30)

    first = {
        kind: min(i for i, made in enumerate(loop.plans) for e in made.events if type(e) is kind)
        for kind in (CapsSet, PlacementClosed, SleepOrdered)
    }
    assert first[CapsSet] == first[PlacementClosed] < first[SleepOrdered]
    closing = loop.plans[first[PlacementClosed]].made.because
    closed = {
        e.node for e in loop.plans[first[PlacementClosed]].events if type(e) is PlacementClosed
    }
    assert closed == loop.state.nodes.keys()
    assert "eco caps 30 %, and no more pods of class standard" in closing


def test_a_policy_without_sleep_closes_nodes_too() -> None:
    loop = idle_cluster(BUSY)

    loop.limit(0.5 * loop.watts())
    loop.run(30)

    assert closed_nodes(loop) == loop.state.nodes.keys()


@pytest.mark.parametrize("cleared", [True, False], ids=["withdrawn", "ended"])
def test_nodes_are_opened_when_the_target_ends(cleared: bool) -> None:
    loop = idle_cluster(BUSY)
    loop.limit(0.5 * loop.watts(), seconds=60)
    loop.run(30)
    assert closed_nodes(loop)

    if cleared:
        loop.clear()
    loop.run(2 if cleared else 32)

    assert closed_nodes(loop) == set()
    opened = [made.made.because for made in loop.plans if "again" in made.made.because]
    assert opened == [
        "static_partition: 6 of 60 nodes supply performance; 60 get pods of class standard again: "
        "no power target is in force"
    ]


def test_nodes_are_opened_when_the_caps_leave_room() -> None:
    """The target is raised in small steps; nodes do not open and close in turns."""
    loop = idle_cluster(BUSY)
    before = loop.watts()
    for share in (0.5, 0.6, 0.8, 1.2):
        loop.limit(share * before)
        loop.run(40)

    changes = [e for made in loop.plans for e in made.events if isinstance(e, PlacementOpened)]
    assert closed_nodes(loop) == set()
    assert len(changes) == len(loop.state.nodes)
    assert {event.because for event in changes} == {"the power target leaves room for pods"}


def test_a_target_of_a_feed_closes_only_its_nodes() -> None:
    loop = idle_cluster(BUSY)
    ours = set(list(loop.state.nodes)[:10])
    for name in ours:
        node = loop.state.nodes[name]
        loop.state.nodes[name] = replace(node, labels=node.labels | {"joulie.io/feed": "a"})

    loop.rules = loop.rules._replace(policy_numbers="power_target_w.a=1")
    loop.run(5)

    assert closed_nodes(loop) == ours
