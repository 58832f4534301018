"""Orders over a bus: carried out, given back with the lease, and reported."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import msgspec
import pytest

from bus_kit import CLUSTER, connected, running_broker
from fake_card import HIGH, FakeCard
from joulie_agent.caps.memory import Memory
from joulie_agent.caps.service import LEASE_S, REPEAT_S, CapService, facts_of
from joulie_agent.caps.settable import NO_LIMIT, REFUSED_S
from joulie_agent.caps.writer import Order, Outcome, Writer
from joulie_bus.events import (
    AnyEvent,
    CapOrder,
    CapsApplied,
    CapsRefused,
    CapsSettable,
    SafeCard,
    codec,
)
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream

pytestmark = pytest.mark.anyio


class Rig:
    """A writer of one card, with a clock that the test moves."""

    def __init__(self, folder: Path, *, dry_run: bool = False) -> None:
        self.now_s = 0.0
        self.card = FakeCard()
        self.memory = Memory(folder / "limits.json")
        writer = Writer(self.memory, dry_run=dry_run)
        self.pods: dict[str, list[str]] = {}
        self.service = CapService(
            CLUSTER, "n1", writer, lambda: [self.card], self.pods_of_cards, lambda: self.now_s
        )

    async def pods_of_cards(self) -> dict[str, list[str]]:
        """What the kubelet answers."""
        return self.pods

    def single(self, view: int, mw: int, safe_mw: int, pods: list[str], safe_s: int = 600) -> None:
        """An order for the card of pods of class standard."""
        card = SafeCard(mw=safe_mw, pods=tuple(pods))
        order = CapOrder(
            node="n1",
            plan="p",
            view=view,
            card_mw={"GPU-1": mw},
            safe_cards={"GPU-1": card},
            safe_s=safe_s,
        )
        self.service.receive(msgspec.msgpack.encode(order))

    def settable(self) -> CapsSettable:
        return self.service.settable()

    async def order(self, gpu_mw: int | None, view: int = 1, node: str = "n1") -> None:
        self.receive(gpu_mw, view, node)
        await self.service.carry_out()

    async def budget(self, gpu_mw: int | None, safe_mw: int, safe_s: int, view: int = 1) -> None:
        """An order under a power target."""
        order = CapOrder(
            node="n1", plan="p1", view=view, gpu_mw=gpu_mw, safe_gpu_mw=safe_mw, safe_s=safe_s
        )
        self.service.receive(msgspec.msgpack.encode(order))
        await self.service.carry_out()

    def receive(self, gpu_mw: int | None, view: int = 1, node: str = "n1") -> None:
        order = CapOrder(node=node, plan="p1", view=view, gpu_mw=gpu_mw)
        self.service.receive(msgspec.msgpack.encode(order))

    async def after(self, seconds: float) -> None:
        self.now_s += seconds
        await self.service.carry_out()


async def test_an_order_holds_for_its_lease_and_no_longer(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    await rig.order(400_000)
    await rig.after(LEASE_S - 1)
    held = rig.card.now
    await rig.after(2)
    assert (held, rig.card.now) == (400_000, HIGH)


async def test_the_caps_of_a_lost_budget_fall_to_the_safe_level_until_its_target_ends(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    await rig.budget(500_000, 300_000, safe_s=600)
    await rig.after(LEASE_S - 1)
    held = rig.card.now
    await rig.after(2)
    lost = rig.card.now
    await rig.after(600 - LEASE_S - 2)
    late = rig.card.now
    await rig.after(2)
    assert (held, lost, late, rig.card.now) == (500_000, 300_000, 300_000, HIGH)


async def test_a_node_without_a_cap_gets_the_safe_one_when_the_budget_is_lost(
    tmp_path: Path,
) -> None:
    """It may draw more by then."""
    rig = Rig(tmp_path)
    await rig.budget(None, 300_000, safe_s=600)
    before = rig.card.writes
    await rig.after(LEASE_S + 1)
    assert (before, rig.card.now) == (0, 300_000)


def test_single_cards_are_reported_as_the_hardware_shows_them_and_refused_by_name() -> None:
    order = Order(card_mw={"GPU-1": 300_000, "GPU-2": 250_000, "GPU-3": None, "GPU-9": 200_000})
    found = [
        Outcome("nvml/GPU-1", "gpu", 300_000, "", "GPU-1"),
        Outcome("nvml/GPU-2", "gpu", 450_000, "another program has set it", "GPU-2"),
        Outcome("nvml/GPU-3", "gpu", HIGH, "", "GPU-3"),
    ]
    applied, refused = facts_of("n1", None, order, found)
    assert applied == CapsApplied(node="n1", card_mw={"GPU-1": 300_000})
    assert refused is not None
    assert refused.because.splitlines() == [
        "nvml/GPU-2: another program has set it",
        "GPU-9: this node has no such card",
    ]


async def test_a_single_card_has_its_safe_cap_while_the_pods_of_the_order_have_it(
    tmp_path: Path,
) -> None:
    """The next pod on it may be of class performance, and without orders nobody says so."""
    rig = Rig(tmp_path)
    rig.single(1, 400_000, 300_000, ["team/train", "team/tune"])
    rig.pods = {"GPU-1": ["team/train"]}
    await rig.after(1)
    held = rig.card.now
    await rig.after(LEASE_S)
    lost = rig.card.now
    rig.pods = {"GPU-1": ["team/train", "team/infer"]}
    await rig.after(5)
    assert (held, lost, rig.card.now) == (400_000, 300_000, HIGH)


@pytest.mark.parametrize("pods", [{}, {"GPU-1": []}, {"GPU-1": ["team/other"]}])
async def test_a_card_has_no_safe_cap_if_it_is_free_or_its_pods_are_others_or_not_known(
    tmp_path: Path, pods: dict[str, list[str]]
) -> None:
    rig = Rig(tmp_path)
    rig.single(1, 400_000, 300_000, ["team/train"])
    rig.pods = pods
    await rig.after(LEASE_S + 1)
    assert rig.card.now == HIGH


async def test_caps_of_single_cards_in_orders_of_an_older_operator_are_given_back(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    order = CapOrder(node="n1", plan="p", view=1, card_mw={"GPU-1": 300_000}, safe_s=600)
    rig.service.receive(msgspec.msgpack.encode(order))
    rig.pods = {"GPU-1": ["team/train"]}
    await rig.after(1)
    held = rig.card.now
    await rig.after(LEASE_S + 1)
    assert (held, rig.card.now) == (300_000, HIGH)


@pytest.mark.parametrize("seed", range(40))
async def test_a_card_of_pods_that_no_order_names_is_never_capped_once_orders_stop(
    seed: int, tmp_path: Path
) -> None:
    """Random orders, pauses, pods that come and go, and restarts of the writer."""
    dice = random.Random(seed)
    rig, named, ordered_s = Rig(tmp_path), set[str](), -1.0
    for view in range(60):
        match dice.choice(("order", "pods", "pause", "pause", "kill")):
            case "order":
                pods = dice.sample(["t/a", "t/b", "t/c"], dice.randint(0, 3))
                rig.single(view, 400_000, 300_000, pods, dice.choice((30, 90, 600)))
                await rig.after(0)
                named, ordered_s = set(pods), rig.now_s
            case "pods":
                rig.pods = {"GPU-1": dice.sample(["t/a", "t/b", "t/p"], dice.randint(0, 3))}
            case "pause":
                await rig.after(dice.choice((5, 30, 59, 61, 300)))
            case _:
                card, now_s, pods_now = rig.card, rig.now_s, rig.pods
                rig.memory.close()
                rig = Rig(tmp_path)
                rig.card, rig.now_s, rig.pods = card, now_s, pods_now
                named = set()
        await rig.after(0)
        has = set(rig.pods.get("GPU-1", ()))
        is_lost = rig.now_s >= ordered_s + 2 * LEASE_S
        assert not is_lost or rig.card.now == HIGH or (has and has <= named)


async def test_an_order_after_a_lost_budget_holds_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    await rig.budget(500_000, 300_000, safe_s=600, view=9)
    await rig.after(LEASE_S + 1)
    await rig.order(600_000, view=3)  # of a log that was restored
    await rig.after(LEASE_S - 1)
    held = rig.card.now
    await rig.after(2)
    assert (held, rig.card.now) == (600_000, HIGH)


async def test_a_target_that_ends_before_the_lease_leaves_no_safe_cap(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    await rig.budget(500_000, 300_000, safe_s=5)
    await rig.after(LEASE_S + 1)
    assert rig.card.now == HIGH


async def test_a_writer_that_stops_under_a_lost_budget_gives_the_limits_back(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    async with background(rig.service.run(), "limits"):
        await asyncio.sleep(0)
        await rig.budget(500_000, 300_000, safe_s=600)
        await rig.after(LEASE_S + 1)
        lost = rig.card.now
    assert (lost, rig.card.now) == (300_000, HIGH)


@pytest.mark.parametrize("seed", range(40))
async def test_a_limit_is_ordered_or_safe_or_what_it_was(seed: int, tmp_path: Path) -> None:
    """Random orders, pauses and restarts of the writer; and nothing is left behind in the end."""
    dice = random.Random(seed)
    rig, allowed = Rig(tmp_path), {HIGH}
    for view in range(60):
        match dice.choice(("order", "budget", "pause", "pause", "kill")):
            case "order":
                wanted = dice.choice((None, 250_000, 350_000))
                allowed = {HIGH if wanted is None else wanted, HIGH}
                await rig.order(wanted, view)
            case "budget":
                wanted, safe = (
                    dice.choice((None, 400_000, 500_000)),
                    dice.choice((300_000, 200_000)),
                )
                allowed = {HIGH if wanted is None else wanted, safe, HIGH}
                await rig.budget(wanted, safe, dice.choice((0, 30, 90, 600)), view)
            case "pause":
                await rig.after(dice.choice((5, 30, 59, 61, 300)))
            case _:
                card, now_s = rig.card, rig.now_s
                rig.memory.close()
                rig = Rig(tmp_path)
                rig.card, rig.now_s = card, now_s
        assert rig.card.now in allowed
    await rig.after(LEASE_S + 601)
    assert (rig.card.now, rig.memory.names()) == (HIGH, [])


async def test_a_repeated_order_renews_the_lease(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for _ in range(5):
        await rig.order(400_000)
        await rig.after(LEASE_S - 1)
    assert (rig.card.now, rig.card.writes) == (400_000, 1)


async def test_an_order_without_a_cap_gives_the_limit_back_at_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    await rig.order(400_000)
    await rig.order(None, view=2)
    assert rig.card.now == HIGH


async def test_an_order_of_an_older_state_or_of_another_node_is_left_out(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    await rig.order(400_000, view=9)
    await rig.order(300_000, view=8)
    await rig.order(300_000, view=10, node="n2")
    rig.service.receive(b"no order")
    await rig.service.carry_out()
    assert rig.card.now == 400_000


async def test_limits_of_an_earlier_life_wait_for_one_lease_and_are_given_back(
    tmp_path: Path,
) -> None:
    first = Rig(tmp_path)
    await first.order(400_000)
    first.memory.close()
    second = Rig(tmp_path)
    second.card = first.card
    await second.after(LEASE_S - 1)
    held = second.card.now
    await second.after(2)
    assert (held, second.card.now) == (400_000, HIGH)


async def test_without_any_order_nothing_is_touched(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    await rig.after(LEASE_S + 1)
    assert rig.card.writes == 0


async def test_a_service_that_is_cancelled_gives_the_limits_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with background(rig.service.run(), "limits"):
        await asyncio.sleep(0)  # it has begun
        await rig.order(400_000)
        held = rig.card.now
    assert (held, rig.card.now) == (400_000, HIGH)


async def test_what_can_be_set_is_known_before_any_order_and_nothing_is_touched(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    assert rig.settable() == CapsSettable(node="n1", gpu=True, cards=True, because=NO_LIMIT["cpu"])
    assert (rig.card.writes, rig.memory.names()) == (0, [])


async def test_a_limit_that_another_program_has_set_cannot_be_set(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.card.now = HIGH - 50_000
    found = rig.settable()
    assert not found.gpu
    assert "another program or a person has set it" in found.because


async def test_a_limit_that_the_hardware_refused_counts_again_after_ten_minutes(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    rig.card.refuses = True
    await rig.order(400_000)
    refused = rig.settable()
    rig.card.refuses = False
    await rig.order(None, view=2)
    await rig.after(REFUSED_S - 1)
    still = rig.settable()
    await rig.after(2)
    assert (refused.gpu, still.gpu, rig.settable().gpu) == (False, False, True)
    assert "nvml/GPU-1: no" in refused.because


async def test_a_cap_that_holds_is_one_that_can_be_set(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    await rig.order(400_000)
    assert rig.settable().gpu


async def test_a_writer_that_fails_can_set_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.card.effect = broken
    rig.receive(400_000)
    with pytest.raises(OSError, match="disk"):
        await rig.service.run()
    found = rig.settable()
    assert not found.gpu
    assert "the writer failed: OSError: the disk is full" in found.because


def broken() -> None:
    raise OSError("the disk is full")


async def test_a_dry_run_can_set_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path, dry_run=True)
    found = rig.settable()
    assert not found.gpu
    assert "dry run" in found.because


@contextlib.asynccontextmanager
async def buses(folder: Path) -> AsyncGenerator[list[JetStreamLog], None]:
    """The bus as an operator, an agent and the core have it."""
    async with running_broker(folder) as broker, contextlib.AsyncExitStack() as stack:
        made = []
        for role in (Role.OPERATOR, Role.AGENT, Role.ADMIN):
            connection = await stack.enter_async_context(connected(broker, str(role), role))
            made.append(await stack.enter_async_context(JetStreamLog.over(connection)))
        yield made


async def events_in(bus: JetStreamLog) -> list[AnyEvent]:
    newest = (await bus.state(Stream.TEL)).last
    records = [await bus.message(Stream.TEL, number + 1) for number in range(newest)]
    return [codec.decoded(record.data, "the test") for record in records if record]


async def reports_in(bus: JetStreamLog) -> list[CapsApplied | CapsRefused]:
    events = await events_in(bus)
    return [event for event in events if isinstance(event, CapsApplied | CapsRefused)]


async def settable_in(bus: JetStreamLog) -> list[CapsSettable]:
    return [event for event in await events_in(bus) if isinstance(event, CapsSettable)]


@pytest.mark.slow
async def test_an_order_reaches_the_node_and_its_outcome_the_log(tmp_path: Path) -> None:
    rig = Rig(tmp_path)

    async def ordered(bus: JetStreamLog, gpu_mw: int, until: Callable[[], bool]) -> None:
        order = CapOrder(node="n1", plan="p1", view=gpu_mw, gpu_mw=gpu_mw)
        async with asyncio.timeout(60):
            while not until():
                await bus.send_live(CLUSTER.caps("n1"), msgspec.msgpack.encode(order))
                await asyncio.sleep(0.05)

    async with (
        buses(tmp_path / "broker") as (operator, agent, core),
        background(rig.service.follow(agent), "orders"),
        background(rig.service.run(), "limits"),
    ):
        await ordered(operator, 300_000, lambda: rig.card.now == 300_000)
        rig.card.now = 333_000  # by another program
        await ordered(operator, 400_000, lambda: not rig.memory.names())
        async with asyncio.timeout(60):
            while len(reports := await reports_in(core)) < 3:
                await asyncio.sleep(0.05)

    applied, lost, refused = reports
    assert applied == CapsApplied(node="n1", plan="p1", gpu_mw=300_000)
    assert lost == CapsApplied(node="n1", plan="p1")
    assert isinstance(refused, CapsRefused)
    assert "left as it is" in refused.because
    assert rig.card.now == 333_000


@pytest.mark.slow
async def test_what_can_be_set_is_repeated_and_taken_back_at_the_end(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    can = CapsSettable(node="n1", gpu=True, cards=True, because=NO_LIMIT["cpu"])
    ended = CapsSettable(node="n1", because="the writer has ended")

    async def until_reported(core: JetStreamLog, times: int) -> None:
        async with asyncio.timeout(60):
            while len(await settable_in(core)) < times:
                await asyncio.sleep(0.05)

    async with buses(tmp_path / "broker") as (_, agent, core):
        async with (
            background(rig.service.follow(agent), "orders"),
            background(rig.service.run(), "limits"),
        ):
            await until_reported(core, 1)
            await rig.order(400_000)
            rig.now_s += REPEAT_S
            await until_reported(core, 2)
            assert rig.settable() == can
        assert rig.settable() == ended  # not even in the moment before the bus is closed
        reports = await settable_in(core)
        newest = (await reports_in(core))[-1]

    assert reports == [can, can, ended]
    assert newest == CapsApplied(node="n1")  # the limit is given back, and that is reported
