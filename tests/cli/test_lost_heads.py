"""`joulie verify` with heads, entries or messages gone: here, there, or in both places."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from audit_kit import RecordedLog, small_log_in
from bus_kit import CLUSTER, ask
from joulie_bus.broker.embedded import Embedded
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.jetstream.streams import declaration, ensure
from joulie_bus.streams.records import Message
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream
from joulie_cli.main import main
from joulie_projections.chain.head import Head, encode
from joulie_projections.decision_log.heads import Signer
from joulie_projections.store.database import Place
from one_broker import anyio_backend, emptied, server
from projections_kit import Postgres, tamper
from signed_heads import head_at, with_other_signature

__all__ = ["anyio_backend", "server"]  # fixtures
pytestmark = pytest.mark.anyio


@pytest.fixture
async def broker(server: Embedded) -> Embedded:
    return await emptied(server)


class Both(NamedTuple):
    """A log with two heads, at entries 7 and 9, in the database and in the stream."""

    recorded: RecordedLog
    data: Path
    bus: JetStreamLog
    connection: Connection

    def edit(self, *statements: str) -> None:
        for statement in statements:
            tamper(self.recorded.database, statement)

    async def anchor(self, *messages: bytes) -> None:
        told = [Message(CLUSTER.heads, sha256(data).hexdigest(), data) for data in messages]
        await self.bus.publish(told)

    async def anchor_all(self) -> None:
        async with self.recorded.reading() as (history, _):
            await self.anchor(*map(encode, history.heads()))

    async def make_stream(self, **changed: Any) -> None:
        await self.connection.api(f"STREAM.DELETE.{Stream.HEADS}")
        await self.connection.api(
            f"STREAM.CREATE.{Stream.HEADS}", declaration(Stream.HEADS, CLUSTER) | changed
        )
        await ensure(self.connection, CLUSTER)


@pytest.fixture(params=["sqlite", "postgres"])
async def both(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    broker: Embedded,
    bus: JetStreamLog,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncGenerator[Both, None]:
    place: Place = tmp_path / "joulie.db"
    if request.param == "postgres":
        found: Postgres = request.getfixturevalue("postgres")
        place = found.migrated()
        monkeypatch.setenv("DATABASE_URL", place)
    else:
        request.getfixturevalue("database_file")
    address = broker.address_of(Role.AUDITOR)
    for name, value in {
        **address.as_settings(),
        "JOULIE_CLUSTER": CLUSTER.cluster,
    }.items():
        monkeypatch.setenv(name, value)
    async with small_log_in(place, tmp_path) as recorded:
        recorded.builder.signer.publish(tmp_path / "head.pub")
        made = Both(recorded, tmp_path, bus, connection)
        await made.anchor_all()
        yield made


async def nothing(_: Both) -> None:
    pass


def without(*statements: str) -> Callable[[Both], Awaitable[None]]:
    async def change(both: Both) -> None:
        both.edit(*statements)

    return change


async def a_stream_made_anew(both: Both) -> None:
    await both.make_stream()


async def a_stream_that_lost_its_beginning(both: Both) -> None:
    await both.make_stream(first_seq=2)
    async with both.recorded.reading() as (history, _):
        await both.anchor(encode(history.heads()[-1]))


def thief_of(both: Both) -> Signer:
    return Signer.of(both.data / "thief.key")


async def newest_head(both: Both) -> Head:
    async with both.recorded.reading() as (history, _):
        return history.heads()[-1]


async def garbage(_: Both) -> bytes:
    return b"garbage"


async def a_forged_handover(both: Both) -> bytes:
    thief = thief_of(both)
    return encode(thief.hand_over(thief, 9, bytes(32), 1))


async def a_handover_that_names_the_key_of_the_log(both: Both) -> bytes:
    thief = thief_of(both)
    forged = thief.hand_over(thief, 9, bytes(32), 1)
    signer = both.recorded.builder.signer
    return encode(msgspec.structs.replace(forged, old=signer.raw))


async def a_forged_retirement(both: Both) -> bytes:
    signer = both.recorded.builder.signer
    forged = thief_of(both).retire(signer.key_id, 1, 9, 1)
    return encode(msgspec.structs.replace(forged, by=signer.key_id))


async def a_head_of_another_key(both: Both) -> bytes:
    return encode(head_at(thief_of(both), 10**9, bytes(32)))


async def a_head_with_a_bad_signature(both: Both) -> bytes:
    head = await newest_head(both)
    return encode(Head(note=head.note.replace("\n9\n", "\n8\n")))


async def an_unsigned_copy_of_a_head(both: Both) -> bytes:
    return encode(with_other_signature(await newest_head(both)))


NOT_SIGNED: list[Callable[[Both], Awaitable[bytes]]] = [
    garbage,
    a_forged_handover,
    a_handover_that_names_the_key_of_the_log,
    a_forged_retirement,
    a_head_of_another_key,
    a_head_with_a_bad_signature,
    an_unsigned_copy_of_a_head,
]


async def another_entry_signed_with_the_key(both: Both) -> None:
    await both.anchor(encode(head_at(both.recorded.builder.signer, 9, bytes(32))))


async def a_later_entry_signed_with_the_key(both: Both) -> None:
    await both.anchor(encode(head_at(both.recorded.builder.signer, 12, bytes(32))))


async def a_handover_of_another_log_signed_with_the_key(both: Both) -> None:
    signer = both.recorded.builder.signer
    assert isinstance(signer, Signer)
    await both.anchor(encode(signer.hand_over(thief_of(both), 9, bytes(32), 1)))


async def entries_put_behind_the_end(both: Both) -> None:
    """Append entries with correct links."""
    await both.recorded.builder.answer(ask("late-3"))
    both.edit("UPDATE checkpoint SET position = 9 WHERE name = 'decisions'")


NO_ENTRIES, NO_HEADS = "DELETE FROM decision", "DELETE FROM head"
NO_NOTE = "DELETE FROM checkpoint WHERE name = 'decisions'"
LOST = "the database lost {} kept elsewhere: at entry {}"
ENDS = "a signed head covers entry {}, but the log ends at {}"
NOTED = "the log ends at {}, but its writer recorded entry {} as the last"

CASES: dict[str, tuple[Callable[[Both], Awaitable[None]], str, str]] = {
    "nothing": (nothing, "stream", ""),
    "nothing, and no stream to ask": (nothing, "none", ""),
    "one head": (
        without("DELETE FROM head WHERE pos = 7"),
        "stream",
        LOST.format("1 signed head that is", 7),
    ),
    "all heads": (without(NO_HEADS), "stream", LOST.format("2 signed heads that are", "7, 9")),
    "the end, with its head": (
        without("DELETE FROM decision WHERE pos > 7", "DELETE FROM head WHERE pos > 7"),
        "stream",
        ENDS.format(9, 7),
    ),
    "the end, with its head, and no stream to ask": (
        without("DELETE FROM decision WHERE pos > 7", "DELETE FROM head WHERE pos > 7"),
        "none",
        NOTED.format(7, 9),
    ),
    "all entries": (without(NO_ENTRIES), "stream", ENDS.format(7, 0)),
    "all entries, and no stream to ask": (without(NO_ENTRIES), "none", ENDS.format(7, 0)),
    "all entries and all heads": (without(NO_ENTRIES, NO_HEADS), "stream", ENDS.format(7, 0)),
    "all entries and all heads, and no stream to ask": (
        without(NO_ENTRIES, NO_HEADS),
        "none",
        NOTED.format(0, 9),
    ),
    "the writer's note": (without(NO_NOTE), "stream", NOTED.format(9, 0)),
    "the stream's messages": (
        a_stream_made_anew,
        "stream",
        "the database holds 2 signed heads, and their stream none",
    ),
    "the stream's beginning": (
        a_stream_that_lost_its_beginning,
        "stream",
        "the messages before #2 of JOULIE_HEADS were removed",
    ),
    "another entry signed with the key": (
        another_entry_signed_with_the_key,
        "stream",
        "entry 9 does not match its signed head",
    ),
    "a later entry signed with the key": (
        a_later_entry_signed_with_the_key,
        "stream",
        ENDS.format(12, 9),
    ),
    "a handover of another log signed with the key": (
        a_handover_of_another_log_signed_with_the_key,
        "stream",
        "entry 9 does not match its signed head",
    ),
}


@pytest.mark.parametrize("message", NOT_SIGNED)
async def test_a_message_that_no_key_signed_is_noted_and_makes_no_log_corrupted(
    both: Both, capsys: pytest.CaptureFixture[str], message: Callable[[Both], Awaitable[bytes]]
) -> None:
    await both.anchor(await message(both))

    code = await asyncio.to_thread(main, ["verify", "--data", str(both.data)])

    out, _ = capsys.readouterr()
    assert code == 0, out
    noted = "Note: ignored 1 message of JOULIE_HEADS that no key of this log signed (#3 first)"
    assert noted in out


async def test_a_file_of_heads_that_no_key_signed_proves_nothing(
    both: Both, capsys: pytest.CaptureFixture[str]
) -> None:
    file = both.data / "heads.json"
    file.write_bytes(await a_head_of_another_key(both))

    words = ["verify", "--data", str(both.data), "--heads", str(file)]
    code = await asyncio.to_thread(main, words)

    assert code == 1
    assert f"no key of this log signed a head in {file}" in capsys.readouterr().out


async def test_a_first_head_that_its_projector_did_not_publish_is_noted(
    both: Both, capsys: pytest.CaptureFixture[str]
) -> None:
    both.edit("DELETE FROM head WHERE pos = 7")
    await both.make_stream()

    code = await asyncio.to_thread(main, ["verify", "--data", str(both.data)])

    out, _ = capsys.readouterr()
    assert code == 0, out
    assert "Note: the only signed head of the log is not in its stream" in out


async def test_rows_behind_the_recorded_end_are_noted_and_prove_nothing(
    both: Both, capsys: pytest.CaptureFixture[str]
) -> None:
    await entries_put_behind_the_end(both)

    code = await asyncio.to_thread(main, ["verify", "--data", str(both.data)])

    out, _ = capsys.readouterr()
    assert code == 0, out
    assert "9 entries, 2 signed heads" in out
    assert "ignored 2 rows behind the end of the log, which the projector did not take" in out


@pytest.mark.parametrize(("change", "heads", "what"), CASES.values(), ids=CASES)
async def test_missing_heads_entries_and_messages_are_named(
    both: Both,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Both], Awaitable[None]],
    heads: str,
    what: str,
) -> None:
    await change(both)

    words = ["verify", "--heads", heads, "--data", str(both.data)]
    code = await asyncio.to_thread(main, words)

    out, err = capsys.readouterr()
    assert err == ""
    assert code == (1 if what else 0), out
    assert what in out
