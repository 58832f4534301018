"""Where the members of each group of pods run, by the rows of their nodes."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from joulie_projections.twin.arrays import Ints

Members = Mapping[int, int]  # how many, by row


class Gangs:
    """Immutable. While no member comes or goes, successive columns share one object."""

    def __init__(
        self,
        rows: Mapping[int, Mapping[str, int]] = MappingProxyType({}),
        members: Mapping[str, Members] = MappingProxyType({}),
    ) -> None:
        self._rows, self._members = rows, members

    def of(self, gang: str) -> tuple[Ints, Ints]:
        """The rows with members, ascending, and how many each has."""
        found = sorted(self._members.get(gang, {}).items())
        rows, counts = zip(*found, strict=True) if found else ((), ())
        return np.array(rows, np.int64), np.array(counts, np.int64)

    def following(self, changes: Mapping[int, Mapping[str, int]]) -> "Gangs":
        changed = {row: new for row, new in changes.items() if self._rows.get(row, {}) != new}
        if not changed:
            return self
        rows, members = dict(self._rows), dict(self._members)
        for row, new in changed.items():
            for gang in rows.pop(row, {}):
                _put(members, gang, row, 0)
            for gang, count in new.items():
                _put(members, gang, row, count)
            if new:
                rows[row] = new
        return Gangs(rows, members)


def _put(members: dict[str, Members], gang: str, row: int, count: int) -> None:
    others = {at: known for at, known in members.get(gang, {}).items() if at != row}
    found = others | ({row: count} if count else {})
    if found:
        members[gang] = found
    else:
        members.pop(gang, None)
