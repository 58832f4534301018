"""A head: a signed checkpoint of the tree (C2SP `tlog-checkpoint`), with further lines.

    joulie/3fQ2xPb1hK0A                               which log
    20852                                             how many entries it has
    CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=      the root of the tree over them
    entry nB7k...=                                    the chained hash of the last one
    time 1764072000000000000
    key vtzRm4hDgmNH                                  which key signs it
    incarnation 5f1c...                               of the database
    facts 88214 BKs3...=                              their last position, and its manifest
    read JOULIE_TEL 51230                             how far their streams were read
    read JOULIE_DEC 20911 d9C4...= 2026-11-26T...     the last decision read, and its stream
    messages Uf4x...=                                 a digest over the decisions that were read

Any program that knows checkpoints verifies a head; the other lines are extension lines to it.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import msgspec

from joulie_bus.core.formats import in_force
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.note import (
    LOG_KEY,
    LogCheckpoint,
    NotANote,
    VerifierKey,
    checkpoint_of,
    parse_checkpoint,
    unpacked,
)
from joulie_projections.chain.signed import KeyStatement
from joulie_projections.fold.commit import Input

CHECKPOINT = f"joulie-checkpoint/{in_force('head')}"
_NONE = "-"  # instead of a digest that is not known
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")


class Commitment(NamedTuple):
    """What a head says of the log."""

    size: int  # entries
    root: bytes  # of the tree over them
    hash: bytes  # the chained hash of the last one
    signed_at: int
    incarnation: str = ""  # of the database
    position: int = 0  # the last position of the facts
    manifest: bytes = b""  # its manifest
    read: Mapping[Stream, Input] = MappingProxyType({})  # how far each stream was read
    messages: bytes = b""  # `log_end.messages_digest` of the stream of decisions
    quota: bytes = b""  # the digest of the quota of unreadable messages; empty if none is used

    def lines(self, key_id: str) -> Iterator[str]:
        """The extension lines."""
        yield f"entry {_packed(self.hash)}"
        yield f"time {self.signed_at}"
        yield f"key {key_id}"
        if self.incarnation:
            yield f"incarnation {self.incarnation}"
        if self.position:
            yield f"facts {self.position} {_packed(self.manifest)}"
        for stream, read in sorted(self.read.items()):
            yield f"read {stream} {read.sequence}{_identity_of(stream, read)}"
        for name, value in (("messages", self.messages), ("quota", self.quota)):
            if value:
                yield f"{name} {_packed(value)}"


def _identity_of(stream: Stream, read: Input) -> str:
    """The manifest identifies the facts; the decisions are identified here."""
    return f" {_packed(read.digest) or _NONE} {read.created}" if stream is Stream.DEC else ""


def _packed(value: bytes) -> str:
    return base64.b64encode(value).decode()


class Head(
    msgspec.Struct, frozen=True, kw_only=True, dict=True, tag_field="format", tag=CHECKPOINT
):
    """A signed checkpoint. Whether a key of the log signed it, its ring knows."""

    note: str

    def __post_init__(self) -> None:
        """Raises NotANote, which a decoder takes for an error of the value."""
        _ = self.commitment

    @cached_property
    def checkpoint(self) -> LogCheckpoint:
        return parse_checkpoint(self.note.encode())

    @cached_property
    def commitment(self) -> Commitment:
        return _commitment_in(self.checkpoint)

    @cached_property
    def key_id(self) -> str:
        return _Values(self.checkpoint.extensions).one("key")

    @property
    def pos(self) -> int:
        """The last entry."""
        return self.checkpoint.size

    @property
    def hash(self) -> bytes:
        return self.commitment.hash

    @property
    def signed_at(self) -> int:
        return self.commitment.signed_at

    @property
    def id(self) -> bytes:
        """The key of its row."""
        return hashlib.sha256(self.note.encode()).digest()

    def is_signed_by(self, raw: bytes) -> bool:
        """Whether this public key signed it, for the log that it names."""
        checkpoint = self.checkpoint
        return checkpoint.is_signed_by(VerifierKey(checkpoint.origin, LOG_KEY, raw))


Signed: TypeAlias = Head | KeyStatement


def unsigned(origin: str, key_id: str, what: Commitment) -> LogCheckpoint:
    return checkpoint_of(origin, what.size, what.root, what.lines(key_id))


def head_of(checkpoint: LogCheckpoint) -> Head:
    return Head(note=checkpoint.note.decode())


def head_in(note: bytes) -> Head | None:
    """None if the bytes are no head."""
    try:
        return Head(note=note.decode())
    except ValueError:
        return None


# --- reading ------------------------------------------------------------------------------------


def _commitment_in(checkpoint: LogCheckpoint) -> Commitment:
    values = _Values(checkpoint.extensions)
    position, _, manifest = values.one("facts", "0").partition(" ")
    return Commitment(
        checkpoint.size,
        checkpoint.root,
        unpacked(values.one("entry")),
        _number(values.one("time")),
        values.one("incarnation", ""),
        _number(position),
        unpacked(manifest),
        dict(map(_read_in, values.all("read"))),
        unpacked(values.one("messages", "")),
        unpacked(values.one("quota", "")),
    )


class _Values:
    """The values of extension lines by their first word. Unknown lines say nothing here."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._values = dict[str, list[str]]()
        for line in lines:
            name, _, value = line.partition(" ")
            self._values.setdefault(name, []).append(value)

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def one(self, name: str, default: str | None = None) -> str:
        found = self._values.get(name, [] if default is None else [default])
        if len(found) != 1:
            raise NotANote(f"a checkpoint that does not have one line `{name}`")
        return found[0]


def _read_in(value: str) -> tuple[Stream, Input]:
    name, _, rest = value.partition(" ")
    sequence, _, identity = rest.partition(" ")
    digest, _, created = identity.partition(" ")
    try:
        stream = Stream(name)
    except ValueError:
        raise NotANote(f"{name[:100]!r} is no stream") from None
    known = b"" if digest == _NONE else unpacked(digest)
    return stream, Input(created, _number(sequence), known)


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise NotANote(f"{text[:100]!r} is no number")
    return int(text)


# --- messages and lines of files ----------------------------------------------------------------


def encode(statement: Signed) -> bytes:
    return msgspec.json.encode(statement)


def decode(data: bytes) -> Head:
    return msgspec.json.decode(data, type=Head)


def decode_any(data: bytes) -> Signed:
    statement: Signed = msgspec.json.decode(data, type=Signed)
    return statement


def statement_in(data: bytes) -> Signed | None:
    """The statement in a message; None if it is none. Whether it is signed, a ring knows."""
    try:
        return decode_any(data)
    except msgspec.DecodeError:
        return None
