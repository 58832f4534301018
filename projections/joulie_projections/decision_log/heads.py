"""Signs heads of the log, and loads the keys that verify them.

A head is the signed end of the log at a point in time. Any head that is kept outside of the
database shows later whether the log up to that entry was rewritten.
"""

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

from joulie_bus.errors import KeyMismatch, KeyRingBroken
from joulie_bus.runtime.own_files import read_own, sync
from joulie_bus.runtime.secret_files import keep_private
from joulie_projections.chain import keyring
from joulie_projections.chain.head import Commitment, Head, decode, encode, head_of, unsigned
from joulie_projections.chain.keyring import Key, Ring, key_of
from joulie_projections.chain.note import LOG_KEY, Signature, VerifierKey
from joulie_projections.chain.signed import Handover, Retirement, raw_of

__all__ = ["Head", "Signer", "decode", "encode", "is_genuine", "public_key"]

ED25519 = "ed25519"


class Signer:
    """Signs heads with the private key; the public key verifies them.

    `public` is the key ring of the log: this key and those that signed before it.
    """

    def __init__(self, path: Path, key: Ed25519PrivateKey, ring_file: Path) -> None:
        self.path = path
        self.ring_file = ring_file
        self._key = key
        self.raw = raw_of(key.public_key())
        own = key_of(self.raw)
        self.key_id = own.id
        self.public = _ring_with(own, ring_file)
        self._loaded = _file_identity(path)

    @classmethod
    def of(cls, path: Path, ring_file: Path | None = None) -> "Signer":
        """Loads the key; creates the file, readable by its owner only, if it does not exist.

        The ring is beside the key unless `ring_file` names another place."""
        ring_file = ring_file or ring_path(path)
        if not path.exists():
            _require_no_ring(path, ring_file)
            keep_private(path, cls.new_key()[1])
        content = read_own(path)
        try:
            loaded = load_pem_private_key(content, password=None)
        except ValueError:  # the text of the error may quote the file
            raise KeyMismatch(str(path), ED25519, "no private key in PEM") from None
        if not isinstance(loaded, Ed25519PrivateKey):
            raise KeyMismatch(str(path), ED25519, type(loaded).__name__)
        return cls(path, loaded, ring_file)

    @staticmethod
    def new_key() -> tuple[bytes, str]:
        """The public half of a new key, and the key as PEM."""
        key = Ed25519PrivateKey.generate()
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return raw_of(key.public_key()), pem.decode()

    def may_sign(self, pos: int) -> bool:
        """Whether the entry lies in the key's range: after its handover a key signs nothing."""
        key = self.public.key(self.key_id)
        return key is not None and key.after < pos <= key.until

    def is_stale(self) -> bool:
        """Whether the file was replaced since it was loaded."""
        return self.path.exists() and self._loaded != _file_identity(self.path)

    def reload(self) -> "Signer":
        """Loads the current key of the file, and its ring."""
        return self.of(self.path, self.ring_file)

    def publish(self, path: Path) -> None:
        """Writes the public key, unless there is a ring."""
        if path.exists() and is_ring(path.read_bytes()):
            self._require_in_force(path)
            return
        half = self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        if not path.exists() or path.read_bytes() != half:  # another process may be reading it
            path.write_bytes(half)
            sync(path)
            sync(path.parent)

    def _require_in_force(self, path: Path) -> None:
        newest = self.public.newest.id
        if newest != self.key_id and not next_path(self.path).exists():
            why = f"its newest key is {newest}, and {self.path} holds {self.key_id}"
            raise KeyRingBroken(str(path), why)

    def hand_over(self, new: "Signer", pos: int, entry_hash: bytes, now: int) -> Handover:
        statement = Handover(pos=pos, hash=entry_hash, signed_at=now, old=self.raw, new=new.raw)
        return msgspec.structs.replace(
            statement,
            old_signature=self.signature(statement.text),
            new_signature=new.signature(statement.text),
        )

    def retire(self, key_id: str, since: int, pos: int, now: int) -> Retirement:
        statement = Retirement(key_id=key_id, since=since, pos=pos, signed_at=now, by=self.key_id)
        return msgspec.structs.replace(statement, signature=self.signature(statement.text))

    def sign(self, what: Commitment) -> Head:
        made = unsigned(self.public.origin, self.key_id, what)
        key = VerifierKey(made.origin, LOG_KEY, self.raw)
        signature = Signature(key.name, key.hash, self.signature(made.text))
        return head_of(made.with_signatures([signature]))

    def signature(self, data: bytes) -> bytes:
        return self._key.sign(data)

    def has_signed(self, signature: bytes, data: bytes) -> bool:
        try:
            self._key.public_key().verify(signature, data)
        except InvalidSignature:
            return False
        return True


def _file_identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


def public_key(path: Path) -> Ring:
    """The keys that verify heads: a ring, or one public key."""
    content = path.read_bytes()
    return _ring_in(path, content) if is_ring(content) else Ring(_key_in(path, content))


def is_ring(content: bytes) -> bool:
    return content.lstrip()[:1] == b"{"


def _ring_in(path: Path, content: bytes) -> Ring:
    try:
        ring, flaws = keyring.decoded(content)
    except msgspec.DecodeError as error:
        raise KeyRingBroken(str(path), str(error)) from error
    if flaws:
        raise KeyRingBroken(str(path), flaws[0])
    return ring


def _key_in(path: Path, content: bytes) -> Key:
    try:
        loaded = load_pem_public_key(content)
    except ValueError:
        raise KeyMismatch(str(path), ED25519, "neither a public key in PEM nor a ring") from None
    if not isinstance(loaded, Ed25519PublicKey):
        raise KeyMismatch(str(path), ED25519, type(loaded).__name__)
    return key_of(raw_of(loaded))


def ring_path(key: Path) -> Path:
    return key.with_suffix(".pub")


def next_path(key: Path) -> Path:
    """The file of the next key, which `joulie keys rotate` creates."""
    return key.with_name(f"{key.name}.next")


def replaced_path(key: Path) -> Path:
    """The file with the id of a lost key that this one replaces: `joulie keys replace`."""
    return key.with_name(f"{key.name}.replaces")


def lost_key(key: Path) -> str:
    file = replaced_path(key)
    return file.read_text().strip() if file.exists() else ""


def _require_no_ring(key: Path, file: Path) -> None:
    if file.exists() and is_ring(content := file.read_bytes()):
        newest = _ring_in(file, content).newest.id
        raise KeyRingBroken(str(file), f"its newest key is {newest}, and {key} is missing")


def _ring_with(key: Key, file: Path) -> Ring:
    """The ring that contains the key; a ring of this key alone if there is none."""
    if file.exists() and is_ring(content := file.read_bytes()):
        ring = _ring_in(file, content)
        if ring.key(key.id) is not None:
            return ring
    return Ring(key)


def is_genuine(head: Head, public: Ring) -> bool:
    return not public.flaw_of(head)
