"""Pauses after failures in a row: each is twice as long as the last, up to a limit."""

_MOST_DOUBLINGS = 60  # 2.0 ** 60 is a number; no limit is so long


class Backoff:
    """`after` serves callers that count failures themselves, per object."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._failures = 0

    def failed(self) -> float:
        """Counts a failure; the seconds to wait now."""
        self._failures += 1
        return self.after(self._failures)

    def succeeded(self) -> None:
        self._failures = 0

    def after(self, failures: int) -> float:
        """The seconds to wait after so many failures in a row; 1 is the first."""
        return min(self._longest_s, self._first_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))
