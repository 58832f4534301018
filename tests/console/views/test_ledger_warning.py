"""A ledger that is behind is a warning on the page."""

import pytest

from joulie_console.views.health import HealthInputs, warnings_of

HEALTHY = HealthInputs(
    heard_ms=0,
    behind_ms=0,
    projector_behind_ms=0,
    waiting=0,
    broker_ms=0,
    planned_s=0.0,
    interval_s=60.0,
    nodes=1,
    unmeasured=0,
    pending=0,
    decided_s=None,
    unwritten=0,
    database="",
    cards_unhealthy=0,
)


@pytest.mark.parametrize(("seconds", "parts"), [(0.0, []), (10.0, []), (10.1, ["ledger"])])
def test_a_ledger_that_lacks_facts_for_more_than_ten_seconds_is_a_warning(
    seconds: float, parts: list[str]
) -> None:
    found = warnings_of(HEALTHY._replace(ledger_s=seconds))

    assert [each.part for each in found] == parts
