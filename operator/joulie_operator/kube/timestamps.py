"""Timestamps as Kubernetes writes them: RFC 3339, UTC. Pure, hence without `datetime`."""

SECOND = 1_000_000_000
_DAYS_IN_400_YEARS = 146_097


def rfc3339(at_ns: int) -> str:
    """As `metav1.Time`: with seconds."""
    return f"{_date_and_time(at_ns)}Z"


def rfc3339_micro(at_ns: int) -> str:
    """As `metav1.MicroTime`, which Leases and Events require: with six digits."""
    return f"{_date_and_time(at_ns)}.{at_ns % SECOND // 1000:06}Z"


def _date_and_time(at_ns: int) -> str:
    days, second = divmod(at_ns // SECOND, 86_400)
    year, month, day = _civil(days)
    hour, minute = second // 3600, second // 60 % 60
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second % 60:02}"


def _civil(days: int) -> tuple[int, int, int]:
    """The date of a day since 1970. Years start in March here, so that leap days come last."""
    era, day_of_era = divmod(days + 719_468, _DAYS_IN_400_YEARS)
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153  # months since March
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    return era * 400 + year_of_era + (month <= 2), month, day
