"""Changes of keys while the projector runs, and after a crash at any step."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Engine
from structlog.testing import capture_logs

from bus_kit import CLUSTER, decided, noon, records, stored, until
from joulie_bus.errors import Fenced, KeyChangeRefused, KeyRingBroken
from joulie_bus.jetstream.connection import Connection
from joulie_bus.runtime import metrics
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.head import Head, Signed, decode_any
from joulie_projections.chain.signed import Handover, Retirement
from joulie_projections.decision_log import key_change, writer
from joulie_projections.decision_log.heads import (
    Signer,
    next_path,
    public_key,
    ring_path,
)
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.history.history import History
from joulie_projections.store.database import Place
from joulie_projections.store.store import Store
from projections_kit import tamper
from signed_heads import BESIDE, begun

pytestmark = pytest.mark.anyio
Projecting = Callable[..., AbstractAsyncContextManager[asyncio.Task[None]]]
Publish = Callable[..., Awaitable[None]]
Signing = Callable[[int], Awaitable[list[Head]]]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "HEAD_EVERY_S", 0.1)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """The key that `projecting` signs with."""
    path = tmp_path / "signing.key"
    Signer.of(path).publish(ring_path(path))
    return path


def heads(place: Place) -> list[Head]:
    with History.of(place) as history:
        return history.heads()


async def anchored(connection: Connection) -> list[Signed]:
    return [decode_any(record.data) for record in await stored(connection, Stream.HEADS)]


@pytest.fixture
def signed(connection: Connection, place: Place) -> Signing:
    """Waits until the database and the stream have this number of heads."""

    async def wait(count: int) -> list[Head]:
        async with asyncio.timeout(60):
            while True:
                outside = [
                    statements
                    for statements in await anchored(connection)
                    if isinstance(statements, Head)
                ]
                if len(outside) == len(heads(place)) == count:
                    return outside
                await asyncio.sleep(0.02)

    return wait


async def test_a_running_projector_hands_over_before_its_next_head(
    projecting: Projecting,
    publish: Publish,
    connection: Connection,
    place: Place,
    key: Path,
    signed: Signing,
) -> None:
    old = Signer.of(key).key_id
    async with projecting():
        await publish(decided("a"))
        await signed(1)
        new = key_change.request_rotation(key)
        await until(lambda: not next_path(key).exists())
        await publish(decided("b"))
        first, second = await signed(2)

    ring, statements = public_key(ring_path(key)), await anchored(connection)
    assert (first.key_id, second.key_id) == (old, new)
    assert Signer.of(key).key_id == new
    assert statements == [first, *ring.handovers, second]
    assert [(key.after, key.until) for key in ring.keys] == [(0, 1), (1, 2**63 - 1)]
    assert (ring.handovers[0].pos, ring.handovers[0].hash) == (first.pos, first.hash)
    assert {ring.flaw_of(head) for head in (first, second)} == {""}


async def test_a_running_projector_retires_a_key(
    projecting: Projecting,
    publish: Publish,
    connection: Connection,
    place: Place,
    key: Path,
    signed: Signing,
) -> None:
    old = Signer.of(key).key_id
    async with projecting():
        await publish(decided("a"))
        await signed(1)
        key_change.request_rotation(key)
        await until(lambda: not next_path(key).exists())
        key_change.request_retirement(key, old, 0)
        await until(lambda: not key_change.retirement_path(key).exists())

    statements = await anchored(connection)
    assert [type(one) for one in statements] == [Head, Handover, Retirement]
    ring = public_key(ring_path(key))
    assert [known.since == 0 for known in ring.keys] == [True, False]
    assert ring.retirements == (statements[2],)


async def test_a_change_that_a_crash_interrupted_is_completed(
    projecting: Projecting,
    publish: Publish,
    connection: Connection,
    place: Place,
    key: Path,
    signed: Signing,
) -> None:
    """The change was written into the ring, but neither anchored nor put in force."""
    async with projecting():
        await publish(decided("a"))
        (first,) = await signed(1)
    new = key_change.request_rotation(key)
    begun = key_change.prepare(Signer.of(key), first.pos, first.hash, noon())

    async with projecting():
        await publish(decided("b"))
        _, second = await signed(2)

    assert second.key_id == new
    assert public_key(ring_path(key)).handovers == (begun.statement,)
    assert await anchored(connection) == [first, begun.statement, second]


async def test_a_standby_signs_with_the_key_that_is_in_force_when_it_leads(
    projecting: Projecting, publish: Publish, place: Place, key: Path, signed: Signing
) -> None:
    """The key was changed while the standby had the old one in memory."""
    async with projecting() as leader:
        await publish(decided("a"))
        await signed(1)
        async with projecting():
            new = key_change.request_rotation(key)
            await until(lambda: not next_path(key).exists())
            leader.cancel()
            await asyncio.wait([leader])
            await publish(decided("b"))
            assert (await signed(2))[-1].key_id == new


async def test_a_change_that_cannot_be_made_leaves_the_old_key_in_force(
    projecting: Projecting, publish: Publish, place: Place, key: Path, signed: Signing
) -> None:
    next_path(key).write_text("no key")
    async with projecting():
        await publish(decided("a"))
        (head,) = await signed(1)

    assert head.key_id == Signer.of(key).key_id


async def test_heads_that_an_older_copy_lacks_are_restored_with_their_entries(
    projecting: Projecting,
    publish: Publish,
    connection: Connection,
    place: Place,
    key: Path,
    signed: Signing,
) -> None:
    async with projecting():
        for count, uid in enumerate("abc", 1):
            await publish(decided(uid))
            await signed(count)
    kept = heads(place)
    tamper(place, "DELETE FROM head WHERE pos > 1")

    async with projecting():
        await publish(decided("d"))
        await signed(4)

    assert heads(place)[:3] == kept
    assert await anchored(connection) == heads(place)


async def test_a_newest_message_that_is_not_a_statement_hides_no_head(
    projecting: Projecting,
    publish: Publish,
    connection: Connection,
    place: Place,
    key: Path,
    signed: Signing,
) -> None:
    """Any user can make the broker store a reply on the subject of heads."""
    async with projecting():
        for count, uid in enumerate("ab", 1):
            await publish(decided(uid))
            await signed(count)
    kept = heads(place)
    await connection.request(CLUSTER.heads, b'{"stream":"JOULIE_OBS","seq":7}')
    tamper(place, "DELETE FROM head WHERE pos > 1")

    async with projecting():
        await until(lambda: len(heads(place)) == 2)

    assert heads(place) == kept


async def test_a_fenced_writer_signs_nothing(writer: Engine, tmp_path: Path) -> None:
    signer = Signer.of(tmp_path / "head.key")
    Store(writer).acquire("me", 10, "i", lambda _: False)
    log = begun(DecisionLog(writer), signer.public)
    log.append(1, records(decided("a"), name="extender"), "then")
    Store(writer).acquire("another", 10, "i", lambda _: True)

    with pytest.raises(Fenced):
        log.sign(1, signer, BESIDE)


# --- requests -----------------------------------------------------------------------------------


def test_two_requests_create_one_key(key: Path) -> None:
    assert key_change.request_rotation(key) == key_change.request_rotation(key)
    assert next_path(key).stat().st_mode & 0o777 == 0o600


async def test_a_planted_key_gets_no_handover_and_the_key_in_force_signs_on(
    projecting: Projecting,
    publish: Publish,
    connection: Connection,
    place: Place,
    key: Path,
    signed: Signing,
) -> None:
    """A program that writes to the directory and cannot read the key."""
    old = Signer.of(key).key_id
    Signer.of(next_path(key))
    key_change.announcement_path(key).write_bytes(bytes(64))
    changes = metrics.KEY_CHANGES._value.get()
    async with projecting():
        with capture_logs() as logs:
            await publish(decided("a"))
            (head,) = await signed(1)
            await until(lambda: bool(metrics.KEY_CHANGE_REFUSED._value.get()))
        refused = [each for each in logs if each["event"] == "key_change_failed"]
        next_path(key).unlink()
        await publish(decided("b"))
        await signed(2)

    assert [type(one) for one in await anchored(connection)] == [Head, Head]
    assert (head.key_id, Signer.of(key).key_id) == (old, old)
    assert "no request of `joulie keys rotate`" in refused[0]["why"]
    assert metrics.KEY_CHANGES._value.get() == changes
    assert metrics.KEY_CHANGE_REFUSED._value.get() == 0


def test_a_planted_retirement_retires_no_key(key: Path) -> None:
    old = rotated(key)
    planted = key_change.RetirementRequest(key_id=old, since=0, signature=bytes(64))
    key_change.retirement_path(key).write_bytes(msgspec.json.encode(planted))

    with pytest.raises(KeyChangeRefused, match="no request of `joulie keys retire`"):
        key_change.prepare(Signer.of(key), 9, bytes(32), noon())
    assert Signer.of(key).public.retirements == ()


def test_a_retirement_that_was_requested_before_a_rotation_is_made_before_it(key: Path) -> None:
    old = rotated(key)
    key_change.request_rotation(key)
    key_change.request_retirement(key, old, 0)

    first = key_change.prepare(Signer.of(key), 9, bytes(32), noon())
    second = key_change.prepare(first.complete(), 9, bytes(32), noon())

    assert (type(first.statement), type(second.statement)) == (Retirement, Handover)


def test_without_a_key_nothing_is_handed_over(tmp_path: Path) -> None:
    with pytest.raises(KeyChangeRefused, match="there is no key to hand over from"):
        key_change.request_rotation(tmp_path / "head.key")
    assert list(tmp_path.iterdir()) == []


def test_the_key_that_signs_cannot_be_retired(key: Path) -> None:
    with pytest.raises(KeyChangeRefused, match="joulie keys rotate"):
        key_change.request_retirement(key, Signer.of(key).key_id, 5)
    with pytest.raises(KeyChangeRefused, match="not a key of this log"):
        key_change.request_retirement(key, "other", 5)


def test_a_second_retirement_waits_for_the_first(key: Path) -> None:
    old = rotated(key)
    key_change.request_retirement(key, old, 5)
    key_change.request_retirement(key, old, 5)

    with pytest.raises(KeyChangeRefused, match="waits for the projector"):
        key_change.request_retirement(key, old, 3)


def rotated(key: Path) -> str:
    """Rotates the key without a projector; returns the id of the old key."""
    old = Signer.of(key)
    key_change.request_rotation(key)
    key_change.prepare(old, 7, bytes(32), noon()).complete()
    return old.key_id


def test_an_old_key_beside_a_newer_ring_is_refused(key: Path) -> None:
    old = key.read_bytes()
    rotated(key)
    key.write_bytes(old)

    with pytest.raises(KeyRingBroken, match="its newest key is"):
        Signer.of(key).publish(ring_path(key))


def test_no_new_key_is_created_beside_a_ring(key: Path) -> None:
    rotated(key)
    key.unlink()

    with pytest.raises(KeyRingBroken, match="is missing"):
        Signer.of(key)
    assert not key.exists()


def test_a_key_that_handed_over_is_no_longer_in_force(key: Path) -> None:
    old = Signer.of(key)
    assert key_change.is_in_force(old)
    key_change.request_rotation(key)
    change = key_change.prepare(old, 7, bytes(32), noon())

    assert not key_change.is_in_force(old)
    assert key_change.is_in_force(change.complete())
    ring_path(key).write_text("{}")
    assert not key_change.is_in_force(old)


def test_the_ring_may_be_in_another_directory_than_the_keys(tmp_path: Path) -> None:
    """The key lies where the projector alone reads it, the ring where all auditors do."""
    keys, data = tmp_path / "keys", tmp_path / "data"
    keys.mkdir()
    data.mkdir()
    key, ring = keys / "head.key", data / "head.pub"
    signer = Signer.of(key, ring_file=ring)
    signer.publish(ring)
    new = key_change.request_rotation(key)

    changed = key_change.prepare(signer, 1, b"\0" * 32, 1).complete()

    assert changed.key_id == new == public_key(ring).newest.id
    assert Signer.of(key, ring_file=ring).public.newest.id == new
    assert [path.name for path in keys.iterdir()] == ["head.key"]
    assert [path.name for path in data.iterdir()] == ["head.pub"]
    key.unlink()
    with pytest.raises(KeyRingBroken, match=r"head\.key is missing"):
        Signer.of(key, ring_file=ring)
