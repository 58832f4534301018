"""Signed statements about keys of the log: a handover from one to the next, a retirement.

The signed text of each kind begins differently, so that a signature is valid for one kind only.
"""

import base64
import hashlib
from typing import Protocol, TypeAlias

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from joulie_bus.core.formats import in_force

_VERSION = in_force("statement")
HANDOVER, RETIREMENT = f"joulie-handover/{_VERSION}", f"joulie-retirement/{_VERSION}"


class Checker(Protocol):
    """Verifies signatures: a public key, or a secret."""

    def verify(self, signature: bytes, data: bytes) -> None:
        """Raises InvalidSignature."""
        ...


class Handover(msgspec.Struct, frozen=True, kw_only=True, tag_field="format", tag=HANDOVER):
    """After `pos` the new key signs. A handover is also a head at `pos`, signed by both keys."""

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
        fields = f"{self.pos}\n{self.hash.hex()}\n{self.signed_at}\n{keys}\n"
        return f"{HANDOVER}\n{fields}".encode()

    @property
    def is_genuine(self) -> bool:
        is_old = has_signed(ed25519_of(self.old), self.old_signature, self.text)
        return is_old and has_signed(ed25519_of(self.new), self.new_signature, self.text)


class Retirement(msgspec.Struct, frozen=True, kw_only=True, tag_field="format", tag=RETIREMENT):
    """The key is compromised: heads that it signed after `since` need confirmation."""

    key_id: str
    since: int
    pos: int  # the newest head when the retirement was signed
    signed_at: int
    by: str  # the id of a later key
    signature: bytes = b""

    @property
    def text(self) -> bytes:
        fields = f"{self.key_id}\n{self.since}\n{self.pos}\n{self.signed_at}\n{self.by}\n"
        return f"{RETIREMENT}\n{fields}".encode()


KeyStatement: TypeAlias = Handover | Retirement


def has_signed(key: Checker, signature: bytes, text: bytes) -> bool:
    try:
        key.verify(signature, text)
    except InvalidSignature:
        return False
    return True


def ed25519_of(raw: bytes) -> Checker:
    """The public key; malformed bytes give a checker that rejects every signature."""
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


def decode_key(data: bytes) -> KeyStatement:
    statement: KeyStatement = msgspec.json.decode(data, type=KeyStatement)
    return statement
