"""An outage of the broker: readings are kept, and published afterwards in order, as late ones."""

from collections.abc import Callable, Sequence
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus_kit import CLUSTER, VirtualClock, memory_log
from bus_kit.clock import NOON
from bus_kit.memory_broker import MemoryLog
from joulie_agent.backlog import Backlog, When
from joulie_agent.delivery import AT_ONCE, Delivery
from joulie_bus.errors import BusError
from joulie_bus.events import TelemetrySampled, codec
from joulie_bus.log.producer import Producer
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import Stream, agent_name
from joulie_projections.energy.ledger import Ledger
from joulie_projections.energy.report import report_of
from joulie_projections.fold.node_facts import sampled_power
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft

pytestmark = pytest.mark.anyio
WATTS = 200


class Flaky:
    """A log that the test takes away, and gives back."""

    def __init__(self) -> None:
        self.log: MemoryLog = memory_log(VirtualClock())
        self.is_away = False

    async def publish(self, messages: Sequence[Message]) -> None:
        if self.is_away:
            raise BusError("the broker is away")
        await self.log.publish(messages)


class Node:
    """Publishes a reading with its counter each ten seconds."""

    def __init__(self, file: Path | None = None) -> None:
        self.broker, self.file, self.now_s, self.lives = Flaky(), file, 0, 0
        self.stored: list[tuple[int, TelemetrySampled]] = []  # with the second
        self.begin()

    def begin(self) -> None:
        self.lives += 1
        producer = Producer(agent_name("n1"), CLUSTER, lambda: NOON, boot=f"b{self.lives}")
        backlog = Backlog(self.file, "boot")
        self.delivery = Delivery(self.broker, producer, backlog, self.now)  # type: ignore[arg-type]

    def now(self) -> When:
        return When("boot", self.now_s * 1000)

    async def seconds(self, count: int) -> None:
        for _ in range(count):
            self.now_s += 1
            if self.now_s % 10 == 0:
                self.delivery.put(
                    TelemetrySampled(
                        node="n1",
                        power_mw=WATTS * 1000,
                        counted_from=1,
                        energy_uj=WATTS * self.now_s * 1_000_000,
                    )
                )
            if self.delivery.waits:
                await self.delivery.deliver()
            await self.note_stored()

    async def note_stored(self) -> None:
        newest = (await self.broker.log.state(Stream.TEL)).last
        for number in range(len(self.stored), newest):
            record = await self.broker.log.message(Stream.TEL, number + 1)
            assert record is not None
            fact = codec.decoded(record.data, "the test")
            assert isinstance(fact, TelemetrySampled)
            self.stored.append((self.now_s, fact))

    def made_at_s(self) -> list[float]:
        return [at_s - fact.late_ms / 1000 for at_s, fact in self.stored]


async def test_readings_of_an_outage_are_published_in_order_with_their_age() -> None:
    node = Node()
    await node.seconds(20)
    node.broker.is_away = True
    await node.seconds(300)
    node.broker.is_away = False
    await node.seconds(10)

    assert node.made_at_s() == [10.0 * number for number in range(1, 34)]
    late = [fact for _, fact in node.stored if fact.late_ms]
    assert len(late) == 30
    assert not node.delivery.waits


async def test_a_node_returns_with_a_few_readings_a_second() -> None:
    """Thousands of agents return at the same time."""
    node = Node()
    node.broker.is_away = True
    await node.seconds(600)
    node.broker.is_away = False
    await node.seconds(1)
    assert len(node.stored) == AT_ONCE
    await node.seconds(7)
    assert not node.delivery.waits


async def test_an_agent_that_was_killed_in_an_outage_publishes_what_it_kept(tmp_path: Path) -> None:
    node = Node(tmp_path / "kept")
    node.broker.is_away = True
    await node.seconds(100)
    with (tmp_path / "kept").open("ab") as file:
        file.write(b'{"boot":"boot","at_ms":5,"rea')  # it was killed while it wrote
    node.begin()
    node.broker.is_away = False
    await node.seconds(10)

    assert node.made_at_s() == [10.0 * number for number in range(1, 12)]


async def test_readings_from_before_a_reboot_are_left_out(tmp_path: Path) -> None:
    """How old they are is not known."""
    Backlog(tmp_path / "kept", "before").put(
        When("before", 5), TelemetrySampled(node="n1", power_mw=1)
    )
    assert len(Backlog(tmp_path / "kept", "after")) == 0


async def test_a_long_outage_keeps_the_newest_readings(tmp_path: Path) -> None:
    backlog = Backlog(tmp_path / "kept", "boot", most_bytes=2000)
    for number in range(500):
        backlog.put(When("boot", number), TelemetrySampled(node="n1", power_mw=number))

    kept = [each.reading.power_mw for each in backlog.oldest(500)]
    assert kept == list(range(500 - len(kept), 500))
    assert len(kept) + backlog.dropped == 500
    assert (tmp_path / "kept").stat().st_size <= 4000


class Slow(Flaky):
    """Readings are made while others are published."""

    def __init__(self, made: Callable[[], None]) -> None:
        super().__init__()
        self._made = made

    async def publish(self, messages: Sequence[Message]) -> None:
        await super().publish(messages)
        self._made()


async def test_a_full_backlog_that_makes_room_while_it_is_delivered_loses_nothing_else() -> None:
    backlog = Backlog(None, "boot", most_bytes=2000)
    powers = iter(range(1000))

    def put(count: int) -> None:
        for power in islice(powers, count):
            backlog.put(When("boot", power), TelemetrySampled(node="n1", power_mw=power))

    put(500)
    oldest = backlog.oldest(1)[0].reading.power_mw
    producer = Producer(agent_name("n1"), CLUSTER, lambda: NOON, boot="b1")
    broker = Slow(lambda: put(3))
    delivery = Delivery(broker, producer, backlog, lambda: When("boot", 500))  # type: ignore[arg-type]
    await delivery.deliver()

    left = [each.reading.power_mw for each in backlog.oldest(500)]
    assert left == list(range(oldest + AT_ONCE, 503))


async def test_a_backlog_holds_eight_hours_of_a_node_without_cards() -> None:
    """A reading each ten seconds."""
    backlog = Backlog(None, "")
    reading = TelemetrySampled(
        node="node-00017.example.internal",
        power_mw=312_000,
        provider="rapl package+memory",
        min_mw=312_000,
        mean_mw=312_000,
        max_mw=312_000,
        counted_from=NOON,
        energy_uj=10**13,
    )
    for at_s in range(0, 8 * 3600, 10):
        backlog.put(When("0b6f3c1e-1111-4222-8333-0123456789ab", at_s * 1000), reading)
    assert (len(backlog), backlog.dropped) == (2880, 0)


async def test_a_disk_that_is_full_keeps_readings_in_memory(tmp_path: Path) -> None:
    node = Node(tmp_path / "missing" / "kept")
    node.broker.is_away = True
    await node.seconds(50)
    node.broker.is_away = False
    await node.seconds(1)
    assert len(node.stored) == 5


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 200), st.booleans()), min_size=1, max_size=8))
async def test_no_outage_loses_energy_or_takes_a_twin_back_in_time(
    steps: list[tuple[int, bool]],
) -> None:
    """Whatever is away when, and however often the broker returns."""
    node = Node()
    await node.seconds(10)
    for seconds, is_away in steps:
        node.broker.is_away = is_away
        await node.seconds(seconds)
    node.broker.is_away = False
    await node.seconds(120)

    ledger, state = Ledger(), ClusterState()
    times: list[int] = []
    for at_s, fact in node.stored:
        ledger.fold([(fact, NOON + at_s * 10**9)])
        draft = Draft(state)
        sampled_power(draft, fact, NOON + at_s * 10**9)
        draft.commit()
        times.append(state.nodes["n1"].samples[-1].at)
    ledger.end()

    assert all(before <= after for before, after in pairwise(times))
    hours = [each for each in ledger.closed if each.grain == "hour"]
    last_s = node.stored[-1][1].energy_uj // (WATTS * 1_000_000)
    found = report_of(hours, "node")
    assert (found.meter_uj, found.unknown_ms) == (WATTS * (last_s - 10) * 1_000_000, 0)
