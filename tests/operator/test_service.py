import asyncio
import contextlib
import copy
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

import pytest

from bus_kit import (
    CLUSTER,
    bound,
    caps,
    connected,
    hardware,
    node_seen,
    performance,
    plan_made,
    producer,
)
from joulie_bus.broker.embedded import Embedded
from joulie_bus.events import (
    AnyEvent,
    NodePlan,
    PlanMade,
    PodGone,
    ProfileAssigned,
    TargetSet,
    codec,
)
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.jetstream.streams import purge
from joulie_bus.runtime import metrics
from joulie_bus.runtime.settings import Source
from joulie_bus.runtime.tasks import background, wait_and_clear
from joulie_bus.streams.batch_limits import MAX_BATCH
from joulie_bus.streams.records import Stored
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream
from joulie_operator.observe.cluster_visibility import ClusterVisibility
from joulie_operator.planning.guard import UNKNOWN
from joulie_operator.planning.reconcile import LoadedPolicy, Plan, recompute
from joulie_operator.plugins import load_policy
from joulie_operator.service import Operator, batches, pause_s
from joulie_operator.settings import OperatorSettings
from joulie_projections.view.view import View

pytestmark = pytest.mark.anyio
PATIENCE_S = 120
FRESH_S = 5.0
SEES_ALL = ClusterVisibility()


async def tell(bus: JetStreamLog, view: View, *facts: AnyEvent, boot: str = "b1") -> None:
    """Publishes facts; returns once the view contains them. No other producer may be active."""
    says, before = producer(boot=boot), view.position
    await bus.publish([says.stamp(fact) for fact in facts])
    await view.wait_for(before + len(facts), PATIENCE_S)
    await until(lambda: view.age_s < FRESH_S)  # it is known that nothing is missing


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


def operator_of(
    bus: JetStreamLog, view: View, saw: ClusterVisibility = SEES_ALL, /, **values: str
) -> Operator:
    """An operator without a settling time for caps."""
    settings = replace(Source.of(**values).load(OperatorSettings), caps_settle_s=0)
    return Operator(bus, CLUSTER, view, settings, visibility=lambda: saw)


@contextlib.asynccontextmanager
async def operating(bus: JetStreamLog, view: View, **values: str) -> AsyncGenerator[Operator]:
    operator = operator_of(bus, view, SEES_ALL, **values)
    async with background(operator.run(), "operator"):
        yield operator


async def plans(bus: JetStreamLog) -> list[AnyEvent]:
    """The whole stream of plans."""
    count, wakeup = (await bus.state(Stream.PLAN)).last, asyncio.Event()
    events: list[AnyEvent] = []
    async with (
        asyncio.timeout(PATIENCE_S),
        bus.reading(Stream.PLAN, 0, wakeup=wakeup) as decoder_of,
    ):
        while len(events) < count:
            await wait_and_clear(wakeup, 0.5)
            events += [codec.decoded(r.data, "") for r in decoder_of.take(9999)]
    return events


def nodes(count: int) -> list[AnyEvent]:
    names = [f"n{number:03d}" for number in range(count)]
    return [event for name in names for event in (node_seen(name), hardware(name))]


def profiles(view: View) -> dict[str, str]:
    return {name: node.profile for name, node in sorted(view.cluster_state.nodes.items())}


def newest(view: View) -> PlanMade:
    plan = view.cluster_state.cluster["cluster"].plan
    assert plan is not None
    return plan


def is_planned(view: View) -> bool:
    return all(node.cpu_cap_pct is not None for node in view.cluster_state.nodes.values())


@pytest.mark.parametrize("in_s", [-60, 2])
async def test_a_target_is_planned_for_without_waiting_for_the_end_of_a_pause(
    bus: JetStreamLog, view: View, monkeypatch: pytest.MonkeyPatch, in_s: int
) -> None:
    """Plans of a large cluster rest for as long as their share of a core asks. The target is in
    force when it is set, or begins later."""
    monkeypatch.setattr("joulie_operator.service.pause_s", lambda *_: 10 * PATIENCE_S)
    await tell(bus, view, *nodes(4))
    async with operating(bus, view, RECONCILE_INTERVAL="1h"):
        await until(lambda: view.cluster_state.plan is not None)
        starts_at = view.now_ns() + in_s * 1_000_000_000
        target = TargetSet(target="grid", power_mw=1000, starts_at=starts_at, ends_at=2**62)
        await bus.publish([producer(boot="b2").stamp(target)])
        await until(lambda: metrics.POWER_TARGET.labels(feed="")._value.get() == 1)
        clear = TargetSet(target="grid", starts_at=starts_at, ends_at=2**62)
        await bus.publish([producer(boot="b3").stamp(clear)])
        await until(lambda: metrics.POWER_TARGET.labels(feed="")._value.get() == 0)


@pytest.mark.parametrize(
    ("interval_s", "pause"),
    [
        pytest.param(60, 0.04 * 49, id="a fiftieth of a core"),
        pytest.param(1, 1, id="at least once per interval"),
        pytest.param(0.1, 0.5, id="not more often than twice a second"),
    ],
)
def test_plans_take_little_of_a_core_and_are_made_once_per_interval(
    interval_s: float, pause: float
) -> None:
    assert pause_s(0.04, interval_s) == pytest.approx(pause)


async def test_a_plan_is_published_and_reaches_the_view(bus: JetStreamLog, view: View) -> None:
    await tell(bus, view, *nodes(4))
    async with operating(bus, view, STATIC_HP_FRAC="0.25", CPU_ECO_CAP_PCT_OF_MAX="55"):
        await until(lambda: is_planned(view))

    assert profiles(view) == {"n000": "performance", "n001": "eco", "n002": "eco", "n003": "eco"}
    caps = [node.cpu_cap_pct for _, node in sorted(view.cluster_state.nodes.items())]
    assert caps == [100, 55, 55, 55]


async def test_a_message_that_is_not_a_plan_does_not_stop_plans(
    broker: Embedded, bus: JetStreamLog, view: View
) -> None:
    """A client in the account of the core can make the broker reply to this subject."""
    await tell(bus, view, *nodes(2))
    operator = operator_of(bus, view)
    async with connected(broker, role=Role.PROJECTOR) as connection:
        await connection.send("$JS.API.INFO", b"", CLUSTER.plan_meta)
        await connection.flush()
    await until(lambda: view.position == 5)

    assert await operator.reconcile_once() is None
    assert newest(view).changes > 0


async def test_a_plan_starts_with_its_reasons(bus: JetStreamLog, view: View) -> None:
    await tell(bus, view, *nodes(2))
    async with operating(bus, view):
        await until(lambda: is_planned(view))

    made, *changes = (await plans(bus))[:4]
    assert isinstance(made, PlanMade)
    assert (made.view, made.nodes, made.performance, made.changes) == (4, 2, 1, len(changes))
    assert [change.key for change in changes] == ["n000", "n000", "n001"]


async def test_an_operator_that_starts_later_changes_nothing(bus: JetStreamLog, view: View) -> None:
    await tell(bus, view, *nodes(4))
    async with operating(bus, view):
        await until(lambda: is_planned(view))
    before = await plans(bus)
    async with operating(bus, view):
        await until(lambda: newest(view).view >= 8 + len(before))

    [made] = (await plans(bus))[len(before) :]
    assert isinstance(made, PlanMade)
    assert (made.changes, made.nodes) == (0, 4)


async def test_an_operator_plans_on_after_the_stream_of_plans_was_lost(
    broker: Embedded, bus: JetStreamLog, view: View
) -> None:
    await tell(bus, view, *nodes(2))
    operator = operator_of(bus, view, SEES_ALL, STATIC_HP_FRAC="0")
    await operator.reconcile_once()
    before, last = newest(view).plan, (await bus.state(Stream.PLAN)).last
    async with connected(broker) as connection:  # like a new stream that continues the lost one
        await purge(connection, Stream.PLAN, last + 1)

    await operator_of(bus, view, SEES_ALL, STATIC_HP_FRAC="1").reconcile_once()

    assert newest(view).plan != before
    assert set(profiles(view).values()) == {"performance"}


async def test_a_plan_is_dropped_if_the_view_takes_in_a_newer_one_while_the_broker_answers(
    bus: JetStreamLog, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tell(bus, view, *nodes(2))
    foreign = PlanMade(plan="p9", policy="x", view=2, nodes=2, performance=0, changes=0)
    ask = bus.last

    async def last(stream: Stream, subject: str) -> Stored | None:
        if view.cluster_state.plan is None:
            await bus.publish([producer(boot="b2").stamp(foreign)])
            await until(lambda: view.cluster_state.plan == foreign)
        return await ask(stream, subject)

    monkeypatch.setattr(bus, "last", last)
    await operator_of(bus, view).reconcile_once()

    assert await plans(bus) == [foreign]


async def test_an_operator_whose_view_lacks_the_newest_plan_waits(
    bus: JetStreamLog, projecting: asyncio.Task[None], view: View
) -> None:
    await tell(bus, view, *nodes(2))
    projecting.cancel()
    await until(projecting.done)
    foreign = PlanMade(plan="p9", policy="x", view=9, nodes=2, performance=0, changes=0)
    await bus.publish([producer(boot="b2").stamp(foreign)])

    operator = operator_of(bus, view)
    await operator.reconcile_once()

    assert operator.decide().changes != []
    assert await plans(bus) == [foreign]


@pytest.mark.parametrize("count", [40, 600], ids=["one batch", "two batches"])
async def test_two_operators_at_once_assign_every_node_once(
    bus: JetStreamLog, view: View, count: int
) -> None:
    await tell(bus, view, *nodes(count))
    async with operating(bus, view) as one, operating(bus, view) as other:
        await until(lambda: is_planned(view))
        assert one.decide().changes == other.decide().changes == []

    assigned = Counter(e.node for e in await plans(bus) if isinstance(e, ProfileAssigned))
    assert assigned == dict.fromkeys(view.cluster_state.nodes, 1)
    assert Counter(profiles(view).values()) == {"performance": count // 2, "eco": count // 2}


async def test_a_plan_too_large_for_a_batch_arrives_in_parts(bus: JetStreamLog, view: View) -> None:
    await tell(bus, view, *nodes(150))
    async with operating(bus, view, STATIC_HP_FRAC="1"):
        await until(lambda: is_planned(view))

    made = [event for event in await plans(bus) if isinstance(event, PlanMade)]
    assert [(each.part, each.parts, each.changes) for each in made[:2]] == [
        (1, 2, 300),
        (2, 2, 300),
    ]


def test_the_events_of_one_node_stay_in_one_batch() -> None:
    pairs: list[list[NodePlan]] = [
        [caps(f"n{at}", 100), performance(f"n{at}")] for at in range(175)
    ]
    single: list[list[NodePlan]] = [[performance("x")]]
    parts = batches(Plan(plan_made(), [*single, *pairs], {}))

    assert [len(part) for part in parts] == [1 + 249, 1 + 102]
    assert all(len(part) <= MAX_BATCH for part in parts)


async def test_a_node_drains_until_its_last_performance_pod_is_gone(
    bus: JetStreamLog, view: View
) -> None:
    facts = [*nodes(1), bound("pod-1", "n000", performance=True)]
    await tell(bus, view, *facts)
    async with operating(bus, view, STATIC_HP_FRAC="0"):
        await until(lambda: view.cluster_state.nodes["n000"].draining)
        waiting = view.cluster_state.nodes["n000"]
        await tell(bus, view, PodGone(uid="pod-1"), boot="b2")
        await until(lambda: is_planned(view))

    assert (waiting.profile, waiting.cpu_cap_pct) == ("", None)
    emptied = view.cluster_state.nodes["n000"]
    assert (emptied.profile, emptied.draining, emptied.cpu_cap_pct) == ("eco", False, 60)
    assert [event.TYPE for event in await plans(bus) if not isinstance(event, PlanMade)] == [
        "plan.draining-begun",
        "plan.transition-completed",
        "plan.caps-set",
    ]


async def test_caps_follow_the_class_in_a_later_plan(bus: JetStreamLog, view: View) -> None:
    await tell(bus, view, *nodes(2))
    async with operating(bus, view, STATIC_HP_FRAC="0"):
        await until(lambda: is_planned(view))

    kinds = [event.TYPE for event in await plans(bus)]
    assert kinds[:6] == [
        "plan.made",
        *["plan.profile-assigned"] * 2,
        "plan.made",
        *["plan.caps-set"] * 2,
    ]


async def test_a_dry_run_publishes_its_reasons_and_changes_nothing(
    bus: JetStreamLog, view: View
) -> None:
    await tell(bus, view, *nodes(2))
    async with operating(bus, view, PLAN_DRY_RUN="true", RECONCILE_INTERVAL="100ms"):
        await until(lambda: view.position >= 7)

    found = await plans(bus)
    made = [event for event in found if isinstance(event, PlanMade)]
    assert made == found
    assert {(each.dry_run, each.changes, each.performance) for each in made} == {(True, 3, 1)}
    assert profiles(view) == {"n000": "", "n001": ""}


# --- when planning is stopped -----------------------------------------------------------------


def stopped() -> set[str]:
    """The reasons that the metric reports."""
    samples = next(iter(metrics.PLANS_STOPPED.collect())).samples
    return {sample.labels["reason"] for sample in samples if sample.value}


async def test_no_plan_is_made_without_working_watches(bus: JetStreamLog, view: View) -> None:
    await tell(bus, view, *nodes(2))
    problem = operator_of(
        bus, view, ClusterVisibility(problem="the API server has not answered for 73 s")
    )

    assert await problem.reconcile_once() == ("cluster", "the API server has not answered for 73 s")
    assert await plans(bus) == []


async def test_no_plan_is_made_from_a_stale_view(
    bus: JetStreamLog, projecting: asyncio.Task[None], view: View
) -> None:
    await tell(bus, view, *nodes(2))
    projecting.cancel()
    settings = OperatorSettings(max_view_age_s=0.2)
    operator = Operator(bus, CLUSTER, view, settings, visibility=lambda: SEES_ALL)
    await until(lambda: view.ages.heard_ms > 200)

    assert await operator.reconcile_once() == (
        "view",
        "the projector has sent nothing for over 0.2 s; does one run?",
    )


async def test_the_reason_of_a_stop_is_reported_until_planning_resumes(
    bus: JetStreamLog, view: View
) -> None:
    sights = [ClusterVisibility(), ClusterVisibility(problem="gone")]
    await tell(bus, view, *nodes(1))
    settings = OperatorSettings(caps_settle_s=0)
    operator = Operator(bus, CLUSTER, view, settings, visibility=lambda: sights[-1])
    async with background(operator.run(), "operator"):
        await until(lambda: stopped() == {"cluster"})
        sights.pop()
        await until(lambda: is_planned(view) and stopped() == set())


async def test_a_failing_policy_stops_only_plans(
    bus: JetStreamLog, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tell(bus, view, *nodes(1))
    async with operating(bus, view) as operator:
        failing = LoadedPolicy(lambda _: 1 // 0)  # type: ignore[arg-type, return-value]
        monkeypatch.setattr(operator, "_policy", failing)
        await until(lambda: stopped() == {"policy"})

        monkeypatch.undo()
        await until(lambda: is_planned(view))


async def test_no_node_becomes_eco_before_the_pods_are_known(bus: JetStreamLog, view: View) -> None:
    await tell(bus, view, *nodes(2))
    half_blind = operator_of(bus, view, ClusterVisibility(pods_known=False), STATIC_HP_FRAC="0.5")
    found = half_blind.decide()

    assert {event.node for event in found.events} == {"n000"}
    assert found.held == {"n001": UNKNOWN}
    assert found.made.pods_known is False


async def test_a_logged_plan_can_be_recomputed(bus: JetStreamLog, view: View) -> None:
    await tell(bus, view, *nodes(3), bound("pod-1", "n002", performance=True))
    operator = operator_of(bus, view, STATIC_HP_FRAC="0.4")
    cluster_state = copy.deepcopy(view.cluster_state)
    await operator.reconcile_once()
    made, *events = await plans(bus)

    assert isinstance(made, PlanMade)
    assert made.view == 7
    assert recompute(made, cluster_state, load_policy(made.policy)).events == events


async def test_a_cluster_without_nodes_needs_no_plan(bus: JetStreamLog, view: View) -> None:
    async with operating(bus, view) as operator:
        await tell(bus, view, *nodes(1))
        await until(lambda: is_planned(view))

    first = (await plans(bus))[0]
    assert isinstance(first, PlanMade)
    assert (first.nodes, operator.decide().changes) == (1, [])
