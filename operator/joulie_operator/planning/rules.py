"""Every setting that plans depend on, as one flat value.

It is flat because every `plan.made` contains it: `values_of` encodes it and `rules_of` decodes it.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, get_type_hints

from joulie_bus.runtime.presets import HEADROOM


class Rules(NamedTuple):
    """The settings of plans; the defaults are those of OperatorSettings."""

    policy: str = "static_partition"
    policy_numbers: str = ""  # name=number pairs of the policy
    selector: str = "joulie.io/managed=true"
    family_floor: str = "within"
    equal_nodes: str = "spread"  # or "by-name"
    interval_s: float = 60.0
    static_hp_frac: float = 0.5
    queue_hp_base_frac: float = 0.6
    queue_hp_min: int = 1
    queue_hp_max: int = 1_000_000
    queue_perf_per_hp_node: int = 10
    dwell_s: float = 0.0
    drain_deadline_s: float = 0.0
    caps_settle_s: float = 5.0
    max_changes: int = 0
    dry_run: bool = False
    cpu_performance_pct: int | None = 100  # None: no cap
    cpu_eco_pct: int | None = 60
    cpu_absolute: bool = False
    cpu_performance_w: float = 5000.0  # per socket
    cpu_eco_w: float = 120.0
    gpu_performance_pct: int | None = 100
    gpu_eco_pct: int | None = 60
    gpu_absolute: bool = False
    gpu_models: str = "{}"  # JSON: model to minCapWatts and maxCapWatts
    eco_without_caps: bool = True  # whether nodes become eco where no writer can set caps
    gpu_eco_clock_pct: int | None = None  # to which the cards of eco nodes are locked
    preset: str = HEADROOM  # where the defaults came from; plans do not depend on it

    def numbers(self) -> dict[str, float]:
        """The numbers that policies receive, by the names of the settings."""
        return {
            "STATIC_HP_FRAC": self.static_hp_frac,
            "QUEUE_HP_BASE_FRAC": self.queue_hp_base_frac,
            "QUEUE_HP_MIN": self.queue_hp_min,
            "QUEUE_HP_MAX": self.queue_hp_max,
            "QUEUE_PERF_PER_HP_NODE": self.queue_perf_per_hp_node,
            "RECONCILE_INTERVAL": self.interval_s,
            **numbers(self.policy_numbers),
        }


_TYPES = get_type_hints(Rules)
_WHOLE = frozenset(name for name, kind in _TYPES.items() if kind in (int, int | None))


def values_of(rules: Rules) -> dict[str, float | str | bool]:
    """None is left out: no number stands for "none"."""
    return {name: value for name, value in rules._asdict().items() if value is not None}


def rules_of(values: Mapping[str, float | str | bool]) -> Rules:
    """Decodes `values_of`: whole numbers may arrive as floats, and a missing cap is None."""
    absent = {name: None for name, kind in _TYPES.items() if kind == int | None}
    known = {name: value for name, value in values.items() if name in _TYPES}
    whole = {name: int(value) for name, value in known.items() if name in _WHOLE}
    fields: dict[str, Any] = {**absent, **known, **whole}
    return Rules(**fields)


def numbers(text: str) -> dict[str, float]:
    """name=number pairs, separated by commas"""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if any(not name.strip() for name, _, _ in pairs):
        raise ValueError("not a list of name=number")
    found = {name.strip(): float(value) for name, _, value in pairs}
    if not all(map(math.isfinite, found.values())):
        raise ValueError("not finite")
    return found
