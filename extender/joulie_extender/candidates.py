"""The list of names in a request, and what can be kept of it for the next one. Pure.

kube-scheduler asks twice per pod: prioritize names, byte for byte, the nodes that filter has just
let through. So lists are remembered by their bytes: no second decoding, no second looking up.
"""

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from itertools import compress, repeat

import msgspec
import numpy as np
import numpy.typing as npt

from joulie_bus.events import Candidates
from joulie_projections.board import Board, Ints

Digits = npt.NDArray[np.uint8]

REMEMBERED = 8  # lists: a few schedulers, each with what it asked and what it was answered
KNOWN = 50_000  # node names, the newest; so many that only invented ones are forgotten
_HIGHEST = 100
_WIDTH = 3
_encode = msgspec.json.Encoder().encode
# Every score right-aligned in three places: JSON allows blanks before a number, and numbers of one
# width can be written into a reply that is otherwise ready.
_DIGITS: Digits = np.frombuffer(
    b"".join(b"%3d" % score for score in range(_HIGHEST + 1)), np.uint8
).reshape(-1, _WIDTH)


def rows_by_name(board: Board, names: Sequence[str]) -> Ints:
    return np.fromiter(map(board.rows.get, names, repeat(0)), np.int64, len(names))


def candidates_of(names: Sequence[str], rows: Ints) -> Candidates:
    """Four bytes a node: its ordinal, which never changes; names only of those we do not know."""
    strangers = [names[at] for at in np.flatnonzero(rows == 0).tolist()]
    return Candidates(ordinals=(rows - 1).astype("<i4").tobytes(), strangers=strangers)


class Names:
    """One list, in its order, with the bytes that it came in."""

    def __init__(self, raw: bytes, names: list[str]) -> None:
        self.raw = raw
        self.tail = b',"Nodes":null,"NodeNames":' + raw + b"}"
        self.names = names
        self._mapping: object = None
        self._rows: Ints = np.zeros(0, np.int64)
        self._candidates = Candidates(ordinals=b"")
        self._card: ScoreCard | None = None

    @classmethod
    def of(cls, names: list[str]) -> "Names":
        return cls(_encode(names), names)

    def __len__(self) -> int:
        return len(self.names)

    def rows_on(self, board: Board) -> Ints:
        if self._mapping is not board.rows:
            self._rows = rows_by_name(board, self.names)
            self._candidates = candidates_of(self.names, self._rows)
            self._mapping = board.rows
        return self._rows

    def candidates_on(self, board: Board) -> Candidates:
        self.rows_on(board)
        return self._candidates

    def where(self, passed: Sequence[bool]) -> "Names":
        """Those that passed, as the reply lists them."""
        kept = list(compress(self.names, passed))
        return Names(b"[" + b",".join(map(_quoted, kept)) + b"]", kept)

    @property
    def card(self) -> "ScoreCard":
        if self._card is None:
            self._card = ScoreCard(self.raw, self.names)
        return self._card


class ScoreCard:
    """A reply of prioritize in which only the numbers are missing.

    Each host stands there once: kube-scheduler would add a second score to the first.
    """

    def __init__(self, raw: bytes, names: Sequence[str]) -> None:
        self._once = _first_places(names)
        if self._once is None and _is_plain(raw, len(names)):
            inner = raw.strip()[1:-1].strip()
            ends = np.flatnonzero(np.frombuffer(inner + b",", np.uint8) == ord(","))
            body = inner.replace(b'",', b'"' + _SCORE + b"," + _HOST)
        else:
            once = range(len(names)) if self._once is None else self._once.tolist()
            quoted = [_quoted(names[at]) for at in once]
            ends = np.cumsum([len(each) + 1 for each in quoted], dtype=np.int64) - 1
            body = (_SCORE + b"," + _HOST).join(quoted)
        self.repeated = len(names) - len(ends)
        step = len(_HOST) + len(_SCORE)
        places = ends + (1 + np.arange(len(ends))) * step - _WIDTH
        self._places = places[:, None] + np.arange(_WIDTH)
        whole = b"[" + _HOST + body + _SCORE + b"]" if len(ends) else b"[]"
        self._blank: Digits = np.frombuffer(whole, np.uint8)

    def filled(self, scores: Ints) -> bytes:
        reply = self._blank.copy()
        reply[self._places] = _DIGITS[scores if self._once is None else scores[self._once]]
        return reply.tobytes()


def _first_places(names: Sequence[str]) -> Ints | None:
    """Where each name stands first; None if none stands twice."""
    if len(set(names)) == len(names):
        return None
    first = {name: at for at, name in reversed(list(enumerate(names)))}
    return np.sort(np.fromiter(first.values(), np.int64, len(first)))


def _is_plain(raw: bytes, count: int) -> bool:
    """Every comma parts two names, and no name needs a backslash: the list as Go writes it."""
    is_tight = raw.count(b'","') == raw.count(b",") == count - 1
    return is_tight and raw.count(b'"') == 2 * count and b"\\" not in raw


_HOST, _SCORE = b'{"Host":', b',"Score":' + b" " * _WIDTH + b"}"


class Remembered:
    """The last few lists. They are compared whole: equal bytes are equal lists."""

    def __init__(self) -> None:
        self._lists: deque[Names] = deque(maxlen=REMEMBERED)

    def ending(self, body: bytes) -> Names | None:
        """The list that this body ends with."""
        return next((known for known in self._lists if body.endswith(known.tail)), None)

    def keep(self, names: Names) -> Names:
        """The list that is remembered: the one that was known, if there is one of these bytes."""
        for known in self._lists:
            if known.raw == names.raw:
                return known
        self._lists.appendleft(names)
        return names


@lru_cache(maxsize=KNOWN)
def _quoted(name: str) -> bytes:
    """The name as JSON, made once per node."""
    return _encode(name)


def refused(names: Sequence[str], passed: Sequence[bool], reason: str) -> bytes:
    """`{"n1":"because","n2":"because"}`: all with the one reason."""
    because = b":" + _encode(reason)
    out = [_quoted(n) + because for n, fits in zip(names, passed, strict=True) if not fits]
    return b"{" + b",".join(out) + b"}"
