"""A replica that promises what it publishes, on a clock of its own."""

import contextlib
from collections.abc import Generator, Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from bus_kit import CLUSTER, NOON, VirtualClock, ask
from joulie_bus.events import DecisionsDropped, FilterDecided, codec
from joulie_bus.log.producer import Producer
from joulie_bus.streams.records import Message
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import DecisionContext, decide_filter
from joulie_extender.decision_log.kept_hashes import KeptHashes
from joulie_extender.decision_log.promised_spool import PromisedSpool
from joulie_extender.decision_log.spool import Spool
from joulie_projections.twin.columns import TwinColumns

MANY = 100_000


def decided(number: int) -> FilterDecided:
    moment = DecisionContext(TwinColumns.empty(), 1, 0, NOON)
    return decide_filter(ask(f"pod-{number}"), ["n1", "n2"], moment, Weights())


def changed(message: bytes) -> bytes:
    """The same message, about another pod."""
    before = codec.open_envelope(message, "here")
    data = msgspec.Raw(codec.encode(decided(99)))
    return codec.seal(replace(before, key="pod-99", corr="pod-99", data=data))


class Replica:
    """One life. `published` are its messages, those of the life before it first."""

    def __init__(self, directory: Path, boot: str, name: str = "extender-0") -> None:
        self.clock = VirtualClock()
        self.spool, self.kept = Spool(directory), KeptHashes(directory)
        unsigned = self.kept.unsigned(self.spool.left_over())
        producer = Producer(name, CLUSTER, self.clock, boot)
        self.promised = PromisedSpool(producer, self.spool, unsigned, self.clock)

    @classmethod
    @contextlib.contextmanager
    def living(cls, directory: Path, boot: str = "b1") -> Generator["Replica", None, None]:
        """It ends as by a kill: nothing is signed or deleted at the end."""
        made = cls(directory, boot)
        with contextlib.closing(made.spool), contextlib.closing(made.kept):
            yield made

    def decides(self, *numbers: int, after_s: float = 0.1) -> None:
        for number in numbers:
            self.clock.advance(after_s)
            self.promised.append(decided(number))

    def drops(self, *numbers: int, patch: pytest.MonkeyPatch) -> None:
        """The disk is full for these."""
        with patch.context() as full:
            full.setattr(self.spool, "append", _refuse)
            for number in numbers:
                with pytest.raises(OSError, match="full"):
                    self.promised.append(decided(number))
        self.promised.append(DecisionsDropped(count=len(numbers), why="full"))

    def ships(self, count: int, lost: Sequence[int] = ()) -> None:
        """As a shipper does when the broker has the first messages; some of them it dropped."""
        found = self.spool.unshipped(count)
        if found.messages:
            kept = self.promised.kept(found.messages)
            self.kept.add(
                self.clock(), [replace(each, lost=at in lost) for at, each in enumerate(kept)]
            )
            self.spool.shipped(found)

    @property
    def published(self) -> list[Message]:
        return self.spool.unshipped(MANY).messages


def _refuse(_: Message) -> None:
    raise OSError(28, "the disk is full")
