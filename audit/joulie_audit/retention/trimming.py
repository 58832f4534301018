"""`joulie archive --trim`; the archiver of `joulie up` runs it after each pass.

Reads the archive again, compares it with the database row by row, and asks the projector to delete
what both hold. The archiver itself deletes nothing.
"""

import contextlib
import os
import socket
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import NamedTuple

from joulie_audit.access.kept_heads import public_key
from joulie_audit.access.past import CLIENT_NAME, history_of, own_broker
from joulie_audit.archive.parts import Archive
from joulie_audit.retention.cut_points import CutEvidence, CutOptions, asked_cut
from joulie_audit.retention.room import TRIMMED, Keep, keep_in_room
from joulie_bus.errors import BrokerRefused, BusError, NotTrimmed
from joulie_bus.jetstream.connection import NO_RESPONDERS
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.cut_requests import CutAnswer, answer_in, encode
from joulie_bus.streams.roles import Role
from joulie_projections.component.connecting import connected
from joulie_projections.component.wiring import Wiring
from joulie_projections.fold.commit import Cut
from joulie_projections.projector.trim_streams import anchored_heads
from joulie_projections.projector.trimmer import TrimTask

PATIENCE_S = 90.0  # longer than the projector deletes before it answers
log = get_logger("archive")


class CutMade(NamedTuple):
    cut: Cut | None  # the newest one; None: the log was never cut
    answer: CutAnswer


async def trim(to: Path, wires: Wiring, keep_s: float, *, follows_room: bool = False) -> CutMade:
    """Have archived data older than `keep_s` deleted from the streams and the database.

    With `follows_room`, also younger data if a stream runs out of room.
    """
    async with _deleter(wires) as bus:
        asking = _Asking(Archive.of(to), wires, bus)
        room = await _room(bus, keep_s) if follows_room else None
        answer = CutAnswer() if room is None else await asking.in_room(room.seconds, keep_s)
        answer = answer if answer.is_new else await asking.older_than(keep_s)
    with history_of(wires) as history:
        return CutMade(history.cut(), answer)


@contextlib.asynccontextmanager
async def _deleter(wires: Wiring) -> AsyncGenerator[JetStreamLog, None]:
    """A connection to the projector. If nothing runs in the data directory, this command holds the
    directory and deletes itself."""
    async with own_broker(wires) as broker:
        if broker is None:
            async with connected(wires, Role.ARCHIVIST) as bus:
                yield bus
            return
        async with (
            JetStreamLog.open(broker.address_of(Role.PROJECTOR), CLIENT_NAME) as own,
            JetStreamLog.open(broker.address_of(Role.ARCHIVIST), CLIENT_NAME) as bus,
        ):
            task = TrimTask(own, wires.subjects, wires.data.database, lambda: public_key(wires))
            async with background(task.run(), "trim"):
                await task.is_answering.wait()
                yield bus


async def _room(bus: JetStreamLog, keep_s: float) -> Keep | None:
    keep = keep_in_room([await bus.size(stream) for stream in TRIMMED], keep_s)
    if keep.short is None:
        return None
    log.warning("room_short", stream=str(keep.short), asked_s=int(keep_s), kept_s=int(keep.seconds))
    return keep


class _Asking:
    """Requests cuts of what the archive holds."""

    def __init__(self, archive: Archive, wires: Wiring, bus: JetStreamLog) -> None:
        self._archive = archive
        self._wires = wires
        self._bus = bus

    async def in_room(self, keep_s: float, asked_s: float) -> CutAnswer:
        """Never less than what the slowest standby of PostgreSQL lacks: after a failover to it, the
        projector reads these messages again. If that is not known, spools hold what a full stream
        refuses.
        """
        answer = await self._ask(keep_s, for_room=True)
        if answer.least_keep_s:
            answer = await self._ask(min(asked_s, answer.least_keep_s), for_room=True)
        if answer.refused:
            log.warning("room_not_followed", why=answer.refused)
        return answer

    async def older_than(self, keep_s: float) -> CutAnswer:
        answer = await self._ask(keep_s)
        if answer.refused:
            raise NotTrimmed(answer.refused)
        return answer

    async def _ask(self, keep_s: float, *, for_room: bool = False) -> CutAnswer:
        before = time.time_ns() - int(keep_s * 1e9)
        by = f"{socket.gethostname()}:{os.getpid()}"
        with history_of(self._wires) as history:
            signed = history.count_heads()
        anchored = await anchored_heads(self._bus, signed)
        evidence = CutEvidence(self._archive, anchored, public_key(self._wires))
        with history_of(self._wires) as history:
            asked = asked_cut(history, evidence, CutOptions(before, by, for_room=for_room))
        return CutAnswer() if asked is None else await self._answer(encode(asked))

    async def _answer(self, asked: bytes) -> CutAnswer:
        try:
            return answer_in(await self._bus.ask(self._wires.subjects.cuts, asked, PATIENCE_S))
        except BrokerRefused as error:
            if error.code != NO_RESPONDERS:
                raise
            raise NotTrimmed(
                "No projector leads, and only the projector deletes. Nothing was deleted. "
                "`joulie status` shows what runs; run this again when one does."
            ) from error
        except BusError as error:
            raise NotTrimmed(
                f"The projector did not answer: {error} What it deleted, if anything, was "
                "archived. Run this again."
            ) from error
