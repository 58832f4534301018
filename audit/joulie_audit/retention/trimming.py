"""`joulie archive --trim`; the archiver of `joulie up` runs it after each pass."""

import os
import socket
import time
from pathlib import Path

from joulie_audit.access.kept_heads import public_key
from joulie_audit.access.past import broker_of, history_of
from joulie_audit.archive.parts import Archive
from joulie_audit.retention.cut_points import CutOptions, heads_of
from joulie_audit.retention.trim import Trimmed, Trimmer
from joulie_audit.retention.trim_streams import newest_records
from joulie_bus.errors import NotTrimmed
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream
from joulie_projections.component.wiring import Wiring
from joulie_projections.history.trimming import TrimStore, require_trimmer
from joulie_projections.store import database
from joulie_projections.store.retrying import TRANSIENT


async def trim(to: Path, wires: Wiring, keep_s: float) -> Trimmed:
    """Delete archived data older than `keep_s` from the streams and the database."""
    public, archive = public_key(wires), Archive.of(to)
    engine = database.trimmer(wires.data.database)
    try:
        require_trimmer(engine)
        async with broker_of(wires, Role.ARCHIVIST) as bus:
            with history_of(wires) as history:
                signed = len(history.heads())
            # Each head is anchored once; the margin leaves room for statements about keys.
            anchored = heads_of(await newest_records(bus, Stream.HEADS, 2 * signed + 100))
            now = time.time_ns()
            wish = CutOptions(now - int(keep_s * 1e9), now, f"{socket.gethostname()}:{os.getpid()}")
            trimmer = Trimmer(archive, TrimStore(engine), lambda: history_of(wires), public)
            return await trimmer.run(bus, wires.subjects, anchored, wish)
    except TRANSIENT as error:
        place = database.without_password(wires.data.database)
        raise NotTrimmed(
            f"{place} refused a step of the trim: {error.orig}. The steps before it are complete; "
            "the next run continues from there."
        ) from error
    finally:
        engine.dispose()
