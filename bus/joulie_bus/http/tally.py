"""What a server counts of its connections.

Each reason is counted from 0: an alert on an increase does not see a series that begins with 1.
"""

from typing import NamedTuple

from prometheus_client import Counter

from joulie_bus.runtime import metrics
from joulie_bus.runtime.metrics import Gauge

REASONS = (
    *("bad_request", "certificate", "connections", "content_type", "handshake", "host"),
    *("not_read", "origin", "request_entity_too_large", "request_header_fields_too_large"),
    *("request_timeout", "service_unavailable", "transfer_encoding"),
)


class Tally(NamedTuple):
    refused: Counter  # by reason
    connections: Gauge

    def begin(self) -> None:
        self.connections.set(0)
        for reason in REASONS:
            self.refused.labels(reason=reason)

    def refuse(self, reason: str) -> None:
        self.refused.labels(reason=reason).inc()


EXTENDER = Tally(metrics.REQUESTS_REFUSED, metrics.CONNECTIONS)
ADMISSION = Tally(metrics.ADMISSION_REFUSED, metrics.ADMISSION_CONNECTIONS)
