"""Which rows `joulie try --set` asks for."""

import pytest

from joulie_bus.errors import SettingsError
from joulie_cli.ask.try_ import long_time
from joulie_cli.ask.try_log import changes_of
from joulie_operator.planning.rules import Rules


def test_a_number_of_the_policy_is_a_change_of_its_numbers() -> None:
    changes = changes_of(["reserve=0.02,0.1"])

    assert [each.name for each in changes] == ["reserve=0.02", "reserve=0.1"]
    assert [each.numbers for each in changes] == [{"reserve": 0.02}, {"reserve": 0.1}]


def test_a_setting_is_a_change_of_scores_or_plans() -> None:
    first, second = changes_of(["STATIC_HP_FRAC=0.2,0.8"])

    assert first.overrides.rules is not None
    assert second.overrides.rules is not None
    assert first.overrides.rules(Rules()).static_hp_frac == 0.2
    assert second.overrides.rules(Rules()).static_hp_frac == 0.8


def test_a_text_of_pairs_is_one_value() -> None:
    assert len(changes_of(["POLICY_NUMBERS=reserve=0.1,max_share=0.5"])) == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("reserve", "write it as NAME=VALUE"),
        ("reserve=2", "reserve=2 is not a share from 0 to 1"),
        ("reserve=some", "not a share from 0 to 1"),
        ("PRESET=savings", "each preset has a row already"),
        ("power_target_w=100", "power targets are not simulated"),
        ("STATIC_HP_FRACTION=1", "similar names are STATIC_HP_FRAC"),
        (f"reserve={','.join(['0.1'] * 21)}", "21 rows, and at most 20"),
    ],
)
def test_a_change_that_cannot_be_tried_is_named(text: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        changes_of([text])


def test_a_period_is_in_days_or_shorter_times() -> None:
    assert [long_time(text) for text in ("7d", "1h30m")] == [7 * 86_400, 5400]
