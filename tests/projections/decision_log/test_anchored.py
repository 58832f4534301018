"""What a projector reads of the stream of heads when it begins to lead."""

from pathlib import Path

import pytest

from bus_kit import CLUSTER
from bus_kit.memory_broker import MemoryBroker, MemoryLog
from joulie_bus.errors import BrokerRefused
from joulie_bus.log import answered
from joulie_bus.log.answered import NO_LEADER
from joulie_bus.streams.records import Message, StreamState
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.head import Signed, encode
from joulie_projections.decision_log import anchored
from joulie_projections.decision_log.anchored import everything, newest
from joulie_projections.decision_log.heads import Signer
from signed_heads import head_at

pytestmark = pytest.mark.anyio


class Electing(MemoryLog):
    """Has no leader at first."""

    refusals = 2

    async def state(self, stream: Stream) -> StreamState:
        if self.refusals:
            self.refusals -= 1
            raise BrokerRefused(f"$JS.API.STREAM.INFO.{stream}", NO_LEADER, "no leader")
        return await super().state(stream)


async def test_a_projector_that_begins_to_lead_in_an_election_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answered, "PAUSE_S", 0.0)
    bus = Electing(MemoryBroker(CLUSTER, lambda: 0))

    assert (await newest(bus, Signer.of(tmp_path / "head.key").public)).newest is None
    assert bus.refusals == 0


async def test_the_newest_head_is_that_of_the_highest_entry_and_not_the_last_message(
    tmp_path: Path,
) -> None:
    """A projector that signed before a failover may publish after it."""
    bus, signer = MemoryLog(MemoryBroker(CLUSTER, lambda: 0)), Signer.of(tmp_path / "head.key")
    late, high = head_at(signer, 34, b"h" * 32), head_at(signer, 40, b"h" * 32)
    await publish(bus, high, late)

    found = await newest(bus, signer.public)

    assert (found.newest, found.first, found.is_whole) == (high, 34, True)


async def test_of_a_long_stream_the_newest_messages_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anchored, "NEWEST", 3)
    bus, signer = MemoryLog(MemoryBroker(CLUSTER, lambda: 0)), Signer.of(tmp_path / "head.key")
    heads = [head_at(signer, pos, b"h" * 32) for pos in range(1, 6)]
    await publish(bus, *heads)

    found = await newest(bus, signer.public)

    assert (list(found.heads), found.is_whole) == ([*reversed(heads[2:])], False)
    assert (await everything(bus, signer.public)).heads == [*reversed(heads)]


async def test_all_messages_are_read_if_none_of_the_newest_is_a_head_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anchored, "NEWEST", 3)
    bus = MemoryLog(MemoryBroker(CLUSTER, lambda: 0))
    signer, thief = (Signer.of(tmp_path / f"{name}.key") for name in ("head", "thief"))
    own = head_at(signer, 7, b"h" * 32)
    await publish(bus, own, *(head_at(thief, pos, bytes(32)) for pos in range(10, 20)))

    found = await newest(bus, signer.public)

    assert (found.newest, found.is_whole) == (own, True)


async def test_a_handover_in_the_stream_counts_for_the_heads_behind_it(tmp_path: Path) -> None:
    bus = MemoryLog(MemoryBroker(CLUSTER, lambda: 0))
    old, new = (Signer.of(tmp_path / f"{name}.key") for name in ("old", "new"))
    handover = old.hand_over(new, 5, b"h" * 32, 1)
    await publish(bus, handover, head_at(new, 6, b"i" * 32))

    found = await newest(bus, old.public)

    assert found.ring.newest.id == new.key_id
    assert found.newest is not None


async def publish(bus: MemoryLog, *statements: Signed) -> None:
    for number, each in enumerate(statements):
        await bus.publish([Message(CLUSTER.heads, f"{number}", encode(each))])
