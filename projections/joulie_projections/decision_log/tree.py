"""The Merkle tree over the entries of the log, in the database.

It holds the roots of whole tiles, and with each checkpoint the subtrees beside the last whole tile.
The leaves are the hashes of the entries. The tree of a log that was trimmed before it had a tree
begins at the entry of the cut, whose hash covers all entries before it.
"""

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import Connection, Engine, insert, select, update

from joulie_projections.chain.keyring import Key, Ring
from joulie_projections.chain.merkle import TILE, Frontier
from joulie_projections.chain.note import (
    LOG_KEY,
    LogCheckpoint,
    Signature,
    VerifierKey,
    checkpoint_of,
    parse_checkpoint,
)
from joulie_projections.decision_log.heads import Signer
from joulie_projections.store.store import read_cut
from joulie_projections.store.tables import cosigned, decision, tree_head, tree_tile

AT_ONCE = 50_000  # entries in one transaction, when an existing log gets its tree


class Growth(NamedTuple):
    """The tree in memory, and the last entry before it."""

    base: int
    frontier: Frontier

    @property
    def pos(self) -> int:
        return self.base + self.frontier.size

    def copied(self) -> "Growth":
        return Growth(self.base, Frontier(self.frontier.size, self.frontier.roots))


def read(db: Connection) -> Growth:
    """The tree as stored; starts one if there is none."""
    newest = db.execute(select(tree_head).order_by(tree_head.c.pos.desc()).limit(1)).first()
    if newest is None:
        cut = read_cut(db)
        base = cut.pos - 1 if cut else 0
        db.execute(insert(tree_head).values(pos=base, base=base, edge=b"", note=b""))
        return Growth(base, Frontier())
    tiles = list(db.scalars(select(tree_tile.c.root).order_by(tree_tile.c.number)))
    size = newest.pos - newest.base
    if len(tiles) > size // TILE:  # tiles that were added after the newest checkpoint
        return Growth(newest.base, Frontier.of_tiles(len(tiles) * TILE, tiles, b""))
    return Growth(newest.base, Frontier.of_tiles(size, tiles, newest.edge))


def grow(db: Connection, grown: Growth, last: int) -> bool:
    """Adds entries up to `last`; False if there are more than fit one transaction."""
    frontier, is_whole = grown.frontier, last - grown.pos <= AT_ONCE
    if not is_whole:
        last = grown.pos + AT_ONCE - (frontier.size + AT_ONCE) % TILE
    first, number = grown.pos + 1, frontier.size // TILE
    between = decision.c.pos.between(first, last)
    hashes = list(db.scalars(select(decision.c.hash).where(between).order_by(decision.c.pos)))
    if len(hashes) != last - first + 1:  # trimmed before they were added
        return False
    tiles = frontier.extend(hashes)
    if tiles:
        rows = [{"number": at, "root": root} for at, root in enumerate(tiles, number)]
        db.execute(insert(tree_tile), rows)
    return is_whole


def origin_of(db: Connection, ring: Ring) -> str:
    """The name of the log for witnesses. It stays the same after a change of keys."""
    newest = newest_checkpoint(db)
    return newest.origin if newest is not None else default_origin(ring)


def default_origin(ring: Ring) -> str:
    return f"joulie/{ring.first.id}"


def verifier_of(ring: Ring, key: Key) -> VerifierKey:
    """A key of the log as witnesses know it."""
    return VerifierKey(default_origin(ring), LOG_KEY, key.raw)


def newest_checkpoint(db: Connection) -> LogCheckpoint | None:
    signed = select(tree_head.c.note).where(tree_head.c.note != b"")
    note = db.scalar(signed.order_by(tree_head.c.pos.desc()).limit(1))
    return parse_checkpoint(note) if note else None


def signed_checkpoint(db: Connection, grown: Growth, signer: Signer) -> LogCheckpoint:
    """Signs the tree as it is, and keeps the checkpoint."""
    frontier = grown.frontier
    origin = origin_of(db, signer.public)
    made = checkpoint_of(origin, frontier.size, frontier.root, grown.base)
    key = VerifierKey(made.origin, LOG_KEY, signer.raw)
    made = made.with_signatures([Signature(key.name, key.hash, signer.signature(made.text))])
    values = {"base": grown.base, "edge": frontier.edge, "note": made.note}
    db.execute(insert(tree_head).values(pos=grown.pos, **values))
    return made


def keep_cosigned(engine: Engine, notes: Mapping[str, LogCheckpoint]) -> None:
    """Keeps the newest checkpoint that each witness, named by its key, cosigned."""
    with engine.begin() as db:
        known = {key: parse_checkpoint(note) for key, note in db.execute(select(cosigned))}
        for key, checkpoint in notes.items():
            values = {"note": checkpoint.note}
            if key not in known:
                db.execute(insert(cosigned).values(witness=key, **values))
            elif known[key].size <= checkpoint.size:
                db.execute(update(cosigned).where(cosigned.c.witness == key).values(**values))
