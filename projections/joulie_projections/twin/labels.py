"""The labels of the nodes, row by row, as long as they stay the same. Pure."""

from collections.abc import Mapping
from types import MappingProxyType

NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Labels:
    """Immutable. While no label changes, boards share the very same one, and what is kept in it."""

    def __init__(self, rows: tuple[Mapping[str, str], ...] = ()) -> None:
        self.rows = rows
        self.memo: dict[object, object] = {}  # what readers compute once for these labels

    def of(self, row: int) -> Mapping[str, str]:
        return self.rows[row] if row < len(self.rows) else NO_LABELS

    def following(self, changes: Mapping[int, Mapping[str, str]]) -> "Labels":
        news = {row: labels for row, labels in changes.items() if self.of(row) != labels}
        if not news:
            return self
        rows = list(self.rows)
        rows.extend([NO_LABELS] * (max(news) + 1 - len(rows)))
        for row, labels in news.items():
            rows[row] = labels
        return Labels(tuple(rows))
