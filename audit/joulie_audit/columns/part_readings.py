"""What a fold takes of a part: its plain readings as arrays, and its messages as they are."""

import numpy as np

from joulie_audit.columns.arrays import UNKNOWN, Ints, Names
from joulie_audit.columns.ledger_columns import Arrays
from joulie_audit.columns.messages import Messages
from joulie_audit.recompute.column_part import ColumnPart, PartReadings


def column_part(readings: Arrays, messages: Messages, place: str) -> ColumnPart:
    """`readings` is the typed table of these messages, of which none is lost."""
    first = int(messages.positions[0])
    plain = np.flatnonzero(readings.integers["plain"] == 1)
    ints = {name: column[plain] for name, column in readings.integers.items()}
    rows = ints["position"] - first
    _require_rows(rows, len(messages.positions))
    node, life, source, provider = (
        _named(readings.texts[name], plain) for name in ("node", "life", "source", "provider")
    )
    columns = PartReadings(
        nodes=node.known,
        lives=life.known,
        sources=source.known,
        providers=provider.known,
        row=rows,
        node=node.which,
        life=life.which,
        source=source.which,
        provider=provider.which,
        number=ints["number"],
        at=messages.at[rows],
        late_ms=ints["late_ms"],
        power_mw=ints["power_mw"],
    )
    return ColumnPart(place, first, messages.bodies, messages.records, columns)


def _require_rows(rows: Ints, count: int) -> None:
    if len(rows) and (rows[0] < 0 or rows[-1] >= count or (np.diff(rows) <= 0).any()):
        raise ValueError("its readings are not in the order of its messages")


def _named(names: Names, rows: Ints) -> Names:
    """Of these rows. Null is the empty text."""
    which = names.which[rows]
    if (which != UNKNOWN).all():
        return Names(names.known, which)
    return Names([*names.known, ""], np.where(which == UNKNOWN, len(names.known), which))
