"""Timestamps as Kubernetes writes them: RFC 3339, UTC."""

from datetime import UTC, datetime

SECOND = 1_000_000_000


def rfc3339(at_ns: int) -> str:
    """As `metav1.Time`: with seconds."""
    return f"{_date_and_time(at_ns)}Z"


def rfc3339_micro(at_ns: int) -> str:
    """As `metav1.MicroTime`, which Leases and Events require: with six digits."""
    return f"{_date_and_time(at_ns)}.{at_ns % SECOND // 1000:06}Z"


def _date_and_time(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%S")
