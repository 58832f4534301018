"""What others added to the tables of the log. It proves nothing, and is named."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from joulie_bus.core.times import MS, utc_text
from joulie_projections.decision_log.foreign import ForeignRow
from joulie_projections.history.history import History

IN_TEXT, IN_JSON = 3, 10_000


class OfOthers(NamedTuple):
    """Rows of the tables of the log that its writer did not write."""

    behind: int = 0  # the end of the log: the projector did not take them
    unsigned_heads: int = 0
    manifests: int = 0  # behind the last position
    moved: int = 0  # by the projector, to the table foreign_row
    rows: Sequence[ForeignRow] = ()  # of these, the ones that were found first

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(_notes_on(self))


def of_others(history: History, unsigned_heads: int) -> OfOthers:
    moved, rows = history.foreign_rows(IN_JSON)
    behind, manifests = history.rows_behind(), history.manifests_behind()
    return OfOthers(behind, unsigned_heads, manifests, moved, tuple(rows))


def as_json(found: OfOthers) -> dict[str, Any]:
    return {**found._asdict(), "rows": [row._asdict() for row in found.rows]}


def _notes_on(found: OfOthers) -> Iterator[str]:
    if found.behind:
        behind = _rows(found.behind)
        yield f"ignored {behind} behind the end of the log, which the projector did not take"
    if found.unsigned_heads:
        heads = _rows(found.unsigned_heads)
        yield f"ignored {heads} of the table head that no key of this log signed"
    if found.manifests:
        manifests = _rows(found.manifests)
        yield f"ignored {manifests} of the table batch behind the last position"
    if found.moved:
        named = found.rows[:IN_TEXT]
        rows = (f"{row.table} {row.pos} at {utc_text(row.found_at // MS)}" for row in named)
        more = f" and {found.moved - len(named)} more" if found.moved > len(named) else ""
        moved = _rows(found.moved)
        what = f"the projector moved {moved} that it did not write to the table foreign_row"
        yield f"{what}: {', '.join(rows)}{more}"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"
