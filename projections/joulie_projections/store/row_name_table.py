"""The table of the names of rows: which node had each row, from which position on.

The projector adds to it with each commit.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, func, select, text

from joulie_projections.fold.commit import FirstBinding
from joulie_projections.state.rows import decode
from joulie_projections.state.state import NodeState
from joulie_projections.store.statements import InsertRows, apply_change
from joulie_projections.store.tables import STATE_TABLES, row_name
from joulie_projections.twin.row_names import UNKNOWN, RowName, RowNames

_KEYS = ("generation", "position", "ordinal")
_IN_ORDER = (row_name.c.position, row_name.c.generation)
# Of each row the newest name by a position, by one seek per row.
_NAMES_BY = text(
    "WITH RECURSIVE held(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM held WHERE n < :top) "
    "SELECT n, (SELECT name FROM row_name WHERE ordinal = n AND position <= :position "
    "ORDER BY position DESC, generation DESC LIMIT 1) AS name FROM held"
)


def insert_names(named: Sequence[RowName]) -> InsertRows:
    return InsertRows(row_name.name, RowName._fields, named, _KEYS, is_generational=True)


def newest_change(db: Connection) -> int:
    """The position at which a row was given to a node last."""
    return db.scalar(select(func.max(row_name.c.position))) or 0


def changes_after(db: Connection, position: int, last: int) -> list[RowName]:
    columns = [row_name.c[name] for name in RowName._fields]
    inside = row_name.c.position.between(position + 1, last)
    return [
        RowName._make(row)
        for row in db.execute(select(*columns).where(inside).order_by(*_IN_ORDER))
    ]


def names_between(db: Connection, first: int, last: int) -> RowNames:
    """The names at all positions of the range."""
    base = [RowName(first, ordinal, name) for ordinal, name in _names_by(db, first).items()]
    return RowNames(first, last, [*base, *changes_after(db, first, last)])


def _names_by(db: Connection, position: int) -> dict[int, str]:
    top = db.scalar(select(func.max(row_name.c.ordinal)))
    if top is None:
        return {}
    found = db.execute(_NAMES_BY, {"top": top, "position": position})
    return {ordinal: name for ordinal, name in found if name is not None}


def had_row(db: Connection, bound: FirstBinding, position: int) -> bool:
    """Whether the node of a binding had its row already at the position."""
    by_then = (row_name.c.ordinal == bound.ordinal) & (row_name.c.position <= position)
    newest = select(row_name.c.name).where(by_then).order_by(*(at.desc() for at in _IN_ORDER))
    return db.scalar(newest.limit(1)) == bound.node


def name_rows_of(db: Connection, generation: int, position: int) -> None:
    """Names the rows of another generation: answers from the position itself may mean either."""
    before, now = _names_by(db, position), _names_now(db, generation)
    changed = [row for row in before | now if before.get(row) != now.get(row, before.get(row))]
    named = [RowName(position, row, UNKNOWN) for row in changed]
    named += [RowName(position + 1, row, now[row]) for row in changed]
    _insert(db, named, generation)


def _insert(db: Connection, named: Sequence[RowName], generation: int) -> None:
    if named:
        apply_change(db, insert_names(named), generation)


def _names_now(db: Connection, generation: int) -> dict[int, str]:
    nodes = STATE_TABLES["node"]
    found = db.execute(select(nodes.c.key, nodes.c.body).where(nodes.c.generation == generation))
    held = ((key, decode("node", body)) for key, body in found)
    return {state.ordinal: key for key, state in held if isinstance(state, NodeState)}
