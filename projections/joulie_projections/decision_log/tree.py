"""The Merkle tree over the entries of the log, in the database: the roots of its whole tiles.

The leaves are the hashes of the entries. Tiles are stored with the head that signs them.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, Engine, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from joulie_projections.chain.cut_edge import edge_of
from joulie_projections.chain.keyring import Key, Ring
from joulie_projections.chain.merkle import TILE, Frontier, frontier_of
from joulie_projections.chain.note import LOG_KEY, LogCheckpoint, VerifierKey, parse_checkpoint
from joulie_projections.store.store import read_cuts
from joulie_projections.store.tables import cosigned, decision, tree_tile

AT_ONCE = 50_000  # hashes in memory


def read(db: Connection, pos: int) -> Frontier | None:
    """Of the entries up to `pos`, as stored; None if a part is missing."""
    tiles = list(db.scalars(select(tree_tile.c.root).order_by(tree_tile.c.number)))
    if len(tiles) < pos // TILE:
        return None
    edge = edge_of(read_cuts(db), tiles)
    found = frontier_of(pos, tiles, lambda first, last: _hashes(db, first, last), edge)
    return found if found.size == pos else None


def computed(db: Connection, pos: int) -> Frontier | None:
    """Of the entries up to `pos`, from their hashes; None if the log was trimmed."""
    found = Frontier()
    for first in range(1, pos + 1, AT_ONCE):
        found.extend(_hashes(db, first, min(pos, first + AT_ONCE - 1)))
    return found if found.size == pos else None


def _hashes(db: Connection, first: int, last: int) -> list[bytes]:
    between = decision.c.pos.between(first, last)
    return list(db.scalars(select(decision.c.hash).where(between).order_by(decision.c.pos)))


def put_tiles(db: Connection, first: int, roots: Sequence[bytes]) -> None:
    """Stores the roots of the tiles from number `first` on, instead of any that are there."""
    if not roots:
        return
    dialect = postgresql if db.dialect.name == "postgresql" else sqlite
    put = dialect.insert(tree_tile)
    put = put.on_conflict_do_update(index_elements=["number"], set_={"root": put.excluded.root})
    db.execute(put, [{"number": at, "root": root} for at, root in enumerate(roots, first)])


def verifier_of(ring: Ring, key: Key) -> VerifierKey:
    """A key of the log as witnesses know it."""
    return VerifierKey(ring.origin, LOG_KEY, key.raw)


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
