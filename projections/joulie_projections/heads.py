"""Signed heads: the log's end at a moment, in a form that outlives the database.

Whoever keeps one head can tell for ever whether the log up to there was rewritten.
"""

import base64
import hashlib
import hmac
import secrets
from pathlib import Path
from typing import Protocol

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

from joulie_bus.errors import KeyMismatch
from joulie_bus.private import keep_private


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


class Checker(Protocol):
    """What tells a genuine signature: the public half of a key, or the key itself."""

    def verify(self, signature: bytes, data: bytes) -> None:
        """Raises InvalidSignature."""
        ...


ED25519, HMAC = "ed25519", "hmac"
_SECRET = "joulie-hmac-sha256"


class Signer:
    """Signs heads with one key; which kind is for the settings to say."""

    def __init__(self, public: Checker, name: str) -> None:
        self.public = public
        self.key_id = name

    @staticmethod
    def of(path: Path, kind: str = ED25519) -> "Signer":
        """The key in the file; made, readable by its owner alone, if there is none."""
        return _HmacSigner.kept_in(path) if kind == HMAC else _Ed25519Signer.kept_in(path)

    def publish(self, path: Path) -> None:
        """The public half, if there is one, for whoever wants to check."""
        raise NotImplementedError

    def sign(self, pos: int, entry_hash: bytes, now: int) -> Head:
        signature = self._signature(_statement(pos, entry_hash, now))
        return Head(
            pos=pos, hash=entry_hash, signed_at=now, key_id=self.key_id, signature=signature
        )

    def _signature(self, data: bytes) -> bytes:
        raise NotImplementedError


class _Ed25519Signer(Signer):
    """The log's writer holds the key, anybody may check with its public half."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self._half = key.public_key()
        super().__init__(self._half, key_id(self._half))

    @classmethod
    def kept_in(cls, path: Path) -> "_Ed25519Signer":
        if not path.exists():
            key = Ed25519PrivateKey.generate()
            pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            keep_private(path, pem.decode())
        if _is_secret(path):
            raise KeyMismatch(str(path), ED25519, HMAC)
        loaded = load_pem_private_key(path.read_bytes(), password=None)
        if not isinstance(loaded, Ed25519PrivateKey):
            raise KeyMismatch(str(path), ED25519, type(loaded).__name__)
        return cls(loaded)

    def publish(self, path: Path) -> None:
        half = self._half.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        if not path.exists() or path.read_bytes() != half:  # somebody may be reading it
            path.write_bytes(half)

    def _signature(self, data: bytes) -> bytes:
        return self._key.sign(data)


class _Secret:
    """Signs and checks: whoever can check could also have signed."""

    def __init__(self, path: Path) -> None:
        self._secret = base64.b64decode(path.read_text().split()[1])
        digest = hashlib.sha256(b"joulie-hmac\n" + self._secret).digest()
        self.name = "hmac-" + base64.urlsafe_b64encode(digest[:9]).decode()

    def mac(self, data: bytes) -> bytes:
        return hmac.digest(self._secret, data, "sha256")

    def verify(self, signature: bytes, data: bytes) -> None:
        if not hmac.compare_digest(signature, self.mac(data)):
            raise InvalidSignature


class _HmacSigner(Signer):
    """For where asymmetric keys may not be had: every auditor holds the secret itself."""

    def __init__(self, secret: _Secret) -> None:
        self._secret = secret
        super().__init__(secret, secret.name)

    @classmethod
    def kept_in(cls, path: Path) -> "_HmacSigner":
        if not path.exists():
            secret = base64.b64encode(secrets.token_bytes(32)).decode()
            keep_private(path, f"{_SECRET}\n{secret}\n")
        if not _is_secret(path):
            raise KeyMismatch(str(path), HMAC, ED25519)
        return cls(_Secret(path))

    def publish(self, path: Path) -> None:
        path.unlink(missing_ok=True)  # there is no half of it that may be shown

    def _signature(self, data: bytes) -> bytes:
        return self._secret.mac(data)


def _is_secret(path: Path) -> bool:
    return path.exists() and path.read_bytes().startswith(_SECRET.encode())


def public_key(path: Path) -> Checker:
    """What checks the heads: the public half, or, where there is none, the secret beside it."""
    secret = path.with_suffix(".key")
    if not path.exists() and _is_secret(secret):
        return _Secret(secret)
    loaded = load_pem_public_key(path.read_bytes())
    if not isinstance(loaded, Ed25519PublicKey):
        raise KeyMismatch(str(path), ED25519, type(loaded).__name__)
    return loaded


def key_id(public: Ed25519PublicKey) -> str:
    raw = public.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return base64.urlsafe_b64encode(hashlib.sha256(raw).digest()[:9]).decode()


def is_genuine(head: Head, public: Checker) -> bool:
    try:
        public.verify(head.signature, _statement(head.pos, head.hash, head.signed_at))
    except InvalidSignature:
        return False
    return True


def encode(head: Head) -> bytes:
    return msgspec.json.encode(head)


def decode(data: bytes) -> Head:
    return msgspec.json.decode(data, type=Head)
