"""Checks the end of the decision log: its hashes, its newest head, and the head at the broker.

`joulie verify` checks the whole log and all signatures. This notices within a minute what changes
the newest entries, or takes entries away: the head at the broker is out of reach of the database's
users.
"""

from joulie_answers.readers.history import HistoryReader
from joulie_audit.chain.entries import EntryRange, walk
from joulie_bus.log.protocol import Log
from joulie_bus.log.whole_stream import messages
from joulie_bus.streams.subjects import Stream
from joulie_console.views.conditions import Condition, log_invalid
from joulie_projections.chain.head import Head, statement_in
from joulie_projections.history.history import NEWEST, History

ENTRIES = 500  # before the newest head
PATIENCE_S = 10.0


class Integrity:
    def __init__(self, bus: Log, history: HistoryReader) -> None:
        self._bus = bus
        self._history = history

    async def flaws(self) -> list[Condition]:
        """None, or the first."""
        published = await self._published()
        return await self._history.run(lambda history: _flaws(history, published))

    async def _published(self) -> Head | None:
        """The newest message at the broker, if it is a head."""
        state = await self._bus.state(Stream.HEADS)
        if not state.last:
            return None
        [newest, *_] = await messages(self._bus, Stream.HEADS, state.last - 1, 1, PATIENCE_S)
        statement = statement_in(newest.data)
        return statement if isinstance(statement, Head) else None


def _flaws(history: History, published: Head | None) -> list[Condition]:
    own = next(history.heads_before(NEWEST), None)
    heads = [head for head in (own, published) if head is not None]
    cut = history.cut()
    for head in heads:
        if cut is not None and head.pos <= cut.pos:
            continue  # the archive has its entry
        entry = history.entry(head.pos)
        if entry is None:
            what = f"The decision log lacks entry {head.pos}, of which a signed head exists."
            return [log_invalid(f"{what} Was the database set back?", str(head.pos))]
        if entry.hash != head.hash:
            what = f"Entry {head.pos} of the decision log is not what its signed head says."
            return [log_invalid(f"{what} Run `joulie verify`.", str(head.pos))]
    last = max((head.pos for head in heads), default=0)
    first = max(1, last - ENTRIES + 1, cut.pos + 1 if cut is not None else 1)
    flaw = walk(history, EntryRange(first, last), set()).flaw if first <= last else None
    if flaw is None:
        return []
    what = f"The decision log is not valid at entry {flaw.place}: {flaw.what}."
    return [log_invalid(f"{what} Run `joulie verify`.", str(flaw.place))]
