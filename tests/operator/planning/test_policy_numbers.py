"""POLICY_NUMBERS as a table: its types, bounds and names."""

from pathlib import Path

import msgspec
import pytest

from joulie_bus.errors import SettingsError
from joulie_bus.runtime.settings import Source
from joulie_operator.planning.policy_numbers import PolicyNumbers, json_schema
from joulie_operator.planning.power.budget import LOWEST_PERMILLE
from joulie_operator.planning.power_target import standing_targets
from joulie_operator.settings import OperatorSettings

TABLE = """\
[POLICY_NUMBERS]
reserve = 0.05
caps_where_measured = true
[POLICY_NUMBERS.power_target_w]
a = 150_000
"rack:r1" = 12000.5
"""


def loaded(path: Path, text: str, **environ: str) -> OperatorSettings:
    (path / "joulie.toml").write_text(text)
    source = Source(environ, path / "joulie.toml")
    settings = source.load(OperatorSettings)
    source.finish()
    return settings


def test_a_table_of_the_file_is_the_text_of_its_numbers(tmp_path: Path) -> None:
    found = loaded(tmp_path, TABLE).policy_numbers

    assert found == (
        "reserve=0.05,caps_where_measured=1,power_target_w.a=150000,power_target_w.rack:r1=12000.5"
    )
    assert standing_targets(found) == {"a": 150_000_000, "rack:r1": 12_000_500}


def test_pairs_in_the_environment_are_stronger_than_the_table(tmp_path: Path) -> None:
    assert loaded(tmp_path, TABLE, POLICY_NUMBERS="reserve=0.1").policy_numbers == "reserve=0.1"


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ("reserve = 1.5", "POLICY_NUMBERS: reserve=1.5 is not a share from 0 to 1"),
        ("caps_where_measured = 0.5", "caps_where_measured=0.5 is not 0 for no, or 1 for yes"),
        ("power_target_w = -1", "power_target_w=-1 is not a power in watts, at least 0"),
        ("power_target_w.a = -1", "power_target_w.a=-1 is not a power in watts, at least 0"),
        ('reserve = "much"', "joulie.toml: reserve is not a number"),
        ("reserve = [1]", "joulie.toml: reserve is not a number"),
        ("reserve = nan", "not finite"),
        ("resrve = 0.1", "POLICY_NUMBERS: there is no resrve; there are power_target_w, "),
    ],
)
@pytest.mark.parametrize("policy", ["static_partition", "consolidate_and_sleep"])
def test_a_wrong_number_stops_the_start_and_is_named(
    tmp_path: Path, policy: str, table: str, error: str
) -> None:
    with pytest.raises(SettingsError, match=r"(?s).*") as found:
        loaded(tmp_path, f'POLICY_TYPE = "{policy}"\n[POLICY_NUMBERS]\n{table}\n')

    assert error in str(found.value)


def test_all_wrong_numbers_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as found:
        loaded(tmp_path, "[POLICY_NUMBERS]\nreserve = 2\nmax_step = 3\n")

    assert "reserve=2 is not" in str(found.value)
    assert "max_step=3 is not" in str(found.value)


def test_another_setting_as_a_table_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"STATIC_HP_FRAC in .*: not one value but a table"):
        loaded(tmp_path, "[STATIC_HP_FRAC]\na = 1\n")


def test_the_schema_has_the_numbers_and_defaults_that_plans_use() -> None:
    usual = PolicyNumbers()

    assert usual.power_floor_pct * 10 == LOWEST_PERMILLE
    assert (usual.caps_where_measured, usual.caps_trial) == (0, 0)  # caps wherever a class has them


def test_the_schema_for_the_chart_describes_each_number() -> None:
    properties = json_schema()["properties"]

    assert [*properties] == [field.name for field in msgspec.structs.fields(PolicyNumbers)]
    assert properties["reserve"] == {
        "description": "a share from 0 to 1",
        "type": "number",
        "minimum": 0,
        "maximum": 1,
    }
