"""Anchored heads, which are stored outside the database, and the keys that sign them."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from joulie_bus.errors import NotInTheLog
from joulie_bus.log.protocol import Log
from joulie_bus.log.whole_stream import everything
from joulie_bus.streams.subjects import Stream
from joulie_cli.wiring import Wiring
from joulie_projections.chain.entry import UNREADABLE, entry_of
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.signed import Head, KeyStatement, Signed, decode_any
from joulie_projections.decision_log import heads
from joulie_projections.history.history import History


class Anchors(NamedTuple):
    """Signed heads and statements about keys from outside the database."""

    heads: Sequence[Head]
    keys: Sequence[KeyStatement] = ()
    flaw: str = ""  # of the stream they were read from
    notes: Sequence[str] = ()  # on what the stream holds beside them


NOTHING = Anchors(())


def public_key(wires: Wiring) -> Ring:
    file = wires.data.public_key
    if not file.exists() and not heads.is_hmac_secret(wires.data.key):
        raise NotInTheLog(
            f"{file} is missing: without the public key no signature can be checked. "
            "The projector writes it when it starts; a copy of it is sufficient, "
            "and `joulie verify --key FILE` reads one from elsewhere."
        )
    return heads.public_key(file, wires.data.key)


def public_key_in(file: Path) -> Ring:
    """The public key, or the ring of keys, in a file."""
    if not file.is_file():
        raise NotInTheLog(f"{file} is no file. Nothing was checked. Give a copy of head.pub.")
    return heads.public_key(file)


async def anchors_of(bus: Log) -> Anchors:
    """Read anchors from their stream, from which only the administrator can delete messages."""
    state, statements, flaw = await bus.state(Stream.HEADS), list[Signed](), ""
    strangers: list[int] = []
    if state.first > 1:
        flaw = f"the messages before #{state.first} of {Stream.HEADS} were removed"
    for record in await everything(bus, Stream.HEADS):
        try:
            statements.append(decode_any(record.data))
        except msgspec.DecodeError:
            strangers.append(record.sequence)
    return _anchors(statements)._replace(flaw=flaw, notes=_notes_on(strangers))


def _notes_on(strangers: Sequence[int]) -> tuple[str, ...]:
    """Messages that no key signed prove nothing, and so they do not make the log corrupted."""
    if not strangers:
        return ()
    count = "1 message" if len(strangers) == 1 else f"{len(strangers)} messages"
    what = f"of {Stream.HEADS} that no key signed (#{strangers[0]} first)"
    return (f"ignored {count} {what}",)


def _anchors(statements: Sequence[Signed]) -> Anchors:
    signed = [head for head in statements if isinstance(head, Head)]
    return Anchors(signed, [key for key in statements if not isinstance(key, Head)])


async def ids_of(bus: Log) -> dict[str, int]:
    """Ids of the entries that the stream of decisions holds, with their sequences."""
    found: dict[str, int] = {}
    for record in await everything(bus, Stream.DEC):
        fields = entry_of(record).fields
        if fields.kind != UNREADABLE:  # the log has those by their sequence
            found[fields.event_id] = record.sequence
    return found


def anchors_in(file: Path) -> Anchors:
    """Read heads and statements about keys from a file: one value, a list, or one per line."""
    content = file.read_bytes() if file.exists() else b""
    try:
        if content.lstrip()[:1] == b"[":
            lines = [bytes(raw) for raw in msgspec.json.decode(content, type=list[msgspec.Raw])]
        else:
            lines = [line for line in content.splitlines() if line.strip()]
        found = _anchors([decode_any(line) for line in lines])
    except msgspec.DecodeError as error:
        raise NotInTheLog(f"{file} holds no heads: {error}.") from error
    if not found.heads:
        raise NotInTheLog(
            f"{file} holds no heads, or does not exist. Name a file with heads, one JSON object on "
            "a line; `joulie diff` also takes the entry at which a head was signed."
        )
    return found


def head_named(text: str, history: History, anchored: Sequence[Head]) -> Head:
    """The head in the named file, or the head signed at the named entry."""
    if not text.isdigit():
        return anchors_in(Path(text)).heads[-1]
    known = {head.pos: head for head in (*anchored, *history.heads())}
    if int(text) not in known:
        near = ", ".join(map(str, sorted(known, key=lambda pos: abs(pos - int(text)))[:5]))
        raise NotInTheLog(f"No head was signed at entry {text}. Near it are {near or 'none'}.")
    return known[int(text)]
