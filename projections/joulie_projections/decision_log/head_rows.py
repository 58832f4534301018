"""Heads in the database, compared with the keys of the log and with its entries."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, insert, select

from joulie_projections.chain.head import Head, head_in
from joulie_projections.chain.keyring import Ring
from joulie_projections.decision_log.anchored import Anchored
from joulie_projections.store.tables import decision, head

COMPARED = 4096  # heads with their entries, when a writer begins


def row_of(made: Head, quota: bytes) -> dict[str, object]:
    said = made.commitment
    values = {"pos": made.pos, "p_to": said.position, "hash": made.hash, "quota": quota}
    return {"id": made.id, "note": made.note.encode(), **values}


def insert_heads(db: Connection, heads: Sequence[Head]) -> None:
    """Those that are not there yet."""
    known = set(db.scalars(select(head.c.id).where(head.c.id.in_([each.id for each in heads]))))
    new = {each.id: each for each in heads if each.id not in known}
    if new:
        db.execute(insert(head), [row_of(each, b"") for each in new.values()])


class LaterHeads(NamedTuple):
    valid: list[Head]
    false: list[bytes]  # the keys of rows that no key of the log signed


def later_heads(db: Connection, pos: int, ring: Ring) -> LaterHeads:
    found = LaterHeads([], [])
    for key, note in db.execute(select(head.c.id, head.c.note).where(head.c.pos > pos)):
        made = head_in(note)
        if made is None or made.id != key or ring.flaw_of(made):
            found.false.append(key)
        else:
            found.valid.append(made)
    return found


def forked_at(db: Connection, known: Anchored, last: int) -> int:
    """The first entry up to `last` of which a signed head names another hash; 0: there is none."""
    past = [each for each in known.heads if each.pos <= last][:COMPARED]
    at = decision.c.pos.in_([each.pos for each in past])
    rows = db.execute(select(decision.c.pos, decision.c.hash).where(at))
    here = {row.pos: row.hash for row in rows}
    differ = (each for each in past if here.get(each.pos, each.hash) != each.hash)
    return min((each.pos for each in differ if known.ring.stands_alone(each)), default=0)


def missing_heads(db: Connection, known: Anchored, first: int, last: int) -> list[Head]:
    """Signed heads of entries of the database, which lacks the heads."""
    signed = [each for each in known.heads if first <= each.pos <= last][:COMPARED]
    there = set(db.scalars(select(head.c.id).where(head.c.id.in_([each.id for each in signed]))))
    missing = [each for each in signed if each.id not in there]
    at = decision.c.pos.in_([each.pos for each in missing])
    rows = db.execute(select(decision.c.pos, decision.c.hash).where(at))
    here = {(row.pos, row.hash) for row in rows}
    fit = (each for each in missing if (each.pos, each.hash) in here)
    return [each for each in fit if known.ring.stands_alone(each)]
