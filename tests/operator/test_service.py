import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable

import pytest

from joulie_bus import codec
from joulie_bus.events import AnyEvent, PlanMade, PodGone, ProfileAssigned
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.settings import Source
from joulie_bus.subjects import Stream
from joulie_bus.tasks import background, rung
from joulie_bus.testing import CLUSTER, bound, hardware, node_seen, producer
from joulie_operator.service import Operator
from joulie_operator.settings import OperatorSettings
from joulie_projections.view import View

pytestmark = pytest.mark.anyio
PATIENCE_S = 20


async def tell(bus: JetStreamLog, view: View, *facts: AnyEvent, boot: str = "b1") -> None:
    """Returns once the view knows them; nobody else may talk meanwhile."""
    says, before = producer(boot=boot), view.position
    await bus.publish([says.stamp(fact) for fact in facts])
    await view.wait_for(before + len(facts), PATIENCE_S)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def operating(bus: JetStreamLog, view: View, **values: str) -> AsyncGenerator[Operator]:
    operator = Operator(bus, CLUSTER, view, Source.of(**values).load(OperatorSettings))
    async with background(operator.run(), "operator"):
        yield operator


async def plans(bus: JetStreamLog) -> list[AnyEvent]:
    """The whole stream of plans."""
    count, bell = (await bus.state(Stream.PLAN)).last, asyncio.Event()
    events: list[AnyEvent] = []
    async with (
        asyncio.timeout(PATIENCE_S),
        bus.reading(Stream.PLAN, 0, bell=bell) as reader,
    ):
        while len(events) < count:
            await rung(bell, 0.5)
            events += [codec.read(codec.open_envelope(r.data, ""), "") for r in reader.take(9999)]
    return events


def nodes(count: int) -> list[AnyEvent]:
    names = [f"n{number:03d}" for number in range(count)]
    return [event for name in names for event in (node_seen(name), hardware(name))]


def profiles(view: View) -> dict[str, str]:
    return {name: node.profile for name, node in sorted(view.world.nodes.items())}


def newest(view: View) -> PlanMade:
    plan = view.world.cluster["cluster"].plan
    assert plan is not None
    return plan


def is_planned(view: View) -> bool:
    return all(node.cpu_cap_pct is not None for node in view.world.nodes.values())


async def test_a_plan_is_published_folded_and_seen(bus: JetStreamLog, view: View) -> None:
    await tell(bus, view, *nodes(4))
    async with operating(bus, view, STATIC_HP_FRAC="0.25", CPU_ECO_CAP_PCT_OF_MAX="55"):
        await until(lambda: is_planned(view))

    assert profiles(view) == {"n000": "performance", "n001": "eco", "n002": "eco", "n003": "eco"}
    caps = [node.cpu_cap_pct for _, node in sorted(view.world.nodes.items())]
    assert caps == [100, 55, 55, 55]


async def test_a_plan_says_why_before_it_says_what(bus: JetStreamLog, view: View) -> None:
    await tell(bus, view, *nodes(2))
    async with operating(bus, view):
        await until(lambda: is_planned(view))

    made, *changes = await plans(bus)
    assert isinstance(made, PlanMade)
    assert (made.view, made.nodes, made.performance, made.changes) == (4, 2, 1, len(changes))


async def test_an_operator_that_starts_later_changes_nothing(bus: JetStreamLog, view: View) -> None:
    await tell(bus, view, *nodes(4))
    async with operating(bus, view):
        await until(lambda: is_planned(view))
    before = await plans(bus)
    async with operating(bus, view):
        await until(lambda: newest(view).view > 8)

    [told] = (await plans(bus))[len(before) :]
    assert isinstance(told, PlanMade)
    assert (told.changes, told.nodes) == (0, 4)


async def test_an_operator_that_has_not_seen_the_newest_plan_waits(
    bus: JetStreamLog, projecting: asyncio.Task[None], view: View
) -> None:
    await tell(bus, view, *nodes(2))
    projecting.cancel()
    await until(projecting.done)
    foreign = PlanMade(plan="p9", policy="x", view=9, nodes=2, performance=0, changes=0)
    await bus.publish([producer(boot="b2").stamp(foreign)])

    operator = Operator(bus, CLUSTER, view, OperatorSettings())
    await operator._reconcile()

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
    assert assigned == dict.fromkeys(view.world.nodes, 1)
    assert Counter(profiles(view).values()) == {"performance": count // 2, "eco": count // 2}


async def test_a_plan_too_large_for_a_batch_arrives_in_parts(bus: JetStreamLog, view: View) -> None:
    await tell(bus, view, *nodes(600))
    async with operating(bus, view):
        await until(lambda: is_planned(view))

    made = [event for event in await plans(bus) if isinstance(event, PlanMade)]
    assert [each.because.partition(" (")[2] for each in made[:2]] == [
        "part 1 of 2)",
        "part 2 of 2)",
    ]
    assert {each.changes for each in made[:2]} == {1200}


async def test_a_node_drains_until_its_last_performance_pod_is_gone(
    bus: JetStreamLog, view: View
) -> None:
    facts = [*nodes(1), bound("pod-1", "n000", performance=True)]
    await tell(bus, view, *facts)
    async with operating(bus, view, STATIC_HP_FRAC="0"):
        await until(lambda: view.world.nodes["n000"].draining)
        waiting = view.world.nodes["n000"]
        await tell(bus, view, PodGone(uid="pod-1"), boot="b2")
        await until(lambda: is_planned(view))

    assert (waiting.profile, waiting.cpu_cap_pct) == ("", None)
    emptied = view.world.nodes["n000"]
    assert (emptied.profile, emptied.draining, emptied.cpu_cap_pct) == ("eco", False, 60)


async def test_a_cluster_without_nodes_needs_no_plan(bus: JetStreamLog, view: View) -> None:
    async with operating(bus, view) as operator:
        await tell(bus, view, *nodes(1))
        await until(lambda: is_planned(view))

    first = (await plans(bus))[0]
    assert isinstance(first, PlanMade)
    assert (first.nodes, operator.decide().changes) == (1, [])
