"""Which limits the writer can set, as it reports them before any order. No limit is touched."""

from collections.abc import Callable, Mapping, Sequence

from joulie_agent.caps.actuators import Actuator
from joulie_agent.caps.writer import Outcome
from joulie_bus.events import CapsSettable
from joulie_bus.events.bounds import clipped

REFUSED_S = 600.0  # a limit that was refused would be refused again: its node would swing
NO_LIMIT = {
    "cpu": "the processors of this node have no limit that can be set",
    "gpu": "the cards of this node have no limit that can be set",
}


class RecentRefusals:
    """The limits that were not as ordered within the last minutes, and why."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._refused: dict[str, tuple[str, float]] = {}

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        until_s = self._clock() + REFUSED_S
        self._refused |= {each.name: (each.refused, until_s) for each in outcomes if each.refused}

    def why(self, name: str) -> str:
        why, until_s = self._refused.get(name, ("", 0.0))
        return why if self._clock() < until_s else ""


def _can_lock(actuators: Sequence[Actuator], whys: Mapping[str, str]) -> bool:
    locks = [each.name for each in actuators if each.kind == "clocks"]
    return bool(locks) and not any(whys[name] for name in locks)


def settable(
    node: str, actuators: Sequence[Actuator], obstacles: Mapping[str, str], refused: RecentRefusals
) -> CapsSettable:
    """A kind counts if all of its limits can be set: a single one that cannot may draw up to its
    own limit."""
    kinds = {each.name: each.kind for each in actuators}
    whys = {name: obstacles[name] or refused.why(name) for name in kinds}
    found = {kind: [whys[name] for name, of in kinds.items() if of == kind] for kind in NO_LIMIT}
    reasons = [f"{name}: {why}" for name, why in whys.items() if why]
    reasons += [why for kind, why in NO_LIMIT.items() if not found[kind]]
    has_cards = bool(found["gpu"]) and not any(found["gpu"])
    return CapsSettable(
        node=node,
        cpu=bool(found["cpu"]) and not any(found["cpu"]),
        gpu=has_cards,
        clocks=_can_lock(actuators, whys),
        cards=has_cards and all(each.card for each in actuators if each.kind == "gpu"),
        because=clipped("\n".join(reasons)),
    )
