"""Mends that can be taken out of the product, to see that the simulation finds what they mend."""

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from joulie_bus.jetstream.copies import Copies
from joulie_bus.jetstream.reader import ConsumerReader
from joulie_bus.log.protocol import Log
from joulie_bus.streams.records import StreamTip
from joulie_extender.current_snapshot import CurrentSnapshot
from joulie_projections.decision_log import log as decision_log
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.decision_log.writer import DecisionWriter
from joulie_projections.projector import projector
from joulie_projections.projector.copies import CopyWatch
from joulie_projections.projector.lag import StreamEnds
from joulie_projections.projector.liveness import Liveness
from joulie_projections.projector.projector import Projector
from joulie_projections.state.deltas import Delta
from joulie_projections.store import copying
from joulie_projections.store.retrying import TRANSIENT
from joulie_projections.store.store import Store
from joulie_projections.view.view import View, ViewSnapshot

Patch = pytest.MonkeyPatch


def _append_anywhere(patch: Patch) -> None:
    """An append does not require the entry that it follows."""
    patch.setattr(decision_log, "_require_entry", lambda *_: None)


def _renew_without_the_broker(patch: Patch) -> None:
    """A lease is renewed although the broker does not answer."""

    async def keep_lease(self: Any) -> None:
        while True:
            await asyncio.sleep(self._settings.lease_s / 3)
            lease = (self._leadership.epoch, self._settings.lease_s, self._cursor.position)
            try:
                await self._calls.once(self._store.renew, *lease, lambda: self._lag.behind_s)
            except TRANSIENT:
                continue

    patch.setattr(Projector, "_keep_lease", keep_lease)


def _trust_any_leader(patch: Patch) -> None:
    """An answer of the broker counts although no majority confirms it."""
    answer: Any = vars(StreamEnds)["_answer"]

    async def trusted(self: StreamEnds, until_ran: float) -> Sequence[StreamTip]:
        return [tip._replace(unconfirmed_ns=0) for tip in await answer(self, until_ran)]

    patch.setattr(StreamEnds, "_answer", trusted)


def _freeze_the_age_of_snapshots(patch: Patch) -> None:
    """An answer has the age that its snapshot had when it was taken."""

    def frozen(self: Any) -> ViewSnapshot:
        ready: ViewSnapshot = self._ready
        return ready

    patch.setattr(CurrentSnapshot, "snapshot", frozen)


def _sign_an_older_copy(patch: Patch) -> None:
    """A projector signs the end of a log that has not reached the newest signed head again."""
    patch.setattr(DecisionLog, "_expect", lambda *_: None)


def _apply_any_change(patch: Patch) -> None:
    """A view applies changes of another history to its rows."""
    apply: Any = vars(View)["_apply"]

    def any_history(self: View, delta: Delta) -> None:
        apply(self, replace(delta, sent=None))

    patch.setattr(View, "_apply", any_history)


def _start_ready(patch: Patch) -> None:
    """A projector that takes over stays as ready as a standby."""
    patch.setattr(Liveness, "start_to_lead", lambda _: None)


def _examine_no_copies(patch: Patch) -> None:
    """Copies of streams are not examined."""

    async def nothing(_: CopyWatch) -> None:
        await asyncio.Event().wait()

    patch.setattr(CopyWatch, "follow", nothing)


def _believe_each_copy(patch: Patch) -> None:
    """What the copy of one server lacks counts as what the stream lacks."""
    patch.setattr(Copies, "are_several", False)


def _read_no_batches(patch: Patch) -> None:
    """A reader waits for its consumer, however long the broker makes none."""

    async def nothing(_: ConsumerReader) -> None: ...

    patch.setattr(ConsumerReader, "_read_batch", nothing)


def _keep_guards(patch: Patch) -> None:
    """The guards of append-only tables see what a copy of a database inserts."""
    patch.setattr(copying, "_without_guards", lambda _: contextlib.nullcontext())


def _empty_replaces_nothing(patch: Patch) -> None:
    """An empty database does not record that it replaces another one."""

    async def nothing(_: Log) -> bool:
        return False

    patch.setattr(projector, "was_decided_on", nothing)


def _trust_any_timeline(patch: Patch) -> None:
    """A projector commits to a server that was promoted, as if nothing could be lost."""
    patch.setattr(Store, "_require_timeline", lambda *_: None)


def _heed_no_late_heads(patch: Patch) -> None:
    """A leader does not look for heads that the one before it published late."""

    async def nothing(_: DecisionWriter) -> None: ...

    patch.setattr(DecisionWriter, "_heed_others", nothing)


def _lead_without_the_broker(patch: Patch) -> None:
    """A projector renews its lease while it begins, however long the broker is silent."""
    patch.setattr(projector, "FRESH_S", math.inf)


# The mends, each with a part of what the simulation reports without it.
MENDS: Mapping[str, tuple[Callable[[Patch], None], str]] = {
    "an append requires the entry that it follows": (_append_anywhere, "ended by itself"),
    "no lease is renewed without the broker": (_renew_without_the_broker, "was not folded"),
    "only a majority confirms the broker": (_trust_any_leader, "is ready, and reached no majority"),
    "a snapshot ages": (_freeze_the_age_of_snapshots, "states an age of"),
    "no older copy is signed": (_sign_an_older_copy, "the database lost 1 signed head"),
    "a view applies changes of its own history": (_apply_any_change, "states an age of"),
    "a copy that lacks messages is named": (_examine_no_copies, "no heartbeat names"),
    "a gap in one copy is read elsewhere": (_believe_each_copy, "ended by itself: StreamGap"),
    "any copy is read while no consumer can be made": (_read_no_batches, "was not folded"),
    "a copy of a trimmed log passes the guards": (_keep_guards, "the simulation itself"),
    "an empty database records what it replaces": (_empty_replaces_nothing, "mismatches"),
    "a commit notices a promoted server": (_trust_any_timeline, "mismatches"),
    "a head that was published late is restored": (
        _heed_no_late_heads,
        "the database lost 1 signed head",
    ),
    "no leadership begins without the broker": (_lead_without_the_broker, "was not folded"),
    "a projector that takes over is not ready": (_start_ready, "is ready, and reached no majority"),
}
# The seeds lose the quorum for 5 s at most, and it takes 8 s to show what two of these mend. A copy
# lacks messages for 21 s at most, and is named within a minute. The last six are rare.
BY_FAULTS_ONLY = {
    "only a majority confirms the broker",
    "a projector that takes over is not ready",
    "a copy that lacks messages is named",
    "a gap in one copy is read elsewhere",
    "any copy is read while no consumer can be made",
    "a copy of a trimmed log passes the guards",
    "a commit notices a promoted server",
    "a head that was published late is restored",
    "no leadership begins without the broker",
}
