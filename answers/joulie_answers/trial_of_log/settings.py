"""What is tried: the settings of the log, each preset, kube-scheduler's default, and changes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from joulie_audit.ledger.pods_in_log import Lives
from joulie_audit.questions.whatif import Overrides
from joulie_bus.errors import NotTried
from joulie_bus.runtime.presets import HEADROOM, SAVINGS, SHIPPED
from joulie_bus.runtime.settings import Source
from joulie_extender.catalogue.weights import Weights
from joulie_extender.settings import ScoringSettings
from joulie_operator.planning.policies import BUILT_IN
from joulie_operator.planning.rules import Rules, numbers, rules_of
from joulie_operator.planning.sleep import SLEEPING_POLICY
from joulie_operator.settings import OperatorSettings
from joulie_simulator.energy.product import Product
from joulie_simulator.trial.past import AS_IT_RAN, DEFAULT

PRESETS = (SAVINGS, HEADROOM)
# Nothing here is capped, evicted or held to a target, so that these have no effect.
UNTRIED = frozenset(
    (
        *("power_target_w", "power_floor_pct", "caps_where_measured", "caps_trial"),
        *("evict_per_min", "evict_after_s"),
    )
)


class Change(NamedTuple):
    """A row of `--set`."""

    name: str
    changed: Mapping[str, str]
    overrides: Overrides = Overrides()
    numbers: Mapping[str, float] = {}  # of POLICY_NUMBERS


class TriedSetting(NamedTuple):
    name: str
    changed: Mapping[str, str]
    product: Product | None  # None: kube-scheduler's default, without sleep


def recorded(lives: Lives, weights: Weights, to_ms: int) -> Product | None:
    """The newest settings before this time. None: the log has no plans. Raises NotTried."""
    found = [each for each in lives.settings if each.since_ms < to_ms]
    if not found:
        return None
    if not found[-1].values:
        raise NotTried("The plans of the log do not hold the settings that they were made with")
    rules = rules_of(found[-1].values)
    if rules.dry_run:  # nothing was carried out: every node stays one of performance
        rules = rules._replace(policy="static_partition", static_hp_frac=1.0)
    return Product(tried(rules), weights)


def tried(rules: Rules) -> Rules:
    if rules.policy not in BUILT_IN:
        raise NotTried(f"POLICY_TYPE={rules.policy} is of another package, and is not simulated")
    given = numbers(rules.policy_numbers)
    kept = {name: each for name, each in given.items() if name.partition(".")[0] not in UNTRIED}
    return rules._replace(policy_numbers=text_of(kept), dry_run=False)


def text_of(given: Mapping[str, float]) -> str:
    return ",".join(f"{name}={value!r}" for name, value in given.items())


def settings_of(
    then: Product | None, weights: Weights, changes: Sequence[Change]
) -> list[TriedSetting]:
    """The first one is as it ran."""
    base = then or of_preset(weights.preset if weights.preset in SHIPPED else HEADROOM, None)
    return [
        TriedSetting(AS_IT_RAN, {}, then),
        *(
            TriedSetting(f"PRESET={name}", {"PRESET": name}, of_preset(name, then))
            for name in PRESETS
        ),
        TriedSetting(DEFAULT, {}, None),
        *(TriedSetting(each.name, each.changed, changed(base, each)) for each in changes),
    ]


def of_preset(name: str, then: Product | None) -> Product:
    """The preset gives defaults: what the log says of nodes, times and numbers stays."""
    source = Source.of(PRESET=name)
    rules, weights = source.load(OperatorSettings).rules(), source.load(ScoringSettings).weights()
    if then is not None:
        kept = ("policy_numbers", "selector", "interval_s")
        rules = rules._replace(**{each: getattr(then.rules, each) for each in kept})
    return Product(rules, weights)


def changed(then: Product, change: Change) -> Product:
    """Raises NotTried for a number that the policy does not read."""
    rules, weights = then
    if change.overrides.weights:
        weights = change.overrides.weights(weights)
    if change.overrides.rules:
        rules = change.overrides.rules(rules)
    if change.numbers:
        if rules.policy != SLEEPING_POLICY:
            raise NotTried(
                f"{next(iter(change.numbers))} is a number of {SLEEPING_POLICY}, and the plans of "
                f"this row are those of POLICY_TYPE={rules.policy}",
                f"Nothing was computed. Add --set POLICY_TYPE={SLEEPING_POLICY}.",
            )
        given = {**numbers(rules.policy_numbers), **change.numbers}
        rules = rules._replace(policy_numbers=text_of(given))
    return Product(tried(rules), weights)
