"""The tables of docs/contributing/contract.md name tests that exist, and every number once."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROWS = re.findall(
    r"^\| (\d+) \| (.+?) \| (.+?) \|$", (ROOT / "docs/contributing/contract.md").read_text(), re.M
)
NAMED = sorted({held.strip("`") for _, _, held in ROWS if not held.startswith("not ours")})


def test_the_rows_of_both_tables_are_numbered_without_gaps() -> None:
    assert [int(number) for number, _, _ in ROWS] == [*range(1, 52), *range(1, 51)]


@pytest.mark.parametrize("test", NAMED)
def test_every_test_that_a_table_names_exists(test: str) -> None:
    path, _, name = test.partition("::")

    assert re.search(rf"^(?:async )?def {name}\(", (ROOT / path).read_text(), re.M), test


def test_a_row_that_is_not_ours_has_a_reason() -> None:
    told = [held for _, _, held in ROWS if held.startswith("not ours")]

    assert all(len(held) > len("not ours: ") for held in told)
