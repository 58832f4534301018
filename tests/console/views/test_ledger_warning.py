"""A ledger that is behind is a warning on the page."""

from typing import Any

import pytest

from joulie_console.views.health import HealthInputs, warnings_of


@pytest.mark.parametrize(("seconds", "parts"), [(0.0, []), (10.0, []), (10.1, ["ledger"])])
def test_a_ledger_that_lacks_facts_for_more_than_ten_seconds_is_a_warning(
    seconds: float, parts: list[str]
) -> None:
    nothing: dict[str, Any] = dict.fromkeys(HealthInputs._fields, 0)
    found = warnings_of(HealthInputs(**nothing | {"database": "", "ledger_s": seconds}))

    assert [each.part for each in found] == parts
