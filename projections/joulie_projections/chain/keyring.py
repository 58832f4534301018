"""The keys of a log in their order: which key may sign which head.

Each key signs the heads of a range of entries. A handover ends the range of the old key and begins
the range of the new one; both keys sign it. A retirement names the entry after which a key counts
as compromised: a head that it signed after that entry is valid only if a head of another key, or a
handover to one, is at the same or a later entry of the same log.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import msgspec

from joulie_bus.core.formats import in_force
from joulie_projections.chain.head import Head, Signed
from joulie_projections.chain.signed import (
    Checker,
    Handover,
    KeyStatement,
    Retirement,
    ed25519_of,
    has_signed,
    key_id_of,
)

FORMAT = f"joulie-keys/{in_force('keys')}"
ENDLESS = 2**63 - 1


class Key(NamedTuple):
    """A key that signs the heads of the entries from `after` (exclusive) to `until` (inclusive)."""

    id: str
    checker: Checker
    raw: bytes  # the public key
    after: int = 0
    until: int = ENDLESS
    since: int = ENDLESS  # after this entry it counts as compromised
    began_at: int = 0
    ended_at: int = 0

    @property
    def is_compromised(self) -> bool:
        return self.since != ENDLESS


@dataclass(frozen=True)
class Ring:
    first: Key
    handovers: tuple[Handover, ...] = ()
    retirements: tuple[Retirement, ...] = ()

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """Oldest first; the last one is the signing key."""
        keys = [self.first]
        for statement in self.handovers:
            keys[-1] = keys[-1]._replace(until=statement.pos, ended_at=statement.signed_at)
            keys.append(
                key_of(statement.new)._replace(after=statement.pos, began_at=statement.signed_at)
            )
        return tuple(key._replace(since=self._since(key.id)) for key in keys)

    @property
    def statements(self) -> tuple[KeyStatement, ...]:
        return (*self.handovers, *self.retirements)

    @property
    def newest(self) -> Key:
        return self.keys[-1]

    def key(self, key_id: str) -> Key | None:
        return next((key for key in self.keys if key.id == key_id), None)

    def _since(self, key_id: str) -> int:
        return min(
            (statement.since for statement in self.retirements if statement.key_id == key_id),
            default=ENDLESS,
        )

    @property
    def origin(self) -> str:
        """The name of the log for witnesses. It stays the same after a change of keys."""
        return f"joulie/{self.first.id}"

    @cached_property
    def _checked(self) -> dict[Signed, bool]:
        """Statements whose signature was checked: an audit needs each several times."""
        return {}

    def has_signed(self, statement: Signed) -> bool:
        """Whether a key of this log signed the statement, true or not.

        One that none of them signed proves nothing about this log: it can be forged.
        """
        if statement not in self._checked:
            self._checked[statement] = any(_is_signed_by(key, statement) for key in self.keys)
        return self._checked[statement]

    # --- heads --------------------------------------------------------------------------------

    def flaw_of(self, head: Head) -> str:
        """Why the head is not valid; empty if it is. `unconfirmed` checks compromised keys."""
        key = self.key(head.key_id)
        if key is None or not self.has_signed(head):
            return f"the head at {head.pos} is not signed by a key of this log"
        what = f"the head at {head.pos} is signed by key {key.id}, which signs"
        if head.pos <= key.after:
            return f"{what} after entry {key.after}"
        if head.pos > key.until:
            return f"{what} up to entry {key.until}"
        return ""

    def stands_alone(self, head: Head) -> bool:
        """Whether the head is valid without confirmation by another head."""
        key = self.key(head.key_id)
        return key is not None and head.pos <= key.since and not self.flaw_of(head)

    def unconfirmed(self, heads: Iterable[Head], last: int) -> Head | None:
        """The first head of a compromised key that no head of another key confirms.

        `last` is the newest verified entry: a handover after it confirms nothing.
        """
        heads = sorted(heads, key=lambda head: head.pos)
        good = [head.pos for head in heads if self.stands_alone(head)]
        good += [key.after for key in self.keys if key.after <= min(key.since, last)]
        covered = max(good, default=0)
        doubtful = (head for head in heads if not self.stands_alone(head))
        return next((head for head in doubtful if head.pos > covered), None)

    def valid(self, heads: Iterable[Head]) -> list[Head]:
        """Those that a key of this log signed in its range. The others can be forged."""
        return [head for head in heads if not self.flaw_of(head)]

    # --- statements about keys ----------------------------------------------------------------

    def with_all(self, statements: Iterable[KeyStatement]) -> tuple["Ring", list[str]]:
        """Adds statements from other places; returns the flaws of those that are left out."""
        ring, flaws = self, list[str]()
        for statement in statements:
            if statement in ring.handovers or statement in ring.retirements:
                continue
            if what := ring.flaw_in(statement):
                flaws.append(what)
            else:
                ring = ring.with_one(statement)
        return ring, flaws

    def signed_among(self, statements: Iterable[Signed]) -> list[Signed]:
        """The statements that a key of this log signed, in the order of `statements`.

        The keys of a handover among them count from there on, for heads everywhere.
        """
        statements = list(statements)
        ring, keys = self, set[KeyStatement]()
        for each in statements:
            if not isinstance(each, Head) and ring.has_signed(each):
                ring, _ = ring.with_all([each])
                keys.add(each)
        return [
            each
            for each in statements
            if (ring.has_signed(each) if isinstance(each, Head) else each in keys)
        ]

    def with_one(self, statement: KeyStatement) -> "Ring":
        if isinstance(statement, Retirement):
            return replace(self, retirements=(*self.retirements, statement))
        if self._comes_before(statement):
            return replace(
                self, first=key_of(statement.old), handovers=(statement, *self.handovers)
            )
        return replace(self, handovers=(*self.handovers, statement))

    def flaw_in(self, statement: KeyStatement) -> str:
        if isinstance(statement, Retirement):
            return self._retirement_flaw(statement)
        return self._handover_flaw(statement)

    def _handover_flaw(self, statement: Handover) -> str:
        old, new = key_id_of(statement.old), key_id_of(statement.new)
        what = f"the handover from key {old} to key {new} at entry {statement.pos}"
        if not statement.is_genuine:
            return f"{what} is not signed by both keys"
        if self._comes_before(statement):
            return "" if statement.pos <= self.first.until else f"{what} comes after the next one"
        if old != self.newest.id:
            known = self.key(old)
            of_ours = (
                f"key {old} handed over at entry {known.until}"
                if known
                else "its old key is not of this log"
            )
            return f"{what} is forged: {of_ours}"
        if self.key(new):
            return f"{what} is forged: the new key has signed before"
        return (
            ""
            if statement.pos >= self.newest.after
            else f"{what} comes before the one to key {old}"
        )

    def _comes_before(self, statement: Handover) -> bool:
        """Whether it extends the ring backward: a trusted key confirms the one before it."""
        is_first = key_id_of(statement.new) == self.first.id
        return is_first and self.key(key_id_of(statement.old)) is None

    def _retirement_flaw(self, statement: Retirement) -> str:
        what = f"the retirement of key {statement.key_id} since entry {statement.since}"
        ids = [key.id for key in self.keys]
        if statement.key_id not in ids:
            return f"{what} is of a key that is not of this log"
        by = self.key(statement.by)
        if by is None or ids.index(by.id) <= ids.index(statement.key_id):
            return f"{what} is not signed by a later key of this log"
        return (
            ""
            if has_signed(by.checker, statement.signature, statement.text)
            else f"{what} is forged"
        )


def key_of(raw: bytes) -> Key:
    return Key(key_id_of(raw), ed25519_of(raw), raw)


def _is_signed_by(key: Key, statement: Signed) -> bool:
    match statement:
        case Head():
            return statement.key_id == key.id and statement.is_signed_by(key.raw)
        case Handover():
            made = {statement.old: statement.old_signature, statement.new: statement.new_signature}
            signature = made.get(key.raw)
        case Retirement():
            signature = statement.signature if statement.by == key.id else None
    return signature is not None and has_signed(key.checker, signature, statement.text)


# --- as a file ----------------------------------------------------------------------------------


class _File(msgspec.Struct, frozen=True, kw_only=True, tag_field="format", tag=FORMAT):
    """Bytes are base64."""

    first: bytes
    handovers: list[Handover] = []
    retirements: list[Retirement] = []


def encoded(ring: Ring) -> bytes:
    file = _File(
        first=ring.first.raw,
        handovers=list(ring.handovers),
        retirements=list(ring.retirements),
    )
    return msgspec.json.format(msgspec.json.encode(file)) + b"\n"


def decoded(content: bytes) -> tuple[Ring, list[str]]:
    """The ring and its flaws; raises DecodeError if the content is not a ring of this version."""
    file = msgspec.json.decode(content, type=_File)
    return Ring(key_of(file.first)).with_all([*file.handovers, *file.retirements])
