"""What a run of `joulie up` or `joulie demo` leaves undone."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from joulie_cli.supervisor.supervisor import Supervisor
from joulie_extender.decision_log.spool import waiting_in

FAILED = 1  # the exit code


class Unfinished(NamedTuple):
    """`spooled` entries are on the disk and not at the broker, `unwritten` ones are at the broker
    and not in the log; None: the broker did not answer."""

    spool: Path
    spooled: int
    unwritten: int | None
    disk_full_s: float
    disk: str  # the sentence about a disk that was full

    @classmethod
    def after(cls, stopped: Supervisor, spool: Path) -> "Unfinished":
        replicas = spool.iterdir() if spool.is_dir() else ()
        spooled = sum(waiting_in(replica) for replica in replicas if replica.is_dir())
        disk = stopped.disk
        return cls(spool, spooled, stopped.unwritten, disk.full_s, disk.sentence)

    @property
    def has_failed(self) -> bool:
        """Whether something is missing for good."""
        return bool(self.disk)

    def as_json(self) -> dict[str, object]:
        return {
            "spooled": self.spooled,
            "unwritten": self.unwritten,
            "disk_full_s": round(self.disk_full_s, 1),
        }

    def sentences(self) -> Iterator[str]:
        if self.disk:
            yield self.disk
        if self.spooled:
            yield (
                f"{self.spooled} entries of the log wait in {self.spool}: the broker did not take "
                "them in time. The next start adds them."
            )
        if self.unwritten is None:
            yield (
                "The broker did not answer at the end: it may hold entries that are not in the "
                "log. The next start adds them."
            )
        elif self.unwritten:
            yield (
                f"{self.unwritten} entries are at the broker and not in the log: the projector "
                "did not write them in time. The next start adds them."
            )
