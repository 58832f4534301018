"""Whether eco nodes are capped, by what caps were measured to save.

A cap saves energy only if work slows down by less than power falls. With `caps_where_measured=1` in
POLICY_NUMBERS, eco nodes are capped only if pods of class standard were measured to finish with
less energy on capped nodes. Eco nodes run no pods of class performance.
"""

from collections.abc import Mapping
from typing import NamedTuple
from zlib import crc32

from joulie_bus.events import CapsMeasured, WorkloadClass
from joulie_operator.planning.rules import Rules, numbers
from joulie_projections.state.state import ClusterState

BY_MEASURE, TRIAL = "caps_where_measured", "caps_trial"  # in POLICY_NUMBERS, with every policy
LONGEST_NS = 90 * 86_400 * 1_000_000_000  # an older measurement says nothing of today's pods
_CLASS: WorkloadClass = "standard"  # the class that eco nodes run
_PARTS = 1000


class CapChoice(NamedTuple):
    applies: bool = True  # to all eco nodes; else only to those of the trial
    trial: float = 0.0  # share of the eco nodes that are capped all the same
    because: str = ""  # empty if the settings alone decide
    inputs: Mapping[str, float] = {}

    def caps(self, node: str) -> bool:
        """Whether this eco node has the caps of its class."""
        return self.applies or crc32(node.encode()) % _PARTS < self.trial * _PARTS


def cap_choice(cluster_state: ClusterState, rules: Rules, now: int) -> CapChoice:
    given = numbers(rules.policy_numbers)
    if not given.get(BY_MEASURE, 0):
        return CapChoice()
    trial = given.get(TRIAL, 0.0)
    effect = cluster_state.cap_effects.get(_CLASS)
    if effect is None:
        return _uncapped(trial, f"it is not measured what caps save for class {_CLASS}")
    if now - effect.at > LONGEST_NS:
        return _uncapped(trial, "what caps save was measured more than 90 days ago")
    found = effect.measured
    saves = found.high_permille < 0
    caps = "are" if saves else "are not"
    because = f"eco nodes {caps} capped: {_sentence(found)}"
    return CapChoice(saves, trial, because, {"caps_change_permille": found.mid_permille})


def _uncapped(trial: float, why: str) -> CapChoice:
    return CapChoice(False, trial, f"eco nodes are not capped: {why}")


def _sentence(found: CapsMeasured) -> str:
    low, mid, high = (
        f"{each / 10:+.1f}"
        for each in (found.low_permille, found.mid_permille, found.high_permille)
    )
    return (
        f"capped pods of class {found.workload} took {mid} % energy ({low} to {high} %, "
        f"{found.capped_pods} and {found.other_pods} pods)"
    )
