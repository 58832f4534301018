"""The charts of a report."""

from joulie_answers.report.charts import Bar, bars, power_chart, shown_names
from joulie_answers.report.page import intervals_since

HOUR = 3_600_000


def hour(number: int, **namespaces: float) -> dict[str, object]:
    amounts = {name.replace("free", "(free)"): kwh for name, kwh in namespaces.items()}
    return {
        "from": number * HOUR,
        "to": (number + 1) * HOUR,
        "kwh": sum(amounts.values()),
        "namespaces": amounts,
    }


def test_the_largest_namespaces_are_named_and_the_others_are_one() -> None:
    many = hour(0, a=1, b=2, c=3, d=4, e=5, f=6, g=7, free=9)

    assert shown_names([many]) == ["g", "f", "e", "d", "c", "(others)", "(free)"]
    assert "(others): 3.000 kW" in power_chart([many], "Power")


def test_power_is_energy_by_the_length_of_the_interval() -> None:
    half = {**hour(0, team=1.0), "to": HOUR // 2}

    assert "team: 2.000 kW" in power_chart([half], "Power")


def test_names_of_users_are_text_in_a_chart() -> None:
    drawn = power_chart([{**hour(0), "namespaces": {"<script>": 1.0}}], "Power")

    assert "<script>" not in drawn
    assert "&lt;script&gt;" in drawn


def test_a_simulated_bar_has_its_interval_and_a_metered_one_none() -> None:
    simulated, metered = Bar("simulated", 1, 2, 3, "#000000"), Bar("metered", 2, 2, 2, "#000000")

    assert "stroke" in bars([simulated], "Energy")
    assert "stroke" not in bars([metered], "Energy")
    assert "2.000 kWh" in bars([simulated], "Energy")


def test_without_energy_there_is_a_chart_without_an_error() -> None:
    assert "<svg" in power_chart([hour(0, team=0.0)], "Power")
    assert "<svg" in bars([Bar("metered", 0, 0, 0, "#000000")], "Energy")


def test_a_chart_shows_when_it_begins_and_ends() -> None:
    drawn = power_chart([hour(0, team=1.0)], "Power", ("12:40 UTC", "12:44 UTC"))

    assert drawn.index("12:40 UTC") < drawn.index("12:44 UTC")


def test_the_power_of_the_first_interval_counts_from_the_beginning_of_the_log() -> None:
    shown = intervals_since(HOUR // 2, [hour(0, team=1.0), hour(1, team=1.0)])

    assert [each["from"] for each in shown] == [HOUR // 2, HOUR]
    assert "team: 2.000 kW" in power_chart(shown, "Power")
    assert intervals_since(HOUR, [hour(0, team=1.0)]) == []
