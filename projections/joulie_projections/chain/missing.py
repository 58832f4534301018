"""The proof that a replica promised a message which the log lacks, or has with another content.

It needs nothing of Joulie but its forms: the key of a life of the replica, the hashes of its
messages between two promises, the promise over them, and a head of the log that has read further
than the place of the message in its stream.
"""

from typing import Literal

import msgspec

from joulie_bus.core.formats import in_force
from joulie_bus.errors import Undecodable
from joulie_bus.events import PromiseKey, codec
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.head import Head, head_in
from joulie_projections.chain.promise import Promised, covers, hash_of, key_in, signed_end_in

FOLDER = "missing"  # of the proofs, within the directory of a spool
What = Literal["missing", "other"]
FORMAT = f"joulie-missing/{in_force('missing')}"


class MissingProof(msgspec.Struct, frozen=True, kw_only=True, tag_field="format", tag=FORMAT):
    """As a file: JSON, bytes in base64."""

    what: What
    id: str
    hash: bytes
    entry: int | None = None  # that has the id, and another content
    key: bytes  # the first message of this life of the replica
    hashes: list[tuple[str, bytes]]  # of the messages between two promises, in their order
    promise: bytes  # the message over them: a promise, or the key of the next life
    head: str  # the first head that must have it
    stored_by: int  # the sequence of its stream by which the broker had stored it

    @property
    def promised(self) -> Promised:
        return Promised(self.id, self.hash)

    @property
    def log_head(self) -> Head | None:
        return head_in(self.head.encode())


class Signer(msgspec.Struct, frozen=True):
    """What signs a proof: the id of its message, when, and the key."""

    id: str
    at: int | None  # None: the next life names the messages, and does not sign them
    public: bytes


def encode(proof: MissingProof) -> bytes:
    return msgspec.json.format(msgspec.json.encode(proof)) + b"\n"


def decode(data: bytes) -> MissingProof:
    """Raises msgspec.DecodeError."""
    return msgspec.json.decode(data, type=MissingProof)


class NoProof(ValueError):
    """The reason why a proof proves nothing."""


def signer_of(proof: MissingProof) -> Signer:
    """Raises NoProof."""
    where = f"the proof about {proof.id}"
    try:
        key_id, key = key_in(proof.key, where)
        if Promised(key_id, b"").life != proof.promised.life:
            raise NoProof(f"its key is that of {key_id}")
        _require_reached(proof)
        if proof.hash in (hash_of(proof.promise), hash_of(proof.key)):
            return Signer(proof.id, None, key.public)  # a promise or a key that is missing itself
        return _signer(proof, key.public, where)
    except Undecodable as error:
        raise NoProof(error.why) from error


def _require_reached(proof: MissingProof) -> None:
    head = proof.log_head
    if head is None:
        raise NoProof("it has no head of a log")
    read = head.commitment.read.get(Stream.DEC)
    if read is None or read.sequence < proof.stored_by:
        raise NoProof(f"its head has not read message {proof.stored_by}")


def _signer(proof: MissingProof, public: bytes, where: str) -> Signer:
    listed = [Promised(*each) for each in proof.hashes]
    if proof.promised not in listed:
        raise NoProof("its hash is not among those that are signed")
    if _is_key(proof.promise, where):
        key_id, key = key_in(proof.promise, where)
        if (key.last, key.covers) != (listed[-1].id, covers(listed)):
            raise NoProof(f"{key_id} names other messages")
        return Signer(key_id, None, public)
    end = signed_end_in(proof.promise, where)
    if not end.is_signed_by(public):
        raise NoProof(f"{end.id} is not signed by the key of its life")
    if (end.last, end.event.covers) != (listed[-1], covers(listed)):
        raise NoProof(f"{end.id} signs other messages")
    return Signer(end.id, end.event.at, public)


def _is_key(message: bytes, where: str) -> bool:
    return codec.open_envelope(message, where).type == PromiseKey.TYPE
