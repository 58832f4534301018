"""Tokens that a review accepted, for some minutes.

No I/O, no clock. All agents connect at once when a broker is back, and need no API server then. A
token is remembered by its hash.
"""

import base64
import binascii
from typing import NamedTuple

import msgspec

KEPT_S = 300.0  # so long a token that was good is good without the API server
MOST_OF_NODE = 8  # reader and writer, each with its newest token and older ones
MOST_KEPT = 50_000


class _Known(NamedTuple):
    node: str
    until_s: float


class Accepted:
    def __init__(self) -> None:
        self._tokens: dict[bytes, _Known] = {}
        self._of_node: dict[str, list[bytes]] = {}

    def node(self, token: bytes, now_s: float) -> str:
        """The node of a token that was accepted lately; empty for others."""
        known = self._tokens.get(token)
        return known.node if known is not None and now_s < known.until_s else ""

    def note(self, token: bytes, node: str, now_s: float, lives_s: float) -> None:
        """`lives_s` is how long the token lives. A node with many tokens displaces its own only."""
        self._forget(token)
        of_node = self._of_node.setdefault(node, [])
        if len(of_node) >= MOST_OF_NODE:
            self._forget(of_node[0])
        while len(self._tokens) >= MOST_KEPT:
            self._forget(next(iter(self._tokens)))
        self._tokens[token] = _Known(node, now_s + min(KEPT_S, lives_s))
        self._of_node.setdefault(node, []).append(token)

    def _forget(self, token: bytes) -> None:
        known = self._tokens.pop(token, None)
        if known is None:
            return
        of_node = self._of_node[known.node]
        of_node.remove(token)
        if not of_node:
            del self._of_node[known.node]


class _Claims(msgspec.Struct):
    exp: float = 0.0


def ends_at(token: str) -> float:
    """When a token ends, by its own words, in seconds since 1970; 0 if it does not say. Only a
    review tells whether they are true."""
    try:
        claims = token.split(".")[1]
        text = base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4))
        return msgspec.json.decode(text, type=_Claims).exp
    except (IndexError, ValueError, binascii.Error, msgspec.DecodeError):
        return 0.0
