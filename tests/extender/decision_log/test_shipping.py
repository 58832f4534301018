import asyncio
import contextlib
import resource
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bus_kit import CLUSTER, NOON, ask, full, refusals, until
from joulie_bus.broker.embedded import Embedded
from joulie_bus.events import DecisionsDropped, FilterDecided, codec
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.log.producer import Producer
from joulie_bus.runtime import metrics
from joulie_bus.runtime.tasks import background, wait_and_clear
from joulie_bus.streams.subjects import Stream
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import DecisionContext, decide_filter
from joulie_extender.decision_log.kept_hashes import KeptHashes
from joulie_extender.decision_log.shipping import Durability, Shipper
from joulie_extender.decision_log.shipping import shipping as shipping_to
from joulie_extender.decision_log.spool import RECENT_BYTES, Spool
from joulie_projections.twin.columns import TwinColumns

pytestmark = pytest.mark.anyio
PATIENCE_S = 120


MIB = 1024 * 1024


def decided(number: int, size: int = 1) -> FilterDecided:
    """Of about so many bytes."""
    moment, candidates = (
        DecisionContext(TwinColumns.empty(), 1, 0, NOON),
        ["a" * 250] * (size // 250 + 1),
    )
    return decide_filter(ask(f"pod-{number}"), candidates, moment, Weights())


@contextlib.contextmanager
def shipper_on(
    directory: Path, durability: Durability = Durability.ASYNC
) -> Generator[Shipper, None, None]:
    """Another life of the same replica."""
    with contextlib.closing(Spool(directory)) as spool:
        yield Shipper(Producer("r", CLUSTER, lambda: NOON), spool, durability)


@contextlib.asynccontextmanager
async def shipping(bus: JetStreamLog, shipper: Shipper) -> AsyncGenerator[None, None]:
    async with background(shipper.ship(bus), "ship"):
        yield


async def shipped_pods(bus: JetStreamLog, count: int) -> list[str]:
    """The pods of the first decisions in the log, in its order."""
    wakeup, pods = asyncio.Event(), list[str]()
    async with (
        asyncio.timeout(PATIENCE_S),
        bus.reading(Stream.DEC, 0, wakeup=wakeup) as reader,
    ):
        while len(pods) < count:
            await wait_and_clear(wakeup, 0.5)
            keys = [codec.open_envelope(r.data, "here").key for r in reader.take(1000)]
            pods += [key for key in keys if not key.startswith("_promise")]
    return pods


async def stored(bus: JetStreamLog) -> int:
    """Decisions; promises are not counted."""
    if not (last := (await bus.state(Stream.DEC)).last):
        return 0
    return sum(not each.key.startswith("_promise") for each in await all_shipped(bus, last))


async def test_what_is_recorded_arrives_in_order(bus: JetStreamLog, tmp_path: Path) -> None:
    with shipper_on(tmp_path / "spool") as shipper:
        async with shipping(bus, shipper):
            for number in range(700):
                shipper.record(decided(number))
            pods = await shipped_pods(bus, 700)

    assert pods == [f"pod-{number}" for number in range(700)]


async def test_nothing_is_left_on_disk_once_all_is_shipped(
    bus: JetStreamLog, tmp_path: Path
) -> None:
    with shipper_on(tmp_path / "spool") as shipper:
        async with shipping(bus, shipper):
            shipper.record(decided(1))
            await shipper.drained(PATIENCE_S)

    assert [path.stat().st_size for path in (tmp_path / "spool").iterdir()] == [0]


async def test_a_disk_that_is_full_for_hashes_stops_no_message_and_is_counted(
    bus: JetStreamLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(KeptHashes, "add", no_room)
    lost = metrics.HASHES_LOST._value.get()
    with shipping_to(Producer("r", CLUSTER, lambda: NOON), tmp_path / "spool") as shipper:
        async with shipping(bus, shipper):
            shipper.record(decided(1))
            await shipper.drained(PATIENCE_S)

    assert await shipped_pods(bus, 1) == ["pod-1"]
    assert metrics.HASHES_LOST._value.get() - lost == 3  # the key, the decision, the promise


async def test_the_next_life_ships_what_the_last_one_left(
    bus: JetStreamLog, tmp_path: Path
) -> None:
    with shipper_on(tmp_path / "spool") as killed:
        killed.record(decided(1))
        killed.record(decided(2))
    with shipper_on(tmp_path / "spool") as shipper:
        async with shipping(bus, shipper):
            pods = await shipped_pods(bus, 2)

    assert pods == ["pod-1", "pod-2"]


async def test_a_life_that_ends_in_the_middle_of_shipping_leaves_each_decision_once(
    bus: JetStreamLog, tmp_path: Path
) -> None:
    with shipper_on(tmp_path / "spool") as first:
        for number in range(3000):
            first.record(decided(number))
        async with shipping(bus, first):
            while not await stored(bus):
                await asyncio.sleep(0)
    assert await stored(bus) < 3000

    with shipper_on(tmp_path / "spool") as second:
        async with shipping(bus, second):
            await second.drained(PATIENCE_S)

    assert await shipped_pods(bus, 3000) == [f"pod-{number}" for number in range(3000)]
    assert await stored(bus) == 3000


async def test_a_broker_that_dies_and_comes_back_gets_each_decision_once(
    broker: Embedded, bus: JetStreamLog, tmp_path: Path
) -> None:
    with shipper_on(tmp_path / "spool") as shipper:
        async with shipping(bus, shipper):
            shipper.record(decided(0))
            await shipper.drained(PATIENCE_S)
            broker.kill()
            await broker.wait()
            for number in range(1, 100):
                shipper.record(decided(number))
            await broker.start()
            await shipper.drained(PATIENCE_S)

    assert sorted(await shipped_pods(bus, 100)) == sorted(f"pod-{n}" for n in range(100))
    assert await stored(bus) == 100


@contextlib.contextmanager
def small_disk() -> Generator[None, None, None]:
    """No file of this process may grow beyond 1 MiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def all_shipped(bus: JetStreamLog, count: int) -> list[codec.Envelope]:
    wakeup, found = asyncio.Event(), list[codec.Envelope]()
    async with (
        asyncio.timeout(PATIENCE_S),
        bus.reading(Stream.DEC, 0, wakeup=wakeup) as reader,
    ):
        while len(found) < count:
            await wait_and_clear(wakeup, 0.5)
            found += [codec.open_envelope(r.data, "here") for r in reader.take(1000)]
    return found


async def shipped_envelopes(bus: JetStreamLog, count: int) -> list[codec.Envelope]:
    """Those of decisions."""
    found = list[codec.Envelope]()
    while len(found) < count:
        last = (await bus.state(Stream.DEC)).last
        every = await all_shipped(bus, last)
        found = [each for each in every if not each.key.startswith("_promise")]
    return found


async def test_a_full_disk_costs_the_entry_and_not_the_answer_and_the_log_says_so(
    bus: JetStreamLog, tmp_path: Path
) -> None:
    before = metrics.DECISIONS_DROPPED._value.get()
    with shipper_on(tmp_path / "spool") as shipper:
        with small_disk():
            shipper.record(decided(1, MIB))
            shipper.record(decided(2, MIB))
        shipper.record(decided(3))
        async with shipping(bus, shipper):
            kept, told = await shipped_envelopes(bus, 2)

    assert (kept.key, codec.origin_of(kept.id, "here").seq) == ("pod-3", 4)
    assert isinstance(dropped := codec.read(told, "here"), DecisionsDropped)
    assert (dropped.count, "full" in dropped.why) == (2, True)
    assert metrics.DECISIONS_DROPPED._value.get() == before + 2


async def test_a_decision_that_no_broker_takes_keeps_no_other_waiting(
    bus: JetStreamLog, tmp_path: Path
) -> None:
    with shipper_on(tmp_path / "spool") as shipper:
        shipper.record(decided(1, bus.max_payload))
        shipper.record(decided(2))
        async with shipping(bus, shipper):
            await shipper.drained(PATIENCE_S)
            shipper.record(decided(3))
            found = await shipped_envelopes(bus, 3)

    assert [each.key for each in found] == ["pod-2", "_dropped", "pod-3"]


# --- waiting for the broker -------------------------------------------------------------------


async def test_no_reply_waits_for_the_broker_by_default(tmp_path: Path) -> None:
    with shipper_on(tmp_path / "spool") as shipper:
        assert shipper.record(decided(1)) is None


@pytest.mark.parametrize("durability", [Durability.ACK, Durability.STRICT])
async def test_a_waiting_caller_resumes_when_the_broker_has_stored_it(
    bus: JetStreamLog, tmp_path: Path, durability: Durability
) -> None:
    with shipper_on(tmp_path / "spool", durability) as shipper:
        async with shipping(bus, shipper):
            told = [shipper.record(decided(number)) for number in range(3)]
            async with asyncio.timeout(PATIENCE_S):
                acknowledged = [await each for each in told if each is not None]

    assert acknowledged == [True] * 3
    assert await stored(bus) == 3


async def test_a_waiting_caller_gets_false_at_once_when_the_disk_is_full(tmp_path: Path) -> None:
    with shipper_on(tmp_path / "spool", Durability.ACK) as shipper, small_disk():
        told = shipper.record(decided(1, MIB))

    assert told is not None
    assert told.result() is False


async def test_a_caller_that_timed_out_does_not_disturb_others(
    bus: JetStreamLog, tmp_path: Path
) -> None:
    with shipper_on(tmp_path / "spool", Durability.ACK) as shipper:
        impatient, patient = shipper.record(decided(1)), shipper.record(decided(2))
        assert impatient is not None
        assert patient is not None
        impatient.cancel()
        async with shipping(bus, shipper), asyncio.timeout(PATIENCE_S):
            assert await patient


@pytest.mark.parametrize("durability", [Durability.ACK, Durability.STRICT])
async def test_a_decision_that_no_broker_takes_does_not_count_as_stored(
    bus: JetStreamLog, tmp_path: Path, durability: Durability
) -> None:
    shipped = metrics.DECISIONS_SHIPPED._value.get()
    with shipper_on(tmp_path / "spool", durability) as shipper:
        large, small = shipper.record(decided(1, bus.max_payload)), shipper.record(decided(2))
        assert large is not None
        assert small is not None
        async with shipping(bus, shipper), asyncio.timeout(PATIENCE_S):
            assert (await large, await small) == (False, True)
            await shipper.drained(PATIENCE_S)

    assert metrics.DECISIONS_SHIPPED._value.get() == shipped + 2  # the other, and the record of it


async def test_a_damaged_segment_is_counted_recorded_and_shipped_without_what_was_lost(
    bus: JetStreamLog, tmp_path: Path
) -> None:
    dropped = metrics.DECISIONS_DROPPED._value.get()
    with shipper_on(tmp_path / "spool") as killed:
        for number in range(3):
            killed.record(decided(number))
    [file] = (tmp_path / "spool").iterdir()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)

    with shipper_on(tmp_path / "spool") as shipper:
        async with shipping(bus, shipper):
            *found, told = await shipped_envelopes(bus, 3)

    assert [each.key for each in found] == ["pod-0", "pod-2"]
    assert isinstance(lost := codec.read(told, "here"), DecisionsDropped)
    assert (lost.count, str(file) in lost.why) == (1, True)
    assert metrics.DECISIONS_DROPPED._value.get() == dropped + 1


async def test_an_entry_for_which_no_reply_waits_is_not_kept_in_an_outage(tmp_path: Path) -> None:
    with shipper_on(tmp_path / "spool", Durability.STRICT) as shipper:
        for number in range(100):
            shipper.spool(decided(number))

        assert shipper.waiting == 0


def counted() -> tuple[float, float]:
    return (metrics.DECISIONS_SPOOLED._value.get(), metrics.DECISIONS_SHIPPED._value.get())


def shown(name: str) -> float | None:
    return metrics.SPOOL.get_sample_value(name)


async def test_metrics_have_all_that_waits_and_the_age_of_the_oldest_from_the_start_on(
    bus: JetStreamLog, tmp_path: Path
) -> None:
    hour_ago = time.time_ns() - 3600 * 10**9
    with shipping_to(Producer("r", CLUSTER, lambda: hour_ago), tmp_path / "spool") as earlier:
        for number in range(600):  # more than are shipped at once
            earlier.record(decided(number))
    with shipping_to(Producer("r", CLUSTER, time.time_ns), tmp_path / "spool") as shipper:
        shipper.record(decided(600))
        waited, age_s = shown("joulie_decision_spool_events"), shipper.oldest_s
        async with shipping(bus, shipper):
            await shipper.drained(PATIENCE_S)

        assert waited is not None
        assert waited >= 603  # with the key of each life, and promises
        assert age_s == pytest.approx(3600, abs=60)
        assert shown("joulie_decision_spool_events") == 0
        assert shown("joulie_decision_spool_seconds") == 0


async def test_an_end_with_decisions_in_the_spool_is_logged_with_their_number(
    tmp_path: Path,
) -> None:
    with shipper_on(tmp_path / "spool") as shipper, capture_logs() as lines:
        shipper.record(decided(1))
        await shipper.drained(0.01)

    # The key of this life, the decision, and the promise at the end.
    assert [(line["event"], line["entries"]) for line in lines] == [("spool_not_empty", 3)]


async def test_what_is_spooled_and_what_is_shipped_is_counted(
    bus: JetStreamLog, tmp_path: Path
) -> None:
    spooled, shipped = counted()
    with shipper_on(tmp_path / "spool") as shipper:
        shipper.record(decided(1))
        assert counted() == (spooled + 1, shipped)
        async with shipping(bus, shipper):
            await shipper.drained(PATIENCE_S)

    assert counted() == (spooled + 1, shipped + 1)


async def test_a_caller_that_times_out_in_an_outage_is_removed(tmp_path: Path) -> None:
    with shipper_on(tmp_path / "spool", Durability.ACK) as shipper:
        for number in range(100):
            told = shipper.record(decided(number))
            assert told is not None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(told, 0)
        await asyncio.sleep(0)  # done callbacks are called by the loop

        assert shipper.waiting == 0


async def test_a_backlog_larger_than_memory_is_shipped_once_and_in_order(
    bus: JetStreamLog, tmp_path: Path
) -> None:
    size = RECENT_BYTES // 50
    with shipper_on(tmp_path / "spool") as shipper:
        for number in range(200):  # four times what is remembered
            shipper.record(decided(number, size))
        async with shipping(bus, shipper):
            for number in range(200, 220):
                shipper.record(decided(number))
            pods = await shipped_pods(bus, 220)
            await shipper.drained(PATIENCE_S)

    assert pods == [f"pod-{number}" for number in range(220)]
    assert await stored(bus) == 220


async def test_decisions_that_a_full_stream_refuses_stay_in_the_spool_and_are_shipped_later(
    bus: JetStreamLog, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joulie_extender.decision_log.shipping.RETRY_S", 0.05)
    before = refusals("decisions")
    with shipper_on(tmp_path / "spool") as shipper, capture_logs() as lines:
        async with shipping(bus, shipper):
            async with full(connection, Stream.DEC):
                for number in range(5):
                    shipper.record(decided(number))
                await until(lambda: refusals("decisions") >= before + 5)
            pods = await shipped_pods(bus, 5)

    told = [line["event"] for line in lines if "publish" in line["event"]]
    assert pods == [f"pod-{number}" for number in range(5)]
    assert told == ["not_published", "published_again"]
