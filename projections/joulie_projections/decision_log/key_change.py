"""A change of keys: requested by a command, made by the process that signs.

    head.key.next     the next key; the signer hands over to it, then it replaces head.key
    head.announced    the announcement of that key, which the key in force has signed
    head.retire       a requested retirement, which the key in force has signed

A request that the key in force has not signed is refused: a program that can write to the
directory and cannot read the key plants no key of its own.

Each change is first written into the ring, then anchored beside the heads, then in force. After a
crash in between, the file of the request is still there, and the change continues with the
statement that is already in the ring.
"""

import os
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from joulie_bus.core.formats import in_force
from joulie_bus.errors import KeyChangeRefused, KeyMismatch, KeyRingBroken
from joulie_bus.runtime.own_files import sync
from joulie_bus.runtime.secret_files import keep_private
from joulie_projections.chain import keyring
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.signed import Handover, KeyStatement, Retirement
from joulie_projections.decision_log.heads import Signer, next_path

_REQUEST = f"joulie-request/{in_force('request')}"
FAILURES = (KeyChangeRefused, KeyMismatch, KeyRingBroken, OSError)


class RetirementRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `head.retire`."""

    key_id: str
    since: int
    signature: bytes = b""

    @property
    def text(self) -> bytes:
        return f"{_REQUEST} retire {self.key_id} {self.since}".encode()


def announcement_path(key: Path) -> Path:
    return key.with_name(f"{key.stem}.announced")


def retirement_path(key: Path) -> Path:
    return key.with_name(f"{key.stem}.retire")


# --- requests -----------------------------------------------------------------------------------


def request_rotation(key: Path) -> str:
    """Creates the next key unless it exists, and returns its id."""
    if not key.exists():
        raise KeyChangeRefused(
            f"{key} is missing: there is no key to hand over from. Nothing was changed. "
            "Run this where the projector keeps its data (--data, JOULIE_DATA)."
        )
    current, file = Signer.of(key), next_path(key)
    if not file.exists():
        new, pem = Signer.new_key()
        _replace(announcement_path(key), current.signature(_announced(new)))
        keep_private(file, pem)
    return Signer.of(file).key_id


def request_retirement(key: Path, key_id: str, since: int, ring_file: Path | None = None) -> None:
    current = Signer.of(key, ring_file)
    ring = current.public
    if key_id not in (known.id for known in ring.keys):
        ids = ", ".join(known.id for known in ring.keys)
        raise KeyChangeRefused(
            f"{key_id} is not a key of this log. Nothing was changed. Its keys are {ids}."
        )
    if key_id == ring.newest.id:
        raise KeyChangeRefused(
            f"Key {key_id} is the signing key, and only a later key can retire it. Nothing was "
            "changed. Run `joulie keys rotate` first, then this again."
        )
    file, request = retirement_path(key), RetirementRequest(key_id=key_id, since=since)
    request = replace(request, signature=current.signature(request.text))
    keep_private(file, msgspec.json.encode(request).decode())
    if (waiting := _request_in(file)) != request:
        raise KeyChangeRefused(
            f"Key {waiting.key_id} is to be retired first: {file} waits for the projector. "
            "Nothing was changed. Try again when the projector has removed the file."
        )


def _request_in(file: Path) -> RetirementRequest:
    return msgspec.json.decode(file.read_bytes(), type=RetirementRequest)


def _announced(raw: bytes) -> bytes:
    return f"{_REQUEST} hand over to ".encode() + raw


# --- the change ---------------------------------------------------------------------------------


class KeyChange(NamedTuple):
    """A requested change: the caller anchors `statement`, then calls `complete`."""

    signer: Signer
    statement: KeyStatement
    requested_by: Path

    def complete(self) -> Signer:
        """Puts the change in force, and returns the signing key."""
        if isinstance(self.statement, Handover):
            self.requested_by.replace(self.signer.path)
            announcement_path(self.signer.path).unlink(missing_ok=True)
        else:
            self.requested_by.unlink()
        sync(self.requested_by.parent)
        return self.signer.reload()


def is_requested(signer: Signer) -> bool:
    return next_path(signer.path).exists() or retirement_path(signer.path).exists()


def prepare(signer: Signer, pos: int, entry_hash: bytes, now: int) -> KeyChange:
    """Writes the requested change into the ring; `pos` is the entry of the newest head."""
    current = Signer.of(signer.path, signer.ring_file)
    if retirement_path(signer.path).exists():  # first: the key in force has signed the request
        return _retirement(current, pos, now)
    return _rotation(current, pos, entry_hash, now)


def _rotation(current: Signer, pos: int, entry_hash: bytes, now: int) -> KeyChange:
    file = next_path(current.path)
    new = Signer.of(file)
    ring = current.public
    if new.key_id != ring.newest.id:
        _require_announced(current, new, file)
        ring = _add_to_ring(current, current.hand_over(new, pos, entry_hash, now))
    return KeyChange(current, ring.handovers[-1], file)


_NOT_REQUESTED = (
    "{file} is no request of `{command}`: the key in force has not signed it. Nothing was changed, "
    "and the key in force signs on. Another program wrote to this directory: find it, and remove "
    "the file."
)


def _require_announced(current: Signer, new: Signer, file: Path) -> None:
    announcement = announcement_path(current.path)
    signature = announcement.read_bytes() if announcement.is_file() else b""
    if not current.has_signed(signature, _announced(new.raw)):
        raise KeyChangeRefused(_NOT_REQUESTED.format(file=file, command="joulie keys rotate"))


def _retirement(current: Signer, pos: int, now: int) -> KeyChange:
    file = retirement_path(current.path)
    request = _request_in(file)
    for known in current.public.retirements:
        if (known.key_id, known.since) == (request.key_id, request.since):
            return KeyChange(current, known, file)
    if not current.has_signed(request.signature, request.text):
        raise KeyChangeRefused(_NOT_REQUESTED.format(file=file, command="joulie keys retire"))
    statement = current.retire(request.key_id, request.since, pos, now)
    return KeyChange(current, _add_to_ring(current, statement).retirements[-1], file)


def _add_to_ring(current: Signer, statement: Handover | Retirement) -> Ring:
    ring = current.public
    if what := ring.flaw_in(statement):
        raise KeyChangeRefused(f"A change of keys cannot be made: {what}. Nothing was changed.")
    ring = ring.with_one(statement)
    _replace(current.ring_file, keyring.encoded(ring))
    return ring


def _replace(file: Path, content: bytes) -> None:
    """Replaces the file atomically; the content is on the disk before the rename."""
    fresh = file.with_name(f".{file.name}.new")
    with fresh.open("wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    fresh.replace(file)
    sync(file.parent)


def is_in_force(signer: Signer) -> bool:
    """Whether this key is the newest one of the ring on the disk."""
    try:
        return signer.reload().public.newest.id == signer.key_id
    except FAILURES:
        return False
