"""Looks whether the signed log has what this replica published, and keeps a proof if it has not.

The broker had stored a message when its hash was kept. A head signs how far the stream of decisions
was read, so the first head that has read further must have an entry with that very message.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from joulie_bus.errors import BusError, StoreError
from joulie_bus.log.protocol import Log
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.secret_files import write_private
from joulie_bus.streams.subjects import Stream, Subjects
from joulie_extender.decision_log.kept_hashes import Kept, KeptHashes, KeptRecord
from joulie_projections.chain import missing
from joulie_projections.chain.head import Head, statement_in
from joulie_projections.chain.missing import MissingProof, What
from joulie_projections.chain.promise import hash_of
from joulie_projections.history.history import History, StoredEntry
from joulie_projections.store.database import Place

CHECK_S = 10.0  # a head is signed as often
AT_ONCE = 50  # records
MOST_PROOFS = 1000  # after a broker lost its streams, no more are needed
MOST_NAMED = 5  # in a line of the log
log = get_logger("extender")


class Mark(NamedTuple):
    """The first records, and the end of the stream when they were kept: their messages are before
    it."""

    records: int
    last: int
    created: str


class _Odd(NamedTuple):
    """A message that the log lacks, or has with another content."""

    kept: Kept
    what: What
    entry: int | None


class LogCheck:
    """Within `joulie extender`, and its only reader of `kept`."""

    def __init__(self, kept: KeptHashes, directory: Path, place: Place, subjects: Subjects) -> None:
        self._kept = kept
        self._subjects = subjects
        self._folder = directory / missing.FOLDER
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._place = place
        self._kept_proofs = sum(1 for _ in self._proofs())
        self._unproved = 0  # beyond MOST_PROOFS
        self._mark: Mark | None = None
        self._failure = ""

    def count(self) -> int:
        """Of messages that the log lacks, or has with another content."""
        return self._kept_proofs + self._unproved

    async def run(self, bus: Log) -> None:
        """Until cancelled. What cannot be read is read again later."""
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                await self.look(bus)
            except (BusError, StoreError, OSError) as error:
                if (why := str(error) or type(error).__name__) != self._failure:
                    log.warning("log_not_checked", why=why, what="it is tried again")
                self._failure = why
            else:
                self._failure = ""

    async def look(self, bus: Log) -> None:
        if self._mark is None and self._kept.records:
            state = await bus.state(Stream.DEC)
            self._mark = Mark(self._kept.records, state.last, state.created)
        head = await _newest_head(bus, self._subjects)
        if head is None:
            return
        await asyncio.to_thread(self._look_again, head)
        if self._mark is None or not self._must_have(head):
            return
        mark, self._mark = self._mark, None
        await self._settle(mark, head)

    def _must_have(self, head: Head) -> bool:
        """Whether it has read up to the mark."""
        read, mark = head.commitment.read.get(Stream.DEC), self._mark
        if read is None or mark is None:
            return False
        if read.created != mark.created:
            self._mark = None  # the stream was created anew: look where it ends now
            return False
        return read.sequence >= mark.last

    async def _settle(self, mark: Mark, head: Head) -> None:
        left, at_once = mark.records, AT_ONCE
        while left > 0:
            portion = self._kept.first(min(left, at_once))
            count = portion.signed
            if count:
                await asyncio.to_thread(self._compare, portion.records[:count], mark, head)
                self._kept.settled(portion, count)
                left, at_once = left - count, AT_ONCE
            elif len(portion.records) < at_once:
                return  # the promise over the last ones follows
            else:
                at_once *= 2

    # --- in a thread ----------------------------------------------------------------------------

    def _compare(self, records: Sequence[KeptRecord], mark: Mark, head: Head) -> None:
        kept = [each for record in records for each in record.kept]
        with History.readable(self._place) as history:
            cut = history.cut()
            trimmed_at = cut.made_at if cut is not None else 0
            entries = history.entries_of([each.id for each in kept], head.pos)
        at = {each.id: record.at for record in records for each in record.kept}
        reported = []
        for odd in _odd_ones(kept, entries):
            if odd.what == "missing" and at[odd.kept.id] <= trimmed_at:
                metrics.PROMISES_UNCHECKED.inc()  # `joulie verify` compares with the archive
            elif not self._file_of(odd.kept.id).exists():
                reported.append(odd.kept.id)
                if self._kept_proofs < MOST_PROOFS:
                    self._kept_proofs += 1
                    self._prove(odd, kept, mark, head)
                else:
                    self._unproved += 1
        if reported:
            where, some = str(self._folder), reported[:MOST_NAMED]
            log.error("answers_missing", answers=len(reported), such_as=some, proofs=where)

    def _prove(self, odd: _Odd, kept: Sequence[Kept], mark: Mark, head: Head) -> None:
        hashes, promise = _interval(odd.kept, kept)
        proof = MissingProof(
            what=odd.what,
            id=odd.kept.id,
            hash=odd.kept.hash,
            entry=odd.entry,
            key=self._kept.key_of(odd.kept.promised.life),
            hashes=hashes,
            promise=promise,
            head=head.note,
            stored_by=mark.last,
        )
        write_private(self._file_of(odd.kept.id), missing.encode(proof).decode())

    def _file_of(self, event_id: str) -> Path:
        return self._folder / f"{event_id.replace(':', '-')}.json"

    def _look_again(self, head: Head) -> None:
        """A projector that was set back has the entries later; a person may remove a proof."""
        proofs = list(self._proofs())
        self._kept_proofs = len(proofs)
        if not proofs:
            return
        with History.readable(self._place) as history:
            entries = history.entries_of([proof.id for _, proof in proofs], head.pos)
        for file, proof in proofs:
            entry = entries.get(proof.id)
            if entry is not None and hash_of(entry.message) == proof.hash:
                file.unlink()
                self._kept_proofs -= 1
                log.warning("answer_found", id=proof.id, entry=entry.pos)

    def _proofs(self) -> Iterator[tuple[Path, MissingProof]]:
        for file in sorted(self._folder.glob("*.json")):
            try:
                yield file, missing.decode(file.read_bytes())
            except (OSError, msgspec.DecodeError) as error:
                log.warning("proof_unreadable", file=str(file), why=str(error))


async def _newest_head(bus: Log, subjects: Subjects) -> Head | None:
    """Only the projector can publish there."""
    stored = await bus.last(Stream.HEADS, subjects.heads)
    found = statement_in(stored.data) if stored is not None else None
    return found if isinstance(found, Head) else None


def _odd_ones(kept: Sequence[Kept], entries: Mapping[str, StoredEntry]) -> Iterator[_Odd]:
    for each in kept:
        entry = entries.get(each.id)
        if each.lost:
            continue
        if entry is None:
            yield _Odd(each, "missing", None)
        elif hash_of(entry.message) != each.hash:
            yield _Odd(each, "other", entry.pos)


def _interval(one: Kept, kept: Sequence[Kept]) -> tuple[list[tuple[str, bytes]], bytes]:
    """The messages between the two promises around it, and the second one."""
    at = next(at for at, each in enumerate(kept) if each.id == one.id)
    if one.signing:
        return [], one.signing
    first = next((at for at in range(at, -1, -1) if kept[at].signing), -1) + 1
    end = next((at for at in range(at, len(kept)) if kept[at].signing), len(kept))
    promise = kept[end].signing if end < len(kept) else b""
    return [(each.id, each.hash) for each in kept[first:end]], promise
