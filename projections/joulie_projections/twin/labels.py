"""The labels of the nodes by row."""

from collections.abc import Mapping
from types import MappingProxyType

NO_LABELS: Mapping[str, str] = MappingProxyType({})


class LabelRows:
    """Immutable. While no label changes, successive columns share one object and its memo."""

    def __init__(self, rows: tuple[Mapping[str, str], ...] = ()) -> None:
        self.rows = rows
        self.memo: dict[object, object] = {}  # results that readers compute once for these labels

    def of(self, row: int) -> Mapping[str, str]:
        return self.rows[row] if row < len(self.rows) else NO_LABELS

    def following(self, changes: Mapping[int, Mapping[str, str]]) -> "LabelRows":
        changed = {row: labels for row, labels in changes.items() if self.of(row) != labels}
        if not changed:
            return self
        rows = list(self.rows)
        rows.extend([NO_LABELS] * (max(changed) + 1 - len(rows)))
        for row, labels in changed.items():
            rows[row] = labels
        return LabelRows(tuple(rows))
