"""What was answered about a pod, both verbs together, as a line for people."""

from collections.abc import Iterable
from typing import NamedTuple

from joulie_bus.events import AnyEvent, FilterDecided, PrioritizeDecided


class Placement(NamedTuple):
    pod: str  # namespace/name
    workload: str
    share: str  # of the nodes that were asked about, how many pass
    node: str  # the best for it; empty if there is none
    answer: str


class _Both:
    """The newest answers about one pod."""

    def __init__(self) -> None:
        self.filter: FilterDecided | None = None
        self.prioritize: PrioritizeDecided | None = None

    def take(self, event: AnyEvent) -> None:
        """Newer ones first; scores older than a filter were about another try."""
        if isinstance(event, PrioritizeDecided) and not (self.filter or self.prioritize):
            self.prioritize = event
        if isinstance(event, FilterDecided) and self.filter is None:
            self.filter = event


def placements(newest: Iterable[AnyEvent]) -> list[Placement]:
    """The newest first. A pod that passed and has no scores yet is still on its way."""
    pods: dict[str, _Both] = {}
    for event in newest:
        if isinstance(event, FilterDecided | PrioritizeDecided):
            pods.setdefault(event.pod.uid, _Both()).take(event)
    told = [_told(both.filter, both.prioritize) for both in pods.values()]
    return [placement for placement in told if placement is not None]


def _told(first: FilterDecided | None, scored: PrioritizeDecided | None) -> Placement | None:
    event = scored or first
    if event is None:
        return None
    asked = len((first or event).candidates.ordinals) // 4
    passed = sum(verdict == 0 for verdict in first.verdicts) if first else asked
    if scored is None and passed:
        return None
    best = scored.top[0] if scored and scored.top else None
    pod, share = f"{event.pod.namespace}/{event.pod.name}", f"{passed}/{asked}"
    if best is None:
        return Placement(
            pod, event.pod.workload, share, "", f"waits: {first.reason}" if first else ""
        )
    answer = (
        f"{best.node:<14} {best.score:4.0f} = headroom {best.headroom:.0f} %, "
        f"cooling {best.cooling:.0f}, {best.marginal_w:+.0f} W"
    )
    return Placement(pod, event.pod.workload, share, best.node, answer)
