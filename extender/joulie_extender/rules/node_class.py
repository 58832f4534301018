"""What rules know of the class of a candidate, and when they trust it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from joulie_bus.core.setting_fields import choice, preset_number
from joulie_extender.rules.rule import Codes, RuleInput, Verdict
from joulie_projections.twin.twin import NodeClass

DRAINING = Verdict(2, "draining", "the node is draining")
STALE = Verdict(4, "stale", "its state is too old, and filter_stale is 'closed'")
STALE_ADVICE = "The state of the nodes is old: check the operator and the projector."


@dataclass(frozen=True, kw_only=True)
class StaleClassSettings:
    filter_stale: str = preset_number(
        choice("label", "closed", "twin"),
        "filter_stale",
        "label",
        "Filter rule for a stale twin: use the label of the node (label), refuse the node "
        "(closed), or use the stale twin (twin)",
        "scores",
    )


class Case(NamedTuple):
    """The inputs of the rules for one candidate."""

    node_class: NodeClass
    fresh: bool  # is the class up to date?
    known: bool  # is there a twin?
    labelled: bool  # is the node labelled eco?
    closed: bool  # to class standard


CaseRule = Callable[[Case, str], int]
_EITHER = (False, True)
_CASES = [Case(*each) for each in product(NodeClass, _EITHER, _EITHER, _EITHER, _EITHER)]


def verdicts_by_case(asked: RuleInput, rule: CaseRule, filter_stale: str) -> Codes:
    """The rule is asked once for each case; candidates are a table lookup."""
    return _table(rule, filter_stale).take(_cases(asked))


@lru_cache
def _table(rule: CaseRule, filter_stale: str) -> Codes:
    return np.array([rule(case, filter_stale) for case in _CASES], np.uint8)


def _cases(asked: RuleInput) -> Codes:
    """The index in `_CASES` of each candidate. Labels of the request count before stored ones."""
    columns, rows = asked.twin_columns.columns, asked.rows
    labels = asked.eco_labels
    labelled = np.frombuffer(labels, np.bool_) if labels else columns["eco_label"].take(rows)
    cases = columns["node_class"].take(rows).astype(np.uint8)
    for each in (asked.fresh, rows > 0, labelled, columns["closed"].take(rows)):
        cases <<= 1
        cases |= each
    return cases


def is_trusted(case: Case, filter_stale: str) -> bool:
    return case.fresh or filter_stale == "twin"


def if_stale(case: Case, filter_stale: str) -> int:
    """Refuses a known twin that is too old, if the settings are `closed`."""
    return STALE if filter_stale == "closed" and case.known and not case.fresh else 0
