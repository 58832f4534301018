"""From a world and the operator's settings to a plan, and the settings as the log keeps them. Pure.

Replay calls the very function that decided, with the settings that the plan itself names.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from joulie_bus.events import PlanMade
from joulie_operator.policies import static_partition
from joulie_operator.reconcile import Caps, Plan, candidates, plan
from joulie_projections.world import NodeState

_CAP, _LABEL = "cap_", "select_"


class Rules(NamedTuple):
    """All that a plan depends on beside the world."""

    policy: str
    hp_frac: float
    node_selector: Mapping[str, str]
    caps: Caps


def decide(nodes: Mapping[str, NodeState], view: int, rules: Rules) -> Plan:
    """What the policy wants of the world as it is at `view`."""
    wanted = static_partition(candidates(nodes, rules.node_selector), rules.hp_frac)
    made = plan(wanted, nodes, rules.policy, view, rules.caps)
    return made._replace(made=replace(made.made, settings=values_of(rules)))


def values_of(rules: Rules) -> dict[str, float | str]:
    caps = {f"{_CAP}{name}": value for name, value in rules.caps._asdict().items()}
    labels = {f"{_LABEL}{name}": value for name, value in sorted(rules.node_selector.items())}
    return {"policy": rules.policy, "hp_frac": rules.hp_frac, **caps, **labels}


def rules_of(made: PlanMade) -> Rules | None:
    """The counterpart of `values_of`; None for a plan that does not say what it was made by."""
    said = made.settings
    if not said:
        return None
    caps = {k.removeprefix(_CAP): int(v) for k, v in said.items() if k.startswith(_CAP)}
    labels = {k.removeprefix(_LABEL): str(v) for k, v in said.items() if k.startswith(_LABEL)}
    return Rules(str(said["policy"]), float(said["hp_frac"]), labels, Caps(**caps))
