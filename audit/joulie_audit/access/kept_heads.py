"""Anchored heads, which are stored outside the database, and the keys that sign them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from joulie_bus.errors import NotInTheLog
from joulie_bus.log.protocol import Log
from joulie_bus.log.whole_stream import everything
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.entry import UNREADABLE, entry_of
from joulie_projections.chain.head import Head, Signed, decode_any, statement_in
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.signed import KeyStatement
from joulie_projections.component.wiring import Wiring
from joulie_projections.decision_log import heads
from joulie_projections.history.history import History
from joulie_projections.witness.head_keepers import HeadKeeper


class Anchors(NamedTuple):
    """Signed heads and statements about keys from outside the database."""

    heads: Sequence[Head]
    keys: Sequence[KeyStatement] = ()
    flaw: str = ""  # of the stream they were read from
    notes: Sequence[str] = ()  # on what the stream holds beside them
    whole_from: int | None = None  # every head from this entry to the last one ought to be there


NOTHING = Anchors(())
LARGEST_FILE = 1 << 30


def public_key(wires: Wiring) -> Ring:
    file = wires.data.public_key
    if not file.exists():
        raise NotInTheLog(
            f"{file} is missing: without the public key no signature can be checked. "
            "The projector writes it when it starts; a copy of it is sufficient, "
            "and `joulie verify --key FILE` reads one from elsewhere."
        )
    return heads.public_key(file)


def public_key_in(file: Path) -> Ring:
    """The public key, or the ring of keys, in a file."""
    if not file.is_file():
        raise NotInTheLog(f"{file} is no file. Nothing was checked. Give a copy of head.pub.")
    return heads.public_key(file)


async def anchors_of(bus: Log, ring: Ring) -> Anchors:
    """Read anchors from their stream, from which only the administrator can delete messages."""
    state = await bus.state(Stream.HEADS)
    kept = {
        record.sequence: statement_in(record.data) for record in await everything(bus, Stream.HEADS)
    }
    anchors = _anchors(kept, ring, str(Stream.HEADS))
    if state.first > 1:
        flaw = f"the messages before #{state.first} of {Stream.HEADS} were removed"
        return anchors._replace(flaw=flaw)
    return anchors


def _anchors(kept: Mapping[int, Signed | None], ring: Ring, source: str) -> Anchors:
    """What the keys of the log signed, and a note on the rest: it proves nothing about the log."""
    signed = ring.signed_among(each for each in kept.values() if each is not None)
    known = set(signed)
    strangers = [number for number, each in kept.items() if each not in known]
    return Anchors(
        [each for each in signed if isinstance(each, Head)],
        [each for each in signed if not isinstance(each, Head)],
        notes=_notes_on(strangers, source),
    )


def _notes_on(strangers: Sequence[int], source: str) -> tuple[str, ...]:
    if not strangers:
        return ()
    count = "1 message" if len(strangers) == 1 else f"{len(strangers)} messages"
    what = f"of {source} that no key of this log signed (#{strangers[0]} first)"
    return (f"ignored {count} {what}",)


async def ids_of(bus: Log) -> dict[str, int]:
    """Ids of the entries that the stream of decisions holds, with their sequences."""
    found: dict[str, int] = {}
    for record in await everything(bus, Stream.DEC):
        fields = entry_of(record).fields
        if fields.kind != UNREADABLE:  # the log has those by their sequence
            found[fields.event_id] = record.sequence
    return found


def anchors_in(file: Path, ring: Ring) -> Anchors:
    """Read heads and statements about keys from a file: one value, a list, or one per line."""
    anchors = _anchors(dict(enumerate(_statements_in(file), 1)), ring, str(file))
    if not anchors.heads:
        what = (
            f"no key of this log signed a head in {file}: is it of another log, or of a later key?"
        )
        return anchors._replace(flaw=what)
    return anchors


def anchors_kept(keeper: HeadKeeper, named: str, ring: Ring) -> Anchors:
    """Read heads from a place of HEADS_TO, in which others may write, too."""
    kept = dict(enumerate(map(statement_in, keeper.kept()), 1))
    if not kept:
        raise NotInTheLog(
            f"{named} holds no heads. Nothing was compared. The projector appends them there if "
            "HEADS_TO names it."
        )
    anchors = _anchors(kept, ring, named)
    if not anchors.heads:
        return anchors._replace(flaw=f"no key of this log signed a head in {named}")
    whole_from = min(head.pos for head in anchors.heads) if keeper.is_bounded else 0
    return anchors._replace(whole_from=whole_from)


def _statements_in(file: Path) -> list[Signed]:
    content = _content(file)
    try:
        if content.lstrip()[:1] == b"[":
            lines = [bytes(raw) for raw in msgspec.json.decode(content, type=list[msgspec.Raw])]
        else:
            lines = [line for line in content.splitlines() if line.strip()]
        found = [decode_any(line) for line in lines]
    except msgspec.DecodeError as error:
        raise NotInTheLog(
            f"{file} holds no heads: {error}. Nothing was compared. Name another file."
        ) from error
    if not any(isinstance(each, Head) for each in found):
        raise NotInTheLog(
            f"{file} holds no heads, or does not exist. Nothing was compared. Name a file with "
            "heads, one JSON object on a line; `joulie diff` also takes the entry at which a head "
            "was signed."
        )
    return found


def _content(file: Path) -> bytes:
    """The file may be on storage of others, where a link to a device would never end."""
    if not file.exists():
        return b""
    with file.open("rb") as opened:
        content = opened.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise NotInTheLog(f"{file} holds more than {LARGEST_FILE >> 20} MiB. Nothing was checked.")
    return content


def head_named(text: str, history: History, anchored: Sequence[Head]) -> Head:
    """The head in the named file, or the head signed at the named entry."""
    if not text.isdigit():
        return [each for each in _statements_in(Path(text)) if isinstance(each, Head)][-1]
    known = {head.pos: head for head in (*anchored, *history.heads())}
    if int(text) not in known:
        near = ", ".join(map(str, sorted(known, key=lambda pos: abs(pos - int(text)))[:5]))
        raise NotInTheLog(
            f"No head was signed at entry {text}. Nothing was compared. "
            f"Near it are {near or 'none'}."
        )
    return known[int(text)]
