"""The settings of plans."""

import math
import re
from dataclasses import dataclass, replace

import msgspec

from joulie_bus.errors import SettingsError
from joulie_bus.runtime.presets import HEADROOM, PRESET, PRESET_DOC, preset
from joulie_bus.runtime.settings import (
    Parser,
    boolean,
    choice,
    duration,
    integer,
    number,
    preset_number,
    setting,
    some_time,
)
from joulie_operator import plugins
from joulie_operator.planning import eligible, rules
from joulie_operator.planning.caps import model_caps as parsed_models
from joulie_operator.planning.caps import under_catalog_names
from joulie_operator.planning.policies import BUILT_IN
from joulie_operator.planning.policy_numbers import wrong_numbers
from joulie_operator.planning.rules import Rules
from joulie_projections.hardware.catalog import Catalog

CAPS_SETTLE_S = 5.0  # between a node's eco class and its eco caps, for pods that are on their way
MAX_VIEW_AGE_S = 30.0  # an older view may lack pods, and nodes would be capped that serve them


def selector(text: str) -> str:
    """label=value pairs, separated by commas; empty selects every node"""
    eligible.selector(text)
    return text


def policy_numbers(text: str) -> str:
    """a table of numbers; in the environment name=number pairs, separated by commas"""
    rules.numbers(text)
    return text


def policy(name: str) -> str:
    """static_partition, queue_aware_v1, consolidate_and_sleep, rule_swap_v1, or an entry point"""
    plugins.load_policy(name)
    return name


def model_caps(text: str) -> str:
    """JSON such as {"NVIDIA L4": {"minCapWatts": 40, "maxCapWatts": 72}}"""
    try:
        parsed_models(text)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    return text


def percent(text: str) -> int | None:
    """a number from 1 to 100, rounded down to a whole percent; or none for no cap"""
    if text == "none":
        return None
    if not re.fullmatch(r"\d{1,3}(\.\d{1,6})?", text):
        raise ValueError("not a percentage")
    value = math.floor(float(text))
    if value < 1:
        raise ValueError("less than one percent would stop the hardware")
    if float(text) > 100:
        raise ValueError("more than 100 percent")
    return value


_share: Parser[float] = number(0, 1)
_watts: Parser[float] = number(1, 1e6)


@dataclass(frozen=True, kw_only=True)
class OperatorSettings:
    preset: str = setting(preset, PRESET, HEADROOM, PRESET_DOC)
    interval_s: float = setting(
        some_time, "RECONCILE_INTERVAL", "1m", "Longest time between two plans", section="plans"
    )
    node_selector: str = setting(
        selector, "NODE_SELECTOR", "joulie.io/managed=true", "Nodes that the operator plans for"
    )
    policy: str = setting(
        policy,
        "POLICY_TYPE",
        "static_partition",
        "The policy that divides the nodes",
        section="plans",
    )
    policy_numbers: str = setting(
        policy_numbers,
        "POLICY_NUMBERS",
        "",
        "Numbers of consolidate_and_sleep or of a custom policy; power_target_w, power_floor_pct, "
        "caps_where_measured and caps_trial with every policy",
        section="plans",
        table=True,
    )
    family_floor: str = preset_number(
        choice("within", "always"),
        "family_floor",
        "within",
        "A performance node per hardware family: within the policy's number, or beyond it",
        "plans",
    )
    eco_without_caps: bool = preset_number(
        boolean,
        "eco_without_caps",
        "true",
        "Let nodes become eco although no writer reports that it can set their caps: such a node "
        "saves no power, and refuses pods of class performance",
        "plans",
    )
    static_hp_frac: float = setting(
        _share,
        "STATIC_HP_FRAC",
        "0.5",
        "static_partition: share of performance nodes",
        section="plans",
    )
    queue_hp_base_frac: float = setting(
        _share,
        "QUEUE_HP_BASE_FRAC",
        "0.6",
        "queue_aware_v1: base share of performance nodes",
        section="plans",
    )
    queue_hp_min: int = setting(
        integer(0),
        "QUEUE_HP_MIN",
        "1",
        "queue_aware_v1: minimum number of performance nodes",
        section="plans",
    )
    queue_hp_max: int = setting(
        integer(0),
        "QUEUE_HP_MAX",
        "1000000",
        "queue_aware_v1: maximum number of performance nodes",
        section="plans",
    )
    queue_perf_per_hp_node: int = setting(
        integer(1),
        "QUEUE_PERF_PER_HP_NODE",
        "10",
        "queue_aware_v1: performance pods per performance node",
        section="plans",
    )
    dwell_s: float = preset_number(
        duration, "profile_min_dwell", "0s", "Shortest time between two changes of a class", "plans"
    )
    drain_deadline_s: float = preset_number(
        duration,
        "drain_deadline",
        "0s",
        "Time after which a draining node gets eco caps despite running pods; 0s: never",
        "plans",
    )
    caps_settle_s: float = CAPS_SETTLE_S
    max_changes: int = preset_number(
        integer(0),
        "max_changes_per_tick",
        "0",
        "Maximum number of nodes that change within one RECONCILE_INTERVAL; 0: no limit",
        "plans",
    )
    max_view_age_s: float = MAX_VIEW_AGE_S
    dry_run: bool = setting(
        boolean, "PLAN_DRY_RUN", "false", "Publish plans without changing nodes"
    )
    cpu_performance_pct: int | None = setting(
        percent,
        "CPU_PERFORMANCE_CAP_PCT_OF_MAX",
        "100",
        "CPU cap of performance nodes",
        section="plans",
    )
    cpu_eco_pct: int | None = setting(
        percent, "CPU_ECO_CAP_PCT_OF_MAX", "60", "CPU cap of eco nodes", section="plans"
    )
    cpu_absolute: bool = setting(
        boolean,
        "CPU_WRITE_ABSOLUTE_CAPS",
        "false",
        "CPU caps in watts instead of percent",
        section="plans",
    )
    cpu_performance_w: float = setting(
        _watts,
        "PERFORMANCE_CAP_WATTS",
        "5000",
        "CPU cap of performance nodes, watts per socket",
        section="plans",
    )
    cpu_eco_w: float = setting(
        _watts, "ECO_CAP_WATTS", "120", "CPU cap of eco nodes, watts per socket", section="plans"
    )
    gpu_performance_pct: int | None = setting(
        percent,
        "GPU_PERFORMANCE_CAP_PCT_OF_MAX",
        "100",
        "GPU cap of performance nodes",
        section="plans",
    )
    gpu_eco_pct: int | None = setting(
        percent, "GPU_ECO_CAP_PCT_OF_MAX", "60", "GPU cap of eco nodes", section="plans"
    )
    gpu_eco_clock_pct: int | None = preset_number(
        percent,
        "gpu_eco_clock_pct_of_max",
        "none",
        "Highest clock of the cards of eco nodes with the label joulie.io/clocks=enforce",
        "plans",
    )
    gpu_absolute: bool = setting(
        boolean,
        "GPU_WRITE_ABSOLUTE_CAPS",
        "false",
        "GPU caps in watts beside percent",
        section="plans",
    )
    gpu_models: str = setting(
        model_caps,
        "GPU_MODEL_CAPS_JSON",
        "{}",
        "Cap ranges of GPU models, for nodes that do not report theirs",
    )

    def contradictions(self) -> list[str]:
        found = []
        if self.queue_hp_min > self.queue_hp_max:
            found.append(
                f"QUEUE_HP_MIN={self.queue_hp_min} is above QUEUE_HP_MAX={self.queue_hp_max}"
            )
        given = rules.numbers(self.policy_numbers)
        wrong = wrong_numbers(given, others=self.policy not in BUILT_IN)
        found.extend(f"POLICY_NUMBERS: {each}" for each in wrong)
        return found

    def naming_models_as(self, catalog: Catalog) -> "OperatorSettings":
        """Raises SettingsError if GPU_MODEL_CAPS_JSON has two ranges for one model of it."""
        try:
            return replace(self, gpu_models=under_catalog_names(self.gpu_models, catalog))
        except ValueError as error:
            raise SettingsError([f"GPU_MODEL_CAPS_JSON: {error}; give one of them"]) from error

    def rules(self) -> Rules:
        """What plans depend on; the rest is about when they are made."""
        named = {name: getattr(self, name) for name in Rules._fields if hasattr(self, name)}
        return Rules(**named, selector=self.node_selector)
