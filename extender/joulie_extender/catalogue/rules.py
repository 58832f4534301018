"""The rules of the filter, in the order in which they are asked."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from joulie_bus.events import Duty, PodAsk
from joulie_extender.catalogue.weights import Weights
from joulie_extender.rules.cards import CardsAsked
from joulie_extender.rules.closed import Closed
from joulie_extender.rules.draining import Draining
from joulie_extender.rules.eco import Eco
from joulie_extender.rules.reserve import CoresPerCard, Reserve
from joulie_extender.rules.rule import PASSED, Codes, Rule, RuleInput, Verdict

RULES: tuple[Rule[Any], ...] = (
    CoresPerCard(),
    Eco(),
    Draining(),
    Closed(),
    Reserve(),
    CardsAsked(),
)


_OF_DUTY: dict[Duty, tuple[Rule[Any], ...]] = {
    "all": RULES,
    "gpu": tuple(rule for rule in RULES if rule.is_about_cards),
    "energy": tuple(rule for rule in RULES if not rule.is_about_cards),
}


class Filtered(NamedTuple):
    verdicts: Codes
    reason: str  # one reason for all refused nodes; it depends on the pod alone


def that_apply(asked: RuleInput, weights: Weights, duty: Duty) -> list[Rule[Any]]:
    """The rules that the request asks for and that may refuse the pod a node."""
    return [rule for rule in _OF_DUTY[duty] if rule.applies(asked, weights)]


def filtered(asked: RuleInput, weights: Weights, rules: Sequence[Rule[Any]]) -> Filtered:
    """The first rule that refuses a node gives the verdict; the reason names all rules."""
    verdicts: Codes | None = None
    reasons = list[str]()
    for rule in without_useless(rules):
        found = rule.verdicts(asked, weights)
        verdicts = found if verdicts is None else np.where(verdicts, verdicts, found)
        reasons.append(rule.reason(asked.pod, weights))
    if verdicts is None:
        return Filtered(np.zeros(len(asked.rows), np.uint8), "")
    return Filtered(verdicts, ", or ".join(reasons))


def without_useless(rules: Sequence[Rule[Any]]) -> Sequence[Rule[Any]]:
    """Without the rules about energy after one that refuses every node."""
    final = next((rule for rule in rules if rule.is_about_the_pod), None)
    return [each for each in rules if each.is_about_cards or each is final] if final else rules


# --- words --------------------------------------------------------------------------------------

_VERDICTS: dict[int, Verdict] = {
    int(verdict): verdict
    for verdict in [PASSED, *(each for rule in RULES for each in dict(rule.advice))]
}


def codes() -> Sequence[int]:
    """Those that have words."""
    return tuple(_VERDICTS)


def few_words_of(code: int) -> str:
    """For a list of nodes."""
    return _VERDICTS[code].few_words if code in _VERDICTS else f"refused with code {code}"


def sentence_of(code: int) -> str:
    """For one node."""
    return _VERDICTS[code].sentence if code in _VERDICTS else f"refused with code {code}"


def advice_of(code: int, pod: PodAsk) -> str:
    """What helps a pod that got this verdict; "" for a code of newer code."""
    giving = [rule for rule in RULES if code in dict(rule.advice)]
    own = [rule for rule in giving if rule.is_for(pod)]
    return next((dict(rule.advice)[_VERDICTS[code]] for rule in own or giving), "")
