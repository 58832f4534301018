"""Batch manifests: the messages of a commit, with a Merkle root and a hash chain."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from joulie_bus.streams.subjects import Stream

CODE_VERSION = "6"  # of the folds; snapshots and digests of other versions are not compared


class Range(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive messages of one stream: `first` to `last`, both included."""

    stream: Stream
    first: int
    last: int


class Manifest(NamedTuple):
    p_from: int
    p_to: int
    ranges: tuple[Range, ...]  # in merge order, which is the order of positions
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
    """The Merkle tree hash of RFC 6962, which keeps leaf and node hashes distinct."""
    level = [hashlib.sha256(b"\x00" + leaf).digest() for leaf in leaves]
    if not level:
        return hashlib.sha256(b"").digest()
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        paired = [hashlib.sha256(b"\x01" + left + right).digest() for left, right in pairs]
        level = [*paired, *level[len(paired) * 2 :]]  # an odd last hash moves up unchanged
    return level[0]
