"""Batch manifests: the messages of a commit, with a Merkle root and a hash chain."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from joulie_bus.core.formats import in_force
from joulie_bus.streams.subjects import Stream

CODE_VERSION = in_force("fold")  # snapshots and digests of other versions are not compared


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


def rechained(manifest: Manifest) -> Manifest:
    """The manifest with the head that follows from its other fields."""
    body = msgspec.msgpack.encode(tuple(manifest._replace(prev=b"", head=b"")))
    return manifest._replace(head=hashlib.sha256(manifest.prev + body).digest())


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
