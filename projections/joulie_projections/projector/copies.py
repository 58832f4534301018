"""Reports the servers of the broker whose copies of the streams lack messages."""

import asyncio
from collections.abc import Sequence

from joulie_bus.errors import BusError
from joulie_bus.log.protocol import Log
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.incomplete import REPAIR
from joulie_bus.streams.records import IncompleteCopy

ROUND_S = 5.0
log = get_logger("projector")


class CopyWatch:
    """`incomplete` is what the last round found."""

    def __init__(self, bus: Log) -> None:
        self._bus = bus
        self.incomplete: Sequence[IncompleteCopy] = ()

    async def follow(self) -> None:
        """Examines the copies until cancelled. A broker that does not answer changes nothing."""
        while True:
            try:
                self._note(await self._bus.incomplete_copies())
            except (BusError, OSError) as error:
                log.debug("copies_not_examined", error=str(error))
            await asyncio.sleep(ROUND_S)

    def _note(self, found: Sequence[IncompleteCopy]) -> None:
        before = {(copy.server, copy.stream) for copy in self.incomplete}
        now = {(copy.server, copy.stream) for copy in found}
        for server, stream in sorted(before - now):
            metrics.BROKER_MISSING.remove(server, stream)
            log.info("copy_complete_again", server=server, stream=stream)
        for server, stream, missing in found:
            metrics.BROKER_MISSING.labels(server=server, stream=stream).set(missing)
            if (server, stream) not in before:
                log.error(
                    "copy_incomplete", server=server, stream=stream, missing=missing, what=REPAIR
                )
        self.incomplete = found
