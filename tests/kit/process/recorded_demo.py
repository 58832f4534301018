"""The data directory of a demo that has ended: one worker records it, and all copy it."""

import fcntl
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from joulie_demo import demo


class RecordedDemo(NamedTuple):
    data: Path
    moment: str  # in the middle of the log, behind its first signed head


def recorded_once(shared: Path) -> RecordedDemo:
    """Records it below `shared`, unless another worker has."""
    made = shared / "recorded-demo"
    with (shared / "recorded-demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            _record(shared / "recording")
            (shared / "recording").rename(made)
    return RecordedDemo(made / "data", (made / "moment").read_text())


def _record(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)  # of a worker that failed
    place.mkdir()
    with demo(place / "data", "--nodes", "20", "--seed", "3") as started:
        started.await_decisions(20)
        started.wait_until(lambda: started.counts().signed_to > 0)
        (place / "moment").write_text(datetime.now(UTC).isoformat())
        started.await_decisions(started.counts().answers + 20)
        started.end()
