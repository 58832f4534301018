"""What a commit was made of: enough to fold the same facts again and to prove that it was them."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from joulie_bus.streams.subjects import Stream

CODE_VERSION = "3"  # of the folds; a snapshot or digest of another version is not compared


class Range(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive messages of one stream: `first` to `last`, both included."""

    stream: Stream
    first: int
    last: int


class Manifest(NamedTuple):
    p_from: int
    p_to: int
    ranges: tuple[Range, ...]  # in merge order: this is the order of the positions
    merkle_root: bytes
    state_digest: bytes
    prev: bytes
    head: bytes
    committed_at: int
    fold_version: str = CODE_VERSION


def chained(
    prev: bytes, span: tuple[int, int], ranges: Sequence[Range], root: bytes, digest: bytes
) -> bytes:
    body = msgspec.msgpack.encode((span[0], span[1], tuple(ranges), root, digest))
    return hashlib.sha256(prev + body).digest()


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    """RFC 6962: leaf and node hashes cannot be taken for one another."""
    level = [hashlib.sha256(b"\x00" + leaf).digest() for leaf in leaves]
    if not level:
        return hashlib.sha256(b"").digest()
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        paired = [hashlib.sha256(b"\x01" + left + right).digest() for left, right in pairs]
        level = [*paired, *level[len(paired) * 2 :]]  # an odd one out moves up as it is
    return level[0]
