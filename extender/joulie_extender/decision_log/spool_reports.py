"""Reports what waits in the spool of this replica, for components that do not see its disk."""

import asyncio

import msgspec

from joulie_bus.log.protocol import Log
from joulie_bus.streams.spool_report import SpoolReport
from joulie_bus.streams.subjects import Subjects
from joulie_extender.decision_log.shipping import Shipper

REPORT_S = 1.0
_encode = msgspec.msgpack.Encoder().encode


class SpoolReports:
    """Of one replica, while it is connected to the broker."""

    def __init__(self, bus: Log, subjects: Subjects, replica: str, shipper: Shipper) -> None:
        self._bus = bus
        self._subject = subjects.spool(replica)
        self._replica = replica
        self._shipper = shipper

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await self.send()
            await asyncio.sleep(REPORT_S)

    async def send(self, *, ends: bool = False) -> None:
        await self._bus.send_live(self._subject, _encode(self._report(ends=ends)))

    def _report(self, *, ends: bool) -> SpoolReport:
        oldest_s = self._shipper.oldest_s
        return SpoolReport(
            replica=self._replica,
            waiting=self._shipper.spooled,
            oldest_ms=None if oldest_s is None else round(oldest_s * 1000),
            ends=ends,
        )
