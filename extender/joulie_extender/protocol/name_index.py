"""The rows of the nodes by name, and the lines of their replies, each encoded once.

Names are looked up as they are written in a request, in quotation marks: a name that is found needs
neither decoding nor validation.
"""

from collections.abc import Mapping, Sequence
from itertools import repeat

import msgspec
import numpy as np
import numpy.typing as npt

from joulie_projections.twin.arrays import Ints

_WORD = 8
_HOST, _SCORE = b'{"Host":', b',"Score":   },'
_HIGHEST = 100
Words = npt.NDArray[np.uint64]
# The last eight bytes of a line, for each score. Right-aligned in three places: JSON allows blanks
# before a number, and numbers of one width can be written into a reply that is otherwise ready.
_TAILS: Words = np.frombuffer(
    b"".join(b'e":%3d},' % score for score in range(_HIGHEST + 1)), np.uint64
)


class NameIndex:
    """The node names of the twins' columns, valid until a node is added or removed."""

    def __init__(self, rows: Mapping[str, int]) -> None:
        self.rows = rows
        quoted = list(map(msgspec.json.encode, rows))
        # The parts between commas are the names, since no name of the index has a comma.
        self._rows = {
            name: row for name, row in zip(quoted, rows.values(), strict=True) if b"," not in name
        }
        self._lines = _lines(quoted, list(rows.values())) if rows else None

    def rows_of(self, quoted: Sequence[bytes]) -> Ints:
        """A row for each name in its quotation marks; 0 for an unknown one."""
        return np.fromiter(map(self._rows.get, quoted, repeat(0)), np.int64, len(quoted))

    def host_priorities(self, rows: Ints, scores: Ints) -> bytes | None:
        """The reply of prioritize; None if a row is unknown or occurs twice.

        kube-scheduler would add a second score of a node to the first.
        """
        if self._lines is None or not len(rows) or np.count_nonzero(rows) < len(rows):
            return None
        if np.bincount(rows).max() > 1:
            return None
        lines = self._lines.take(rows, axis=0)
        lines[:, -1] = _TAILS.take(scores)
        lines.view(np.uint8)[-1, -1] = ord("]")
        return b"[" + lines.tobytes()


def _lines(quoted: Sequence[bytes], rows: Sequence[int]) -> Words:
    """`{"Host":"n1"    ,"Score":   },` for each row, all of one width."""
    longest = max(map(len, quoted))
    width = -(-(len(_HOST) + longest + len(_SCORE)) // _WORD) * _WORD - len(_HOST) - len(_SCORE)
    text = b"".join(_HOST + name.ljust(width) + _SCORE for name in quoted)
    known = np.frombuffer(text, np.uint64).reshape(len(rows), -1)
    lines = np.zeros((max(rows) + 1, known.shape[1]), np.uint64)
    lines[rows] = known
    return lines
