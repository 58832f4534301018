"""Hashes of messages that the broker has, on the disk until a head of the log contains them.

They are what is left of a message once its spool has shipped it: enough to find out that the log
lacks it or has another one, and to prove that it was promised.
"""

import base64
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from joulie_bus.errors import Undecodable
from joulie_bus.events import PromiseKey
from joulie_bus.events.codec import open_envelope
from joulie_bus.runtime.secret_files import write_private
from joulie_bus.streams.records import Message
from joulie_extender.decision_log.spool import Spool, Unshipped
from joulie_projections.chain.promise import SIGNING, Promised, hash_of

FOLDER = "promised"  # within the directory of the spool
KEY = ".key"  # appended to the boot of a life: the file of its first message


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """`signing` is the message itself if it is a promise or a key, which proofs need. `lost`: the
    replica itself dropped the message later, and says so."""

    id: str
    hash: bytes
    signing: bytes = b""
    lost: bool = False

    @property
    def promised(self) -> Promised:
        return Promised(self.id, self.hash)


class KeptRecord(msgspec.Struct, frozen=True, array_like=True):
    """What was shipped together, and when: up to a promise or a key at most."""

    at: int
    kept: list[Kept]


class Portion(NamedTuple):
    records: list[KeptRecord]
    place: Unshipped  # to pass to `settled`

    @property
    def signed(self) -> int:
        """How many records the last promise ends."""
        ends = (at for at, record in enumerate(self.records, 1) if record.kept[-1].signing)
        return max(ends, default=0)


_decode = msgspec.msgpack.Decoder(KeptRecord).decode


class KeptHashes:
    """A queue: appends at the end, is settled from the front."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / FOLDER
        self._queue = Spool(self._folder)
        self.waiting = sum(len(record.kept) for record in self._left_over())
        self._forget_keys()

    def add(self, at: int, hashes: Sequence[Kept]) -> None:
        """What was shipped together. Raises OSError if the disk is full."""
        for kept in _until_signed(hashes):
            if kept[-1].signing and _type_of(kept[-1].signing) == PromiseKey.TYPE:
                text = base64.b64encode(kept[-1].signing).decode()
                write_private(self._key_file(kept[-1].promised.life), text)
            record = KeptRecord(at, kept)
            self._queue.append(Message("", kept[0].id, msgspec.msgpack.encode(record)))
            self.waiting += len(kept)

    @property
    def records(self) -> int:
        return self._queue.waiting

    def first(self, most: int) -> Portion:
        """The oldest records. Raises OSError if reading may succeed later."""
        found = self._queue.unshipped(most)
        return Portion([_decode(message.data) for message in found.messages], found)

    def settled(self, portion: Portion, count: int) -> None:
        """The log has the messages of the first records, or what it has is reported."""
        place = self._queue.unshipped(count) if count < len(portion.records) else portion.place
        self.waiting -= sum(len(record.kept) for record in portion.records[:count])
        self._queue.shipped(place)

    def unsigned(self, spooled: Iterable[Message]) -> list[Promised]:
        """What an earlier life published after its last promise: kept here, or still spooled."""
        found: list[Promised] = []
        for kept in (*self._kept_before(), *map(kept_of, spooled)):
            found = [] if kept.signing else [*found, kept.promised]
        return found

    def key_of(self, life: str) -> bytes:
        """The first message of a life; empty if it was not published yet."""
        file = self._key_file(life)
        return base64.b64decode(file.read_text()) if file.exists() else b""

    def close(self) -> None:
        self._queue.close()

    def _key_file(self, life: str) -> Path:
        return self._folder / f"{life.rpartition(':')[2]}{KEY}"

    def _forget_keys(self) -> None:
        """Those of lives of which nothing is kept any more."""
        lives = {kept.promised.life for record in self._left_over() for kept in record.kept}
        needed = {self._key_file(life) for life in lives}
        for file in self._folder.glob(f"*{KEY}"):
            if file not in needed:
                file.unlink()

    def _kept_before(self) -> Iterator[Kept]:
        for record in self._left_over():
            yield from record.kept

    def _left_over(self) -> Iterator[KeptRecord]:
        return (_decode(message.data) for message in self._queue.left_over())


def _until_signed(hashes: Sequence[Kept]) -> Iterator[list[Kept]]:
    """Runs that end with a promise or a key, and the rest."""
    run: list[Kept] = []
    for kept in hashes:
        run.append(kept)
        if kept.signing:
            yield run
            run = []
    if run:
        yield run


def kept_of(message: Message) -> Kept:
    signing = message.data if _type_of(message.data) in SIGNING else b""
    return Kept(message.id, hash_of(message.data), signing)


def _type_of(message: bytes) -> str:
    """Empty if the message cannot be decoded."""
    try:
        return open_envelope(message, "the spool").type
    except Undecodable:
        return ""
