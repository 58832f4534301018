"""Signed heads: the log's end at a moment, in a form that outlives the database.

Whoever keeps one head can tell for ever whether the log up to there was rewritten.
"""

import base64
import hashlib
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from joulie_bus.embedded import write_private


class Head(msgspec.Struct, frozen=True, kw_only=True):
    pos: int
    hash: bytes
    signed_at: int
    key_id: str
    signature: bytes

    def as_row(self) -> dict[str, object]:
        return msgspec.structs.asdict(self)


def _statement(pos: int, entry_hash: bytes, signed_at: int) -> bytes:
    return f"joulie-head/1\n{pos}\n{entry_hash.hex()}\n{signed_at}\n".encode()


class Signer:
    """An Ed25519 key: the log's writer holds it, anybody may check with its public half."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = key.public_key()
        self.key_id = key_id(self.public)

    @classmethod
    def of(cls, path: Path) -> "Signer":
        """The key in the file; made, readable by its owner alone, if there is none."""
        if not path.exists():
            key = Ed25519PrivateKey.generate()
            pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            write_private(path, pem.decode())
        loaded = load_pem_private_key(path.read_bytes(), password=None)
        if not isinstance(loaded, Ed25519PrivateKey):
            raise TypeError(f"{path} holds another kind of key than Ed25519")
        return cls(loaded)

    def publish(self, path: Path) -> None:
        """The public half, for whoever wants to check."""
        pem = self.public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        path.write_bytes(pem)

    def sign(self, pos: int, entry_hash: bytes, now: int) -> Head:
        signature = self._key.sign(_statement(pos, entry_hash, now))
        return Head(
            pos=pos, hash=entry_hash, signed_at=now, key_id=self.key_id, signature=signature
        )


def public_key(path: Path) -> Ed25519PublicKey:
    loaded = load_pem_public_key(path.read_bytes())
    if not isinstance(loaded, Ed25519PublicKey):
        raise TypeError(f"{path} holds another kind of key than Ed25519")
    return loaded


def key_id(public: Ed25519PublicKey) -> str:
    raw = public.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return base64.urlsafe_b64encode(hashlib.sha256(raw).digest()[:9]).decode()


def is_genuine(head: Head, public: Ed25519PublicKey) -> bool:
    try:
        public.verify(head.signature, _statement(head.pos, head.hash, head.signed_at))
    except InvalidSignature:
        return False
    return True


def encode(head: Head) -> bytes:
    return msgspec.json.encode(head)


def decode(data: bytes) -> Head:
    return msgspec.json.decode(data, type=Head)
