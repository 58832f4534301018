"""`joulie archive --trim`; the archiver of `joulie up` runs it after each pass."""

import os
import socket
import time
from pathlib import Path
from typing import Any

from joulie_answers.text.times import shown
from joulie_audit.archive.parts import Archive
from joulie_audit.retention.cut_points import CutOptions, heads_of
from joulie_audit.retention.trim import Trimmed, Trimmer
from joulie_audit.retention.trim_streams import newest_records
from joulie_bus.errors import NotTrimmed
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream
from joulie_cli.display.times import MS
from joulie_cli.log_access.kept_heads import public_key
from joulie_cli.log_access.past import broker_of, history_of
from joulie_cli.wiring import Wiring
from joulie_projections.history.trimming import TrimStore, require_trimmer
from joulie_projections.store import database
from joulie_projections.store.retrying import TRANSIENT

MIB = 2**20


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


def as_json(done: Trimmed) -> dict[str, Any]:
    result = done._asdict()
    cut = done.cut
    result["cut"] = (
        None if cut is None else {"entry": cut.pos, "position": cut.p_to, "by": cut.made_by}
    )
    return result


def as_text(done: Trimmed) -> str:
    if done.cut is None:
        return (
            "Nothing was trimmed: nothing is archived, signed and anchored, older than the keep "
            "window (--keep, ARCHIVE_KEEP) and before a snapshot."
        )
    purged = ", ".join(f"{count} of {stream}" for stream, count in done.messages.items())
    lines = [
        f"The log is cut at entry {done.cut.pos} and position {done.cut.p_to} "
        f"({shown(done.cut.made_at // MS)}{'' if done.is_new else '; unchanged'}).",
        f"Deleted: {done.rows} rows ({done.freed / MIB:.1f} MiB freed), and messages: "
        f"{purged or 'none'}.",
    ]
    return "\n".join([*lines, *done.denied])
