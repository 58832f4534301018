"""Heads that were kept outside the database, and the key that signs them."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from joulie_bus import codec
from joulie_bus.errors import NotInTheLog, Undecodable
from joulie_bus.log import Log
from joulie_bus.records import Record
from joulie_bus.subjects import Stream
from joulie_bus.tasks import rung
from joulie_cli.wiring import Wiring
from joulie_projections import heads
from joulie_projections.heads import Checker, Head
from joulie_projections.history import History

PATIENCE_S = 5.0


def public_key(wires: Wiring) -> Checker:
    file = wires.data.public_key
    if not file.exists():
        raise NotInTheLog(
            f"{file} is missing: without the public key no signature can be checked. "
            "The projector writes it when it starts; a copy will do."
        )
    return heads.public_key(file)


async def heads_of(bus: Log) -> list[Head]:
    """From the stream that can be neither purged nor deleted from."""
    return [heads.decode(record.data) for record in await everything(bus, Stream.HEADS)]


async def ids_of(bus: Log) -> dict[str, int]:
    """What the stream of decisions holds, and where."""
    found: dict[str, int] = {}
    for record in await everything(bus, Stream.DEC):
        try:
            envelope = codec.open_envelope(record.data, "decision")
        except Undecodable:
            continue
        found[envelope.id] = record.sequence
    return found


async def everything(bus: Log, stream: Stream) -> list[Record]:
    state = await bus.state(stream)
    found: list[Record] = []
    bell = asyncio.Event()
    wanted = state.last - state.first + 1 if state.last else 0
    async with bus.reading(stream, max(0, state.first - 1), bell=bell) as reader:
        while len(found) < wanted:
            records = reader.take(1000)
            found.extend(records)
            if not records:
                await rung(bell, PATIENCE_S)
    return found


def heads_in(file: Path) -> list[Head]:
    """One head, a list of them, or one per line."""
    content = file.read_bytes() if file.exists() else b""
    try:
        if content.lstrip()[:1] == b"[":
            return msgspec.json.decode(content, type=list[Head])
        return [heads.decode(line) for line in content.splitlines() if line.strip()] or _none(file)
    except msgspec.DecodeError as error:
        raise NotInTheLog(f"{file} holds no heads: {error}.") from error


def _none(file: Path) -> list[Head]:
    raise NotInTheLog(f"{file} holds no heads, or does not exist.")


def head_named(text: str, history: History, anchored: Sequence[Head]) -> Head:
    """A file with a head in it, or the number of the entry that a head was signed at."""
    if not text.isdigit():
        return heads_in(Path(text))[-1]
    known = {head.pos: head for head in (*anchored, *history.heads())}
    if int(text) not in known:
        near = ", ".join(map(str, sorted(known, key=lambda pos: abs(pos - int(text)))[:5]))
        raise NotInTheLog(f"No head was signed at entry {text}. Near it are {near or 'none'}.")
    return known[int(text)]
