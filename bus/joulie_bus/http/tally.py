"""What a server counts of its connections."""

from typing import NamedTuple

from prometheus_client import Counter, Gauge

from joulie_bus.runtime import metrics


class Tally(NamedTuple):
    refused: Counter  # by reason
    connections: Gauge

    def refuse(self, reason: str) -> None:
        self.refused.labels(reason=reason).inc()


EXTENDER = Tally(metrics.REQUESTS_REFUSED, metrics.CONNECTIONS)
ADMISSION = Tally(metrics.ADMISSION_REFUSED, metrics.ADMISSION_CONNECTIONS)
