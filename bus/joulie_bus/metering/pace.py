"""When a reading is worth a message: on a change, and at least once per interval."""

from typing import NamedTuple

SHARE, LEAST_MW = 0.05, 20_000  # a change of 5 percent, and of 20 W at least


class Pace(NamedTuple):
    longest_s: float = 10.0
    shortest_s: float = 1.0


USUAL = Pace()


class Published(NamedTuple):
    """The reading that was published last."""

    at_s: float
    power_mw: int


def is_worth_it(last: Published | None, at_s: float, power_mw: int, pace: Pace) -> bool:
    if last is None:
        return True
    passed_s = at_s - last.at_s
    if passed_s < pace.shortest_s:
        return False
    return passed_s >= pace.longest_s or has_changed(last.power_mw, power_mw)


def has_changed(before_mw: int, after_mw: int) -> bool:
    return abs(after_mw - before_mw) > max(SHARE * before_mw, LEAST_MW)
