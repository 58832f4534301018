"""Times of answers, for people and for tables of other programs."""

from datetime import UTC, datetime


def shown(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def as_iso(ms: int) -> str:
    """RFC 3339, to the second."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
