"""Panels with axes."""

from xml.etree import ElementTree

import pytest

from joulie_simulator.plots import svg
from joulie_simulator.plots.svg import Panel, Point


@pytest.mark.parametrize(
    ("low", "high", "whole", "values"),
    [
        (0.0, 100.0, False, [0, 20, 40, 60, 80, 100]),
        (0.0, 7.0, False, [0, 2, 4, 6]),
        (-3.0, 3.0, False, [-2, 0, 2]),
        (0.0, 0.0004, False, [0, 0.0001, 0.0002, 0.0003, 0.0004]),
        (0.0, 2.0, True, [0, 1, 2]),
        (5.0, 5.0, False, [5]),
    ],
)
def test_ticks_are_round_values(low: float, high: float, whole: bool, values: list[float]) -> None:
    assert svg.ticks(low, high, whole=whole) == values


def test_a_value_is_at_its_tick() -> None:
    panel = Panel(100, 50, 400, 200, Point(-10, 0), Point(10, 100))

    assert (panel.at(Point(-10, 0)), panel.at(Point(10, 100))) == ("100.0,250.0", "500.0,50.0")
    assert "0" in {part.text for part in _texts(svg.axes(panel, "watts", "points"))}


def _texts(parts: list[str]) -> list[ElementTree.Element]:
    return ElementTree.fromstring(f"<svg>{''.join(parts)}</svg>").findall("text")
