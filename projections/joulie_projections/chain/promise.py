"""What a replica promises about its answers: a chain over its messages, and signed ends of it.

Each message of a life of a replica has the SHA-256 of the message that it published before. The
first message of a life has its public key, whose private half is only in the memory of the process.
At most a second later a promise signs the end:

    joulie-promise/1
    extender-0:9f3c21aa:41      the last message
    6f0e...                     its hash
    d91b...                     the SHA-256 over the hashes of the messages since the last promise
    1764072000000000000         when it was signed

So a replica cannot invent a message later, and a holder of the hashes of the messages between two
promises can prove that one of them is not in the log, without any of the others. A promise, and the
key, are proofs of themselves.
"""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from joulie_bus.core.formats import in_force
from joulie_bus.errors import Undecodable
from joulie_bus.events import Promise, PromiseKey, codec
from joulie_bus.events.codec import Envelope
from joulie_projections.chain.signed import ed25519_of, has_signed

NO_HASH = b""
_PROMISE = f"joulie-promise/{in_force('promise')}"
# The first bytes of a message that has `prev`: a map, its first key, and 32 bytes.
_PREV, _PREV_AT = b"\xa4prev\xc4\x20", slice(8, 40)
SIGNING = (Promise.TYPE, PromiseKey.TYPE)


class Promised(NamedTuple):
    """A message of a replica, by its id and its SHA-256."""

    id: str
    hash: bytes

    @property
    def life(self) -> str:
        """producer:boot"""
        return self.id.rpartition(":")[0]


def hash_of(message: bytes) -> bytes:
    return hashlib.sha256(message).digest()


def prev_in(message: bytes) -> bytes:
    """The hash of the message before it; empty if it has none. Decodes nothing."""
    return message[_PREV_AT] if message[1:8] == _PREV else NO_HASH


def covers(messages: Iterable[Promised]) -> bytes:
    return hashlib.sha256(b"".join(each.hash for each in messages)).digest()


def promise_text(last: Promised, over: bytes, at: int) -> bytes:
    return f"{_PROMISE}\n{last.id}\n{last.hash.hex()}\n{over.hex()}\n{at}\n".encode()


class SignedEnd(NamedTuple):
    """A promise, read from its message."""

    id: str  # of its message
    last: Promised
    event: Promise

    def is_signed_by(self, public: bytes) -> bool:
        text = promise_text(self.last, self.event.covers, self.event.at)
        return has_signed(ed25519_of(public), self.event.signature, text)


def signed_end_in(message: bytes, where: str) -> SignedEnd:
    """Raises Undecodable if the message is no promise, or one about another life."""
    envelope, event = _read(message, where)
    if not isinstance(event, Promise):
        raise Undecodable(where, f"{envelope.type} is no promise")
    last = Promised(event.last, envelope.prev)
    if last.life != Promised(envelope.id, b"").life:
        raise Undecodable(where, f"{envelope.id} signs {event.last}, a message of another life")
    return SignedEnd(envelope.id, last, event)


def key_in(message: bytes, where: str) -> tuple[str, PromiseKey]:
    """The id of the message, and the key in it. Raises Undecodable if it has none."""
    envelope, event = _read(message, where)
    if not isinstance(event, PromiseKey):
        raise Undecodable(where, f"{envelope.type} has no key of promises")
    return envelope.id, event


def _read(message: bytes, where: str) -> tuple[Envelope, object]:
    envelope = codec.open_envelope(message, where)
    if envelope.type not in SIGNING:
        raise Undecodable(where, f"{envelope.type} is no promise")
    return envelope, codec.read(envelope, where)
