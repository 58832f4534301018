"""What pods use of the cores and of the cards that they request, by the readings of nodes without
and with cards."""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from joulie_answers.report.use import Requested, use_of
from joulie_answers.trial_of_log.metered import Span
from joulie_audit.ledger.pods_in_log import PodLife
from joulie_projections.energy.pods import NodeEntry, PodEntry, asked_power
from joulie_simulator.energy.closed_loop import Use


class Measured(NamedTuple):
    """Energy of pods above idle, in a part of the period."""

    span: Span
    pods_uj: Mapping[str, int]  # by node
    share: float  # of the time of nodes that were awake that readings cover

    def of(self, names: Set[str]) -> float:
        return sum(self.pods_uj.get(name, 0) for name in names) / self.share


def fitted(
    measured: Measured, lives: Sequence[PodLife], nodes: Mapping[str, NodeEntry], names: Set[str]
) -> Use:
    """Cores by nodes without cards, then cards by the others. Without one of these kinds, or pods
    on it, one factor stands for both."""
    with_cards = {name for name in names if nodes[name].capacity.gpus}
    without = names - with_cards
    plain = _Asked.on(without, measured.span, lives, nodes)
    mixed = _Asked.on(with_cards, measured.span, lives, nodes)
    if not plain.cpu_uj:
        both = use_of(mixed.requested, measured.of(names))
        return Use(both, both)
    cpu = use_of(plain.requested, measured.of(without))
    of_cards = mixed.requested._replace(linear_uj=mixed.requested.linear_uj - mixed.cpu_uj)
    if not of_cards.used_uj(1.0):
        return Use(cpu, cpu)
    return Use(cpu, use_of(of_cards, measured.of(with_cards) - cpu * mixed.cpu_uj))


class _Asked(NamedTuple):
    requested: Requested
    cpu_uj: int  # the part of cores

    @classmethod
    def on(
        cls,
        names: Set[str],
        span: Span,
        lives: Iterable[PodLife],
        nodes: Mapping[str, NodeEntry],
    ) -> "_Asked":
        here = [life for life in lives if life.start_ms and life.node in names]
        cpu_uj = sum(_cpu_uj(life, span, nodes[life.node]) for life in here)
        return cls(Requested.of(here, span, nodes), cpu_uj)


def _cpu_uj(life: PodLife, span: Span, node: NodeEntry) -> int:
    ms = max(0, min(life.end_ms or span[1], span[1]) - max(life.start_ms, span[0]))
    return asked_power(PodEntry.of(life.pod, life.node, life.start_ms), node.capacity).cpu * ms
