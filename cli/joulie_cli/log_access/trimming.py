"""`joulie archive --trim`, and what the archiver of `joulie up` does after each pass."""

import os
import socket
import time
from pathlib import Path
from typing import Any

from joulie_audit.archive.parts import Archive
from joulie_audit.retention.cut_points import CutOptions, heads_of
from joulie_audit.retention.trim import Trimmed, Trimmer
from joulie_audit.retention.trim_streams import newest_records
from joulie_bus.errors import NotTrimmed
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream
from joulie_cli.display.time_arguments import shown
from joulie_cli.log_access.kept_heads import public_key
from joulie_cli.log_access.past import broker_of, history_of
from joulie_cli.wiring import Wiring
from joulie_projections.history.trimming import TrimStore, require_trimmer
from joulie_projections.store import database
from joulie_projections.store.retrying import TRANSIENT

MIB = 2**20


async def trim(to: Path, wires: Wiring, keep_s: float) -> Trimmed:
    """Behind what the archive holds and what is older than that."""
    public, archive = public_key(wires), Archive.of(to)
    engine = database.trimmer(wires.data.database)
    try:
        require_trimmer(engine)
        async with broker_of(wires, Role.ARCHIVIST) as bus:
            with history_of(wires) as history:
                signed = len(history.heads())
            # Each head is anchored once; twice as many and some hold the statements between them.
            anchored = heads_of(await newest_records(bus, Stream.HEADS, 2 * signed + 100))
            now = time.time_ns()
            wish = CutOptions(now - int(keep_s * 1e9), now, f"{socket.gethostname()}:{os.getpid()}")
            trimmer = Trimmer(archive, TrimStore(engine), lambda: history_of(wires), public)
            return await trimmer.run(bus, wires.subjects, anchored, wish)
    except TRANSIENT as error:
        place = database.without_password(wires.data.database)
        raise NotTrimmed(
            f"{place} refused a step of the trim: {error.orig}. What was done before it stands, "
            "and the next run goes on from there."
        ) from error
    finally:
        engine.dispose()


def as_json(done: Trimmed) -> dict[str, Any]:
    told = done._asdict()
    cut = done.cut
    told["cut"] = (
        None if cut is None else {"entry": cut.pos, "position": cut.p_to, "by": cut.made_by}
    )
    return told


def as_text(done: Trimmed) -> str:
    if done.cut is None:
        return (
            "Nothing was trimmed: nothing is archived, signed and anchored, older than the keep "
            "window (--keep, ARCHIVE_KEEP) and in front of a snapshot."
        )
    purged = ", ".join(f"{count} of {stream}" for stream, count in done.messages.items())
    lines = [
        f"The log is cut at entry {done.cut.pos} and position {done.cut.p_to} "
        f"({shown(done.cut.made_at)}{'' if done.is_new else '; nothing to add'}).",
        f"Deleted: {done.rows} rows ({done.freed / MIB:.1f} MiB given back), and messages: "
        f"{purged or 'none'}.",
    ]
    return "\n".join([*lines, *done.denied])
