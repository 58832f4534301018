"""Batch manifests: the messages of a commit, with a hash over all and a hash chain."""

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

    @property
    def count(self) -> int:
        return self.last - self.first + 1


class Manifest(NamedTuple):
    p_from: int
    p_to: int
    ranges: tuple[Range, ...]  # in merge order, which is the order of positions
    facts_hash: bytes
    state_digest: bytes
    prev: bytes
    head: bytes
    committed_at: int
    fold_version: str = CODE_VERSION


def rechained(manifest: Manifest) -> Manifest:
    """The manifest with the head that follows from its other fields."""
    return manifest._replace(head=head_after(manifest))


def head_after(manifest: Manifest) -> bytes:
    """The head that follows from the other fields."""
    first, last, ranges, root, digest, prev, _, committed_at, fold_version = manifest
    chained = (first, last, ranges, root, digest, b"", b"", committed_at, fold_version)
    return hashlib.sha256(prev + msgspec.msgpack.encode(chained)).digest()


def hash_of_all(values: Sequence[bytes]) -> bytes:
    """A hash of the hashes of all values: the hashes of the others prove one value alone.

    The first byte keeps the two kinds of hashes distinct, as in RFC 6962.
    """
    return hashlib.sha256(_ALL + b"".join(_hashes(values))).digest()


_ONE, _ALL = hashlib.sha256(b"\x00"), b"\x01"


def _hashes(values: Sequence[bytes]) -> list[bytes]:
    """Copies of a hash that has its first byte are a sixth faster than new ones: verification makes
    one for each message."""
    copied, digests = _ONE.copy, list[bytes]()
    for value in values:
        made = copied()
        made.update(value)
        digests.append(made.digest())
    return digests
