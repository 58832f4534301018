"""An index of all node names: finds the rows of a list at once, and encodes the reply at once.

Looking up five hundred names one by one costs as many cache misses. As one array they cost a dozen
vectorized steps, however many there are.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from joulie_extender.protocol.lookup import (
    WORD,
    Bytes,
    EqualLengthLookup,
    Lookup,
    MixedLengthLookup,
)
from joulie_extender.protocol.mixing import Words
from joulie_extender.protocol.spans import (
    AS_WRITTEN,
    BETWEEN,
    EqualLengthSpans,
    MixedLengthSpans,
    Spans,
)
from joulie_projections.twin.arrays import Ints

LONGEST = 128  # bytes of a name; with longer names the index is disabled
_BLANK = ord(" ")
_HOST, _SCORE = b'{"Host":"', b',"Score":   },'
_HIGHEST = 100
# The last eight bytes of a line, for each score. Right-aligned in three places: JSON allows blanks
# before a number, and numbers of one width can be written into a reply that is otherwise ready.
_TAILS: Words = np.frombuffer(
    b"".join(b'e":%3d},' % score for score in range(_HIGHEST + 1)), np.uint64
)


class NameMatch(NamedTuple):
    """A list of names that are all known, with their rows."""

    spans: Spans
    rows: Ints
    ordinals: bytes  # four for each, as the log has them


class NameIndex:
    """The node names of the twins' columns, valid until a node is added or removed."""

    def __init__(self, rows: Mapping[str, int]) -> None:
        self.rows = rows
        raw = msgspec.json.encode(list(rows))
        spans = MixedLengthSpans.cut(raw) if rows else None
        # A name with a JSON escape differs from its bytes.
        self._is_disabled = spans is None or b"\\" in raw or spans.lengths().max() > LONGEST
        if spans is not None and not self._is_disabled:
            at = np.fromiter(rows.values(), np.int64, len(rows))
            self._lay_out(spans, at)

    def _lay_out(self, spans: MixedLengthSpans, at: Ints) -> None:
        height, longest = int(at.max()) + 1, int(spans.lengths().max())
        words = spans.words(-(-(longest + len(BETWEEN)) // WORD) * WORD)
        assert words is not None  # as wide as the longest
        self._ordinals = np.arange(-1, height - 1, dtype="<i4")
        self._lines = _lines(words.view(np.uint8), at)
        even = EqualLengthSpans.cut(spans.raw) if spans.lengths().min() == longest else None
        uniform = None if even is None else EqualLengthLookup.of(self.rows, even, at)
        self._lookup: Lookup = uniform or MixedLengthLookup(self.rows, words, at)

    def find(self, raw: bytes) -> "NameMatch | None":
        """None if a name is unknown, or the list is not in the form that kube-scheduler writes."""
        if self._is_disabled or not (raw.startswith(b'["') and raw.endswith(b'"]')):
            return None  # not in the form that kube-scheduler writes
        for cut in AS_WRITTEN:
            spans = cut(raw)
            rows = None if spans is None else self._lookup.find(spans)
            if spans is not None and rows is not None:
                return NameMatch(spans, rows, self._ordinals.take(rows).tobytes())
        return None

    def host_priorities(self, rows: Ints, scores: Ints) -> bytes | None:
        """The reply of prioritize; None if a row is unknown or occurs twice.

        kube-scheduler would add a second score of a node to the first.
        """
        if self._is_disabled or not len(rows) or np.count_nonzero(rows) < len(rows):
            return None
        if np.bincount(rows).max() > 1:
            return None
        lines = self._lines.take(rows, axis=0)
        lines[:, -1] = _TAILS.take(scores)
        lines.view(np.uint8)[-1, -1] = ord("]")
        return b"[" + lines.tobytes()


def _lines(names: Bytes, at: Ints) -> Words:
    """`{"Host":"n1"    ,"Score":   },` for each row, all of one width."""
    count, width = names.shape
    whole = -(-(len(_HOST) + width + len(_SCORE)) // WORD) * WORD
    lines = np.full((int(at.max()) + 1, whole), _BLANK, np.uint8)
    lines[:, : len(_HOST)] = np.frombuffer(_HOST, np.uint8)
    quoted = np.where(names > 0, names, _BLANK)
    # Of the `","` behind a name, its own quotation mark alone.
    ends = (names > 0).sum(axis=1)
    for back in (1, 2):
        quoted[np.arange(count), ends - back] = _BLANK
    lines[at, len(_HOST) : len(_HOST) + width] = quoted
    lines[:, -len(_SCORE) :] = np.frombuffer(_SCORE, np.uint8)
    return lines.view(np.uint64)
