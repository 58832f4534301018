"""Which decisions were made on state that the database lost.

A failover to a standby that lagged, or an older copy, sets the database back. The facts after that
position are folded again, in an order that may differ, so a decision on the lost state may not be
recomputed. Each set-back is an entry of the log, and each decision names its incarnation. A plan
names none, and an empty database knows of none before it: then the times of the decision and of the
entry are compared.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from joulie_audit.replay.recorded import events_of
from joulie_bus.events import StateSetBack
from joulie_projections.history.history import History

CLOCKS_NS = 60 * 10**9  # how far the clocks of two machines may be apart


class Recorded(NamedTuple):
    at: int  # by the clock of the projector that began the new incarnation
    event: StateSetBack


class SetBacks:
    def __init__(self, found: Sequence[Recorded]) -> None:
        """`found` are in the order of the log."""
        self._found = found
        self._shared = _shared_positions([each.event for each in found])

    @classmethod
    def of(cls, history: History) -> "SetBacks":
        entries = list(history.set_backs())
        read = [(entry.decided_at, event) for entry in entries for event in events_of([entry])]
        return cls([Recorded(at, e) for at, e in read if isinstance(e, StateSetBack)])

    def took_back(self, incarnation: str, view: int, now: int) -> bool:
        """Whether the state at position `view` of the incarnation is not in the log."""
        if (shared := self._shared.get(incarnation)) is not None:
            return view > shared
        return _is_before([each for each in self._found if not each.event.before], view, now)

    def took_back_plan(self, view: int, now: int) -> bool:
        return _is_before(self._found, view, now)


def _is_before(found: Sequence[Recorded], view: int, now: int) -> bool:
    return any(view > each.event.position and now < each.at + CLOCKS_NS for each in found)


def _shared_positions(found: Sequence[StateSetBack]) -> dict[str, float]:
    """Up to which position each incarnation has the same history as the newest one.

    A rebuild begins an incarnation without an entry: it loses nothing.
    """
    shared: dict[str, float] = {found[-1].incarnation: math.inf} if found else {}
    for number, each in reversed(list(enumerate(found))):
        if each.incarnation not in shared:
            continue  # another standby was promoted, which lacks this incarnation
        common = min(shared[each.incarnation], each.position)
        shared.setdefault(each.before, common)
        known = {name for one in found[:number] for name in (one.incarnation, one.before)}
        if number and each.before not in known:  # a rebuild of the one before
            shared.setdefault(found[number - 1].incarnation, common)
    for each in found:
        shared.setdefault(each.incarnation, min(each.position, shared.get(each.before, math.inf)))
    shared.pop("", None)  # not the name of one: what an empty database replaced
    return shared
