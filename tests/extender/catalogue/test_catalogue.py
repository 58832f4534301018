"""Rules and terms are declared once: their modules, their names, and the code that lists them."""

import ast
import dataclasses
import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from joulie_bus.core.setting_fields import NoSettings
from joulie_bus.runtime.settings import Source
from joulie_extender import rules, terms
from joulie_extender.catalogue.rules import RULES
from joulie_extender.catalogue.terms import FIRST, FORMULAS, TERMS, Formula
from joulie_extender.catalogue.weights import Weights
from joulie_extender.rules.rule import PASSED, Rule
from joulie_extender.settings import ScoringSettings
from joulie_extender.terms.term import Term

ROOT = Path(__file__).parents[3]


def declared_in(package: ModuleType, kind: type) -> set[type]:
    """The concrete classes of this kind in the modules of a package."""
    found = set()
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for each in vars(importlib.import_module(module.name)).values():
            if isinstance(each, type) and issubclass(each, kind) and hasattr(each, "name"):
                found.add(each)
    return found


def test_the_catalogue_has_every_rule_and_every_term_that_a_module_declares() -> None:
    assert {type(rule) for rule in RULES} == declared_in(rules, Rule)
    assert {type(term) for term in TERMS} == declared_in(terms, Term)


@pytest.mark.parametrize("formula", FORMULAS.values(), ids=list(FORMULAS))
def test_a_formula_names_each_of_its_terms_once_and_says_what_it_is(formula: Formula) -> None:
    names = Counter(term.name for term in formula.terms)

    assert [name for name, times in names.items() if times > 1] == []
    assert [term.name for term in formula.terms if not term.meaning] == []


def test_two_columns_of_nodes_with_one_name_are_the_same_column() -> None:
    columns = {column for term in TERMS for column in term.columns}

    assert len({name for name, _ in columns}) == len(columns)


def test_a_verdict_has_one_number_and_its_words_for_ever() -> None:
    verdicts = {id(verdict): verdict for rule in RULES for verdict, _ in rule.advice}
    numbers = {int(verdict): verdict.few_words for verdict in (PASSED, *verdicts.values())}

    assert len(numbers) == len(verdicts) + 1
    assert numbers == {
        0: "passed",
        1: "eco",
        2: "draining",
        3: "eco by label",
        4: "stale",
        5: "closed",
        6: "reserve",
        7: "cores per card",
        16: "no cards",
        17: "no linked cards",
        18: "unreadable annotation",
    }


def test_the_first_terms_of_a_digest_never_change() -> None:
    assert FIRST == (
        "headroom",
        "cooling",
        "trend",
        "bonus",
        "pressure",
        "draining",
        "marginal_w",
        "assumed_w",
    )


SETTINGS: set[type] = {rule.settings for rule in RULES} | {term.settings for term in TERMS}
BY_NAME: list[type] = sorted(SETTINGS - {NoSettings}, key=lambda each: str(each))


@pytest.mark.parametrize("settings", BY_NAME)
def test_the_weights_of_a_decision_hold_the_settings_of_each_rule_and_term(settings: type) -> None:
    assert issubclass(Weights, settings)


def test_every_setting_of_a_rule_or_term_is_set_by_the_environment() -> None:
    known = {field.name for field in dataclasses.fields(ScoringSettings)}
    fields = {field.name for each in SETTINGS - {NoSettings} for field in dataclasses.fields(each)}

    composed = {"coefficients", "gpu", "preferences"}  # of several settings each
    assert fields - known == composed | {"energy_formula"}  # a version


def test_the_weights_by_default_are_those_of_an_empty_environment() -> None:
    assert Source.of().load(ScoringSettings).weights() == Weights()


# --- lists by hand ------------------------------------------------------------------------------

NAMES = frozenset(term.name for term in TERMS)
MANY = 4  # a list of as many terms is a list of terms
MAY_LIST = {
    "joulie_bus/events/decisions.py",  # the form of an entry
    "joulie_extender/catalogue/terms.py",
    "joulie_projections/twin/energy_score.py",  # its own result; the simulator has it, too
}


def product_modules() -> Iterator[tuple[str, ast.Module]]:
    for path in ROOT.glob("[a-z]*/joulie*/**/*.py"):
        if "testing" not in path.parts and path.name != "testing.py":
            yield "/".join(path.relative_to(ROOT).parts[1:]), ast.parse(path.read_text())


def named_in(node: ast.AST) -> set[str]:
    """The terms that one literal, one call or one class names side by side."""
    match node:
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            words = [each.value for each in parts if isinstance(each, ast.Constant)]
        case ast.Dict(keys=parts):
            words = [each.value for each in parts if isinstance(each, ast.Constant)]
        case ast.ClassDef(body=parts):
            fields = [each.target for each in parts if isinstance(each, ast.AnnAssign)]
            words = [each.id for each in fields if isinstance(each, ast.Name)]
        case ast.Call(keywords=parts):
            words = [each.arg for each in parts]
        case _:
            words = []
    return {word for word in words if isinstance(word, str) and word in NAMES}


def lists_terms(tree: ast.AST) -> bool:
    return any(len(named_in(node)) >= MANY for node in ast.walk(tree))


@pytest.mark.long
def test_only_the_catalogue_lists_terms() -> None:
    assert {path for path, tree in product_modules() if lists_terms(tree)} == MAY_LIST


def test_the_page_takes_the_terms_from_its_vocabulary() -> None:
    quoted = {
        path.name: NAMES & set(re.findall(r'"(\w+)"', path.read_text()))
        for path in (ROOT / "console" / "joulie_console" / "page").glob("*.js")
    }

    assert [name for name, terms in quoted.items() if len(terms) >= MANY] == ["vocabulary.js"]


@pytest.mark.parametrize(
    "text",
    [
        'COLUMNS = ("headroom", "cooling", "trend", "bonus")',
        'HEADS = {"headroom": 1, "cooling": 2, "trend": 3, "bonus": 4}',
        "class Row:\n  headroom: float\n  cooling: float\n  trend: float\n  bonus: float",
        "row = Row(headroom=1, cooling=2, trend=3, bonus=4)",
    ],
)
def test_a_list_of_terms_is_found_in_every_form(text: str) -> None:
    assert lists_terms(ast.parse(text))
