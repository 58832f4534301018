"""What the simulator knows of the whole, and the statements of components that it compares."""

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path

from simulated_database import Committed
from virtual_time import RUNNING, VirtualLoop

from bus_kit.memory_broker import MemoryBroker
from joulie_bus.events import AnyEvent, Basis, codec
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import MERGE_ORDER
from joulie_extender.decision_log.spool import Spool
from joulie_projections.fold.commit import Inputs
from joulie_projections.state.completeness import NEVER_MS

SLACK_S = 0.05  # ages count whole milliseconds, from the shortest way of a message on
# A reader knows no shorter way than that of its first messages. They are late where the sender's
# link is slow.
YOUNG_S, YOUNG_SLACK_S = 2.0, 1.0


class Truth:
    def __init__(
        self, broker: MemoryBroker, clock: Callable[[], int], fail: Callable[[str], None]
    ) -> None:
        self.spooled: dict[str, AnyEvent] = {}  # by id: decisions that an extender has kept
        self.fail = fail
        self._broker = broker
        self._clock = clock
        self._committed: dict[tuple[str, int], Inputs] = {}
        self._kept: Counter[str] = Counter()  # decisions about a pod, and replies about it
        self._replied: Counter[str] = Counter()

    # --- what is stored ---

    def committed(self, found: Committed | None) -> None:
        """To be called after each attempt to commit."""
        if found is None:
            return
        incarnation, position, inputs = found
        if self._committed.setdefault((incarnation, position), inputs) != inputs:
            self.fail(f"position {position} stands for two histories in one incarnation")

    def spooled_by(self, who: str, message: Message) -> None:
        event = codec.decoded(message.data, who)
        self.spooled[message.id] = event
        self._kept[event.key] += 1
        basis = getattr(event, "basis", None)
        if isinstance(basis, Basis):
            self.check_age(
                f"an answer of {who}", basis.incarnation, basis.view, basis.behind_ms or 0
            )

    def answered(self, verb: str, uid: str) -> None:
        self._replied[uid] += 1
        if self._replied[uid] > self._kept[uid]:
            self.fail(f"the reply to {verb} about {uid} was given and not kept")

    # --- statements ---

    def check_age(self, who: str, incarnation: str, position: int, behind_ms: int) -> None:
        """A state `behind_ms` old includes everything that was stored before then. To be called in
        the process that states it.
        """
        if behind_ms >= NEVER_MS:
            return
        inputs = self._committed.get((incarnation, position), {})
        process = RUNNING.get()
        assert process is not None
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        is_young = loop.time() - process.began_at < YOUNG_S
        slack_s = YOUNG_SLACK_S if is_young else SLACK_S
        back_s = behind_ms / 1000 + slack_s
        back_s += loop.skipped_since(loop.time() - back_s)
        moment = self._clock() - int(back_s * 1e9)
        for stream in MERGE_ORDER:
            kept = self._broker.stream(stream)
            stored = kept.first - 1 + bisect_right(kept.records, moment, key=attrgetter("at"))
            read = inputs[stream].sequence if stream in inputs else 0
            if stored > read:
                late_s = (self._clock() - kept.after(read)[0].at) / 1e9
                self.fail(
                    f"{who} states an age of {behind_ms} ms at position {position}, and lacks a "
                    f"message of {stream} that was stored {late_s:.2f} s before"
                )
                return

    def oldest_unread_s(self, inputs: Inputs) -> float:
        """How long the oldest fact waits that is not folded."""
        waits = 0.0
        for stream in MERGE_ORDER:
            read = inputs[stream].sequence if stream in inputs else 0
            if unread := self._broker.stream(stream).after(read):
                waits = max(waits, (self._clock() - unread[0].at) / 1e9)
        return waits


class ObservedSpool(Spool):
    """A spool whose content the simulator remembers: an answer was kept before it was given."""

    def __init__(self, directory: Path, who: str, truth: Truth) -> None:
        super().__init__(directory)
        self._who = who
        self._truth = truth

    def append(self, message: Message) -> None:
        super().append(message)
        self._truth.spooled_by(self._who, message)
