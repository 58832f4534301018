"""Times for people, and RFC 3339 for other programs."""

from datetime import UTC, datetime

MS = 1_000_000  # ns


def utc_text(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def duration(seconds: float) -> str:
    """With a readable unit."""
    for least, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * least:
            return f"{seconds / least:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def rfc3339(ms: int, timespec: str = "milliseconds") -> str:
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return at.isoformat(timespec=timespec).removesuffix("+00:00") + "Z"
