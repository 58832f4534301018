"""A change of keys: asked for by a command, made by the process that signs.

    head.key.next     the next key; the signer hands over to it, and then it takes head.key's place
    head.retire       a retirement that is asked for; the signer signs it

Each change is first written into the ring, then anchored beside the heads, then in force. What a
crash left in between is found by the file that asked for it, and is gone on with: the statement
that is in the ring already is the one that is anchored.
"""

import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from joulie_bus.errors import KeyChangeRefused, KeyMismatch, KeyRingBroken
from joulie_bus.runtime.secret_files import keep_private
from joulie_projections.decision_log import keyring
from joulie_projections.decision_log.heads import (
    HMAC,
    Ed25519Signer,
    Signer,
    is_hmac_secret,
    next_path,
    ring_path,
)
from joulie_projections.decision_log.keyring import Ring
from joulie_projections.decision_log.signed import Handover, KeyStatement, Retirement

FAILURES = (KeyChangeRefused, KeyMismatch, KeyRingBroken, OSError)


class RetirementRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What `head.retire` holds."""

    key_id: str
    since: int


def retirement_path(key: Path) -> Path:
    return key.with_name(f"{key.stem}.retire")


# --- asking -------------------------------------------------------------------------------------


def request_rotation(key: Path) -> str:
    """Makes the next key, or finds the one that was asked for before; its id."""
    if not key.exists():
        raise KeyChangeRefused(
            f"{key} is missing: there is no key to hand over from. Nothing was changed. "
            "Run this where the projector keeps its data (--data, JOULIE_DATA)."
        )
    _require_ed25519(key)
    return Ed25519Signer.load_or_create(next_path(key)).key_id


def request_retirement(key: Path, key_id: str, since: int) -> None:
    ring = _require_ed25519(key).public
    if key_id not in (known.id for known in ring.keys):
        ids = ", ".join(known.id for known in ring.keys)
        raise KeyChangeRefused(
            f"{key_id} is no key of this log. Nothing was changed. Its keys are {ids}."
        )
    if key_id == ring.newest.id:
        raise KeyChangeRefused(
            f"Key {key_id} signs now, and only a later key can retire it. Nothing was changed. "
            "Run `joulie keys rotate` first, then this again."
        )
    file, request = retirement_path(key), RetirementRequest(key_id=key_id, since=since)
    keep_private(file, msgspec.json.encode(request).decode())
    if (waiting := _request_in(file)) != request:
        raise KeyChangeRefused(
            f"Key {waiting.key_id} is to be retired first: {file} waits for the projector. "
            "Nothing was changed. Try again when it is gone."
        )


def _request_in(file: Path) -> RetirementRequest:
    return msgspec.json.decode(file.read_bytes(), type=RetirementRequest)


def _require_ed25519(key: Path) -> Ed25519Signer:
    if is_hmac_secret(key):
        raise KeyChangeRefused(
            f"{key} holds a secret ({HMAC}), which has no public half that a handover could be "
            "checked with. Nothing was changed. Archive the log, and begin a new data directory "
            "with HEAD_SIGNATURE=ed25519 to have keys that rotate."
        )
    return Ed25519Signer.load_or_create(key)


# --- making it ----------------------------------------------------------------------------------


class KeyChange(NamedTuple):
    """One change that was asked for: `statement` is to be anchored, then it is `done`."""

    signer: Ed25519Signer
    statement: KeyStatement
    asked_by: Path

    def done(self) -> Signer:
        """In force from now on; the key that signs."""
        if isinstance(self.statement, Handover):
            self.asked_by.replace(self.signer.path)
        else:
            self.asked_by.unlink()
        return Ed25519Signer.load_or_create(self.signer.path)


def is_requested(signer: Signer) -> bool:
    return next_path(signer.path).exists() or retirement_path(signer.path).exists()


def prepare(signer: Signer, pos: int, entry_hash: bytes, now: int) -> KeyChange:
    """The change that was asked for, in the ring by now; the newest head stands at `pos`."""
    current = _require_ed25519(signer.path)
    if next_path(signer.path).exists():
        return _rotation(current, pos, entry_hash, now)
    return _retirement(current, pos, now)


def _rotation(current: Ed25519Signer, pos: int, entry_hash: bytes, now: int) -> KeyChange:
    file = next_path(current.path)
    new = Ed25519Signer.load_or_create(file)
    ring = current.public
    if new.key_id != ring.newest.id:
        ring = _add_to_ring(current, current.hand_over(new, pos, entry_hash, now))
    return KeyChange(current, ring.handovers[-1], file)


def _retirement(current: Ed25519Signer, pos: int, now: int) -> KeyChange:
    file = retirement_path(current.path)
    request = _request_in(file)
    for known in current.public.retirements:
        if (known.key_id, known.since) == (request.key_id, request.since):
            return KeyChange(current, known, file)
    statement = current.retire(request.key_id, request.since, pos, now)
    return KeyChange(current, _add_to_ring(current, statement).retirements[-1], file)


def _add_to_ring(current: Ed25519Signer, statement: Handover | Retirement) -> Ring:
    ring = current.public
    if what := ring.flaw_in(statement):
        raise KeyChangeRefused(f"A change of keys cannot be made: {what}. Nothing was changed.")
    ring = ring.with_one(statement)
    _replace(ring_path(current.path), keyring.encoded(ring))
    return ring


def _replace(file: Path, content: bytes) -> None:
    """Whole, and on the disk before anything is built on it."""
    fresh = file.with_name(f".{file.name}.new")
    with fresh.open("wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    fresh.replace(file)


def is_in_force(signer: Signer) -> bool:
    """Whether this key is the newest one of the ring as it is on the disk now."""
    try:
        return signer.reload().public.newest.id == signer.key_id
    except FAILURES:
        return False
