"""The packages that are mutated, and the tests that hold them."""

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Package(NamedTuple):
    """The pattern of its files, and the tests that hold them."""

    files: str
    tests: list[str]


# Generates every setting with its default and its bounds.
REFERENCE = "tests/test_docs.py::test_the_reference_equals_what_the_program_generates"


# Compares the weights in the code with those of the settings.
DEFAULTS = (
    "tests/extender/catalogue/test_catalogue.py"
    "::test_the_weights_by_default_are_those_of_an_empty_environment"
)


SCORING = [
    "tests/extender/decide",
    "tests/extender/catalogue/test_catalogue.py",
    "tests/extender/catalogue/test_points.py",
    "tests/extender/gpu",
    "tests/audit/questions/test_explain.py",
    "tests/audit/replay/test_golden.py",
    REFERENCE,
]


# They read the sources themselves, which no mutant changes.
OF_SOURCES = ["tests/extender/catalogue/test_catalogue.py::test_only_the_catalogue_lists_terms"]


PACKAGES = {
    "decide": Package("extender/joulie_extender/decide/*.py", SCORING),
    "rules": Package("extender/joulie_extender/rules/*.py", SCORING),
    "terms": Package("extender/joulie_extender/terms/*.py", SCORING),
    "catalogue": Package("extender/joulie_extender/catalogue/*.py", SCORING),
    "gpu": Package("extender/joulie_extender/gpu/*.py", ["tests/extender/gpu", DEFAULTS]),
    "planning": Package(
        "operator/joulie_operator/planning/*.py",
        [
            "tests/operator/planning",
            "tests/operator/test_settings.py",
            "tests/audit/questions/test_next_plan.py",
        ],
    ),
    "fold": Package(
        "projections/joulie_projections/fold/*.py",
        [
            "tests/projections/fold",
            "tests/projections/state",
            "tests/projections/projector/test_quarantine.py",
            "tests/projections/projector/test_refused.py",
        ],
    ),
    "chain": Package(
        "projections/joulie_projections/chain/*.py",
        [
            "tests/projections/chain",
            "tests/projections/decision_log",
            "tests/projections/witness",
        ],
    ),
}


def words_for(folder: str) -> list[str]:
    words = ["-s", "-q", f"--basetemp={folder}", "-p", "no:cacheprovider", "-p", "no:xdist"]
    words += [f"--deselect={test}" for test in OF_SOURCES]
    return [*words, "-m", "not slow and not drill"]


def files_of(package: str) -> list[Path]:
    files = sorted(ROOT.glob(PACKAGES[package].files))
    return [file for file in files if file.name != "__init__.py"]
