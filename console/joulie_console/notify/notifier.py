"""Looks at the cluster every few seconds, and hands what begins and ends to the webhook.

The view is followed all the time, which a console without notifications does only while it is used.
"""

import asyncio
import time

from joulie_bus.errors import JoulieError
from joulie_bus.runtime.logging import get_logger
from joulie_console.notify.integrity import Integrity
from joulie_console.notify.webhook import Webhook
from joulie_console.stream.poller import ClusterPoller
from joulie_console.views.conditions import Condition, conditions_of
from joulie_console.views.occurrences import Occurrences

LOOK_S = 5.0
CHECK_S = 60.0  # between two checks of the log
log = get_logger("notify")


class Notifier:
    def __init__(
        self, poller: ClusterPoller, integrity: Integrity, cluster: str, webhook: Webhook
    ) -> None:
        self._poller = poller
        self._integrity = integrity
        self._webhook = webhook
        self._occurrences = Occurrences(cluster)
        self._invalid: list[Condition] = []
        self._checked_at = float("-inf")

    async def watch(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await self._poller.attend()
            if self._poller.delta.number:
                await self._look()
            await asyncio.sleep(LOOK_S)

    async def _look(self) -> None:
        if time.monotonic() - self._checked_at >= CHECK_S:
            await self._check_log()
        poller = self._poller
        overview = poller.overview
        now = poller.live_view.now_ns()
        warnings = poller.cluster(overview, poller.ages).warnings
        found = conditions_of(warnings, overview.snapshot.cluster_state, now)
        for event in self._occurrences.update([*found, *self._invalid], now):
            self._webhook.put(event)

    async def _check_log(self) -> None:
        """A log that cannot be read stays what it was; the database has a warning of its own."""
        self._checked_at = time.monotonic()
        try:
            self._invalid = await self._integrity.flaws()
        except JoulieError as error:
            log.warning("log_not_checked", why=str(error))
