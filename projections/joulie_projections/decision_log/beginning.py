"""Where a writer of the log begins: at the newest signed head whose entry the database has.

Everything behind that head is derived again from the stream of decisions. Neither the position that
the database records nor its rows behind the head say how far the stream was read.
"""

import contextlib
import hashlib
import heapq
from collections.abc import Callable, Generator
from typing import NamedTuple

from sqlalchemy import Connection, select

from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.head import Head, head_in
from joulie_projections.chain.log_end import EMPTY, End
from joulie_projections.chain.merkle import Frontier
from joulie_projections.chain.unreadable import UnreadableQuota
from joulie_projections.decision_log import tree
from joulie_projections.decision_log.anchored import Anchored
from joulie_projections.fold.commit import Input
from joulie_projections.store.store import read_cut
from joulie_projections.store.tables import decision, head

AT_ONCE = 100  # heads that are read from the database
_DAMAGED = "the entries up to {} do not lead to the root that their head signs"


class Beginning(NamedTuple):
    head: Head | None  # None: before the first entry
    end: End  # the log as the head signs it
    problem: str = ""  # why nothing that follows it can be signed


def beginning_in(db: Connection, known: Anchored, lost_key: str = "") -> Beginning:
    """`known` are heads from outside of the database. Those of a lost key, which cannot be checked,
    count only if there is no other one (`joulie keys replace`)."""
    if (newest := newest_head(db, known, _has_entry_of)) is not None:
        return _at(db, newest)
    for found in known.heads:
        if found.key_id == lost_key and _has_entry_of(db, found):
            return _at(db, found)
    return Beginning(None, EMPTY)


def newest_head(
    db: Connection, known: Anchored, is_there: Callable[[Connection, Head], bool]
) -> Head | None:
    """The newest signed head, of the stream or of the database, whose content is in the database.

    Its signature comes last: there are many heads.
    """
    with contextlib.closing(_stored_heads(db)) as stored:
        for found in heapq.merge(known.heads, stored, key=_newest_first):
            if is_there(db, found) and known.ring.stands_alone(found):
                return found
    return None


def _newest_first(found: Head) -> int:
    return -found.pos


def _stored_heads(db: Connection) -> Generator[Head, None, None]:
    newest = select(head.c.note).order_by(head.c.pos.desc())
    with db.execute(newest.execution_options(yield_per=AT_ONCE)) as rows:
        for (note,) in rows:
            if (found := head_in(note)) is not None:
                yield found
    cut = read_cut(db)
    if cut is not None and (found := head_in(cut.note)) is not None:
        yield found


def _has_entry_of(db: Connection, found: Head) -> bool:
    here = select(decision.c.hash).where(decision.c.pos == found.pos)
    return db.scalar(here) == found.hash


def _at(db: Connection, found: Head) -> Beginning:
    said = found.commitment
    read = said.read.get(Stream.DEC, Input("", 0))
    grown = tree.read(db, found.pos)
    if grown is None or grown.root != said.root:
        grown = tree.computed(db, found.pos)
    is_whole = grown is not None and grown.root == said.root
    problem = "" if is_whole else _DAMAGED.format(found.pos)
    quota = _quota_at(db, found)
    end = End(found.pos, found.hash, read, said.messages, quota, grown or Frontier())
    return Beginning(found, end, problem)


def _quota_at(db: Connection, found: Head) -> UnreadableQuota:
    """What unreadable messages had used; unused if the database has something else."""
    saved = db.scalar(select(head.c.quota).where(head.c.id == found.id)) or b""
    is_signed = found.commitment.quota == hashlib.sha256(saved).digest()
    return UnreadableQuota(saved if is_signed else b"")
