"""What waits in the spools of the extenders, by the report that each sends once a second."""

import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from joulie_answers.schema.responses import ReplicaSpool
from joulie_answers.views.status import replica_spool
from joulie_bus.streams.spool_report import SpoolReport

SILENT_S = 5.0  # five missed reports: nothing is known of the spool any more
FORGOTTEN_S = 600.0  # a replica that is gone for so long was removed
MOST_REPLICAS = 100
_read = msgspec.msgpack.Decoder(SpoolReport).decode


class _Heard(NamedTuple):
    report: SpoolReport
    at_s: float


class Spools:
    """The newest report of each replica."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard: dict[str, _Heard] = {}

    def hear(self, data: bytes) -> None:
        try:
            report = _read(data)
        except msgspec.MsgspecError:
            return  # of another version
        if report.ends and not report.waiting:
            self._heard.pop(report.replica, None)
        elif report.replica in self._heard or len(self._heard) < MOST_REPLICAS:
            self._heard[report.replica] = _Heard(report, self._clock())

    def all(self) -> list[ReplicaSpool]:
        """By the name of the replica. A spool that was not reported lately is not known."""
        now_s = self._clock()
        self._heard = {
            name: heard for name, heard in self._heard.items() if now_s - heard.at_s < FORGOTTEN_S
        }
        return [_spool(heard, now_s) for _, heard in sorted(self._heard.items())]

    def waiting(self) -> int | None:
        """In all of them; None if that of one is not known, or none is."""
        counts = [each.waiting for each in self.all()]
        known = [count for count in counts if count is not None]
        return sum(known) if known and len(known) == len(counts) else None


def _spool(heard: _Heard, now_s: float) -> ReplicaSpool:
    report, silent_s = heard.report, now_s - heard.at_s
    if silent_s > SILENT_S:
        return replica_spool(report.replica, None, None, silent_s)
    oldest_s = None if report.oldest_ms is None else report.oldest_ms / 1000
    return replica_spool(report.replica, report.waiting, oldest_s, silent_s)
