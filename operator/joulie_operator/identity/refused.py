"""Tokens that were refused, so that no client makes the service ask the API server repeatedly.

No I/O, no clock. A token is remembered by its hash. A client can invent any number of tokens, so
that each address may also have only so many refused reviews.
"""

from typing import NamedTuple

REFUSED_S = 30.0  # so long a refused token is refused without a review
MOST_TOKENS = 20_000
AT_FIRST = 20.0  # refused reviews of one address, for example while its node is new
EACH_S = 0.2  # and so many more each second
MOST_ADDRESSES = 20_000


class _Known(NamedTuple):
    why: str
    until_s: float


class _Left(NamedTuple):
    reviews: float
    at_s: float


class Refused:
    def __init__(self) -> None:
        self._tokens: dict[bytes, _Known] = {}
        self._left: dict[str, _Left] = {}

    def why(self, token: bytes, address: str, now_s: float) -> str:
        """Why a token needs no review; empty if it needs one."""
        known = self._tokens.get(token)
        if known is not None and now_s < known.until_s:
            return known.why
        if self._left_of(address, now_s) < 1:
            return f"too many tokens from {address} were refused; it may try again in some seconds"
        return ""

    def note(self, token: bytes, address: str, why: str, now_s: float) -> None:
        """A review was refused."""
        self._tokens.pop(token, None)
        self._tokens[token] = _Known(why, now_s + REFUSED_S)
        left = self._left_of(address, now_s) - 1
        self._left.pop(address, None)
        self._left[address] = _Left(left, now_s)
        _bound(self._tokens, MOST_TOKENS)
        _bound(self._left, MOST_ADDRESSES)

    def _left_of(self, address: str, now_s: float) -> float:
        left = self._left.get(address)
        if left is None:
            return AT_FIRST
        return min(AT_FIRST, left.reviews + EACH_S * (now_s - left.at_s))


def _bound(found: dict[bytes, _Known] | dict[str, _Left], most: int) -> None:
    """The one that was noted first goes first."""
    while len(found) > most:
        del found[next(iter(found))]  # type: ignore[arg-type]
