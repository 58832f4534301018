"""Failed attempts to publish that may succeed later: a full stream, a broker without a leader.

Logs the first refusal, then one in a while, and the end of the refusals. Counts every one. Never
raises: the caller decides what happens to the message meanwhile.
"""

import time
from collections.abc import Callable

from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger

LOG_EVERY_S = 60.0
log = get_logger("bus")


class Refusals:
    """The refusals of one publisher: `what` it publishes, `meanwhile` what happens to messages."""

    def __init__(
        self, what: str, meanwhile: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what = what
        self._counted = metrics.PUBLISH_REFUSED.labels(what=what)
        self._meanwhile = meanwhile
        self._clock = clock
        self._count = 0
        self._logged_at = 0.0

    def observe(self, error: Exception) -> None:
        self._count += 1
        self._counted.inc()
        now = self._clock()
        if self._count == 1 or now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            why = str(error) or type(error).__name__
            log.error(
                "not_published",
                what=self._what,
                why=why,
                times=self._count,
                meanwhile=self._meanwhile,
            )

    def ended(self) -> None:
        """An attempt succeeded."""
        if self._count:
            log.warning("published_again", what=self._what, after_refusals=self._count)
            self._count = 0
