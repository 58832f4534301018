"""Times for people, and RFC 3339 for other programs."""

from datetime import UTC, datetime


def shown(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def rfc3339(ms: int, timespec: str = "milliseconds") -> str:
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return at.isoformat(timespec=timespec).removesuffix("+00:00") + "Z"
