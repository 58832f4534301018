"""Times of answers, for people."""

from datetime import UTC, datetime


def shown(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
