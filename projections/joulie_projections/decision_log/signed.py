"""What is signed about the log: its end at a moment, a handover of keys, a compromised key. Pure.

Each has a text of its own that is signed, so that no signature of one can serve for another.
"""

import base64
import hashlib
from typing import Protocol, TypeAlias

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

HANDOVER, RETIREMENT = "joulie-handover/1", "joulie-retirement/1"


class Checker(Protocol):
    """What tells a genuine signature: the public half of a key, or the key itself."""

    def verify(self, signature: bytes, data: bytes) -> None:
        """Raises InvalidSignature."""
        ...


class Head(msgspec.Struct, frozen=True, kw_only=True):
    pos: int
    hash: bytes
    signed_at: int
    key_id: str
    signature: bytes

    def as_row(self) -> dict[str, object]:
        return msgspec.structs.asdict(self)

    @property
    def text(self) -> bytes:
        return f"joulie-head/1\n{self.pos}\n{self.hash.hex()}\n{self.signed_at}\n".encode()


class Handover(msgspec.Struct, frozen=True, kw_only=True, tag_field="format", tag=HANDOVER):
    """From `pos` on the new key signs. It is a signed head too: of both keys, at that entry."""

    pos: int  # the last entry whose head the old key may sign
    hash: bytes
    signed_at: int
    old: bytes  # public keys, as raw bytes
    new: bytes
    old_signature: bytes = b""
    new_signature: bytes = b""

    @property
    def text(self) -> bytes:
        keys = f"{self.old.hex()}\n{self.new.hex()}"
        said = f"{self.pos}\n{self.hash.hex()}\n{self.signed_at}\n{keys}\n"
        return f"{HANDOVER}\n{said}".encode()

    @property
    def is_genuine(self) -> bool:
        is_old = has_signed(ed25519_of(self.old), self.old_signature, self.text)
        return is_old and has_signed(ed25519_of(self.new), self.new_signature, self.text)


class Retirement(msgspec.Struct, frozen=True, kw_only=True, tag_field="format", tag=RETIREMENT):
    """Another could sign with this key: what it signed behind `since` is not enough any more."""

    key_id: str
    since: int
    pos: int  # of the newest head when it was said
    signed_at: int
    by: str  # the id of a later key
    signature: bytes = b""

    @property
    def text(self) -> bytes:
        said = f"{self.key_id}\n{self.since}\n{self.pos}\n{self.signed_at}\n{self.by}\n"
        return f"{RETIREMENT}\n{said}".encode()


KeyStatement: TypeAlias = Handover | Retirement
Signed: TypeAlias = Head | KeyStatement


def has_signed(key: Checker, signature: bytes, text: bytes) -> bool:
    try:
        key.verify(signature, text)
    except InvalidSignature:
        return False
    return True


def ed25519_of(raw: bytes) -> Checker:
    """A key that cannot be one has signed nothing."""
    try:
        return Ed25519PublicKey.from_public_bytes(raw)
    except ValueError:
        return _NoKey()


class _NoKey:
    def verify(self, signature: bytes, data: bytes) -> None:
        raise InvalidSignature


def raw_of(public: Ed25519PublicKey) -> bytes:
    return public.public_bytes(Encoding.Raw, PublicFormat.Raw)


def key_id_of(raw: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(raw).digest()[:9]).decode()


class _Format(msgspec.Struct, frozen=True):
    format: str = ""


def encode(statement: Signed) -> bytes:
    return msgspec.json.encode(statement)


def decode(data: bytes) -> Head:
    return msgspec.json.decode(data, type=Head)


def decode_key(data: bytes) -> KeyStatement:
    said: KeyStatement = msgspec.json.decode(data, type=KeyStatement)
    return said


def decode_any(data: bytes) -> Signed:
    """Heads have no format: they were all there was at first."""
    if msgspec.json.decode(data, type=_Format).format:
        return decode_key(data)
    return decode(data)
