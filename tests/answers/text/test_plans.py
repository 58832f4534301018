"""The lines of a plan that show how its power targets are divided."""

from msgspec.structs import replace

from bus_kit import plan_made
from joulie_answers.text.plans import MOST_RACKS, input_lines
from joulie_answers.views.plan_text import plain_inputs, power_shares
from joulie_operator.planning.power.budget import PowerShare, share_inputs


def lines_of(*shares: PowerShare) -> list[str]:
    inputs = {"target_w": 5000.0}
    for share in shares:
        inputs |= share_inputs(share)
    made = replace(plan_made("p1"), inputs=inputs)
    return list(input_lines(plain_inputs(made), power_shares(made)))


def test_each_rack_has_a_line_with_what_it_draws_and_gets() -> None:
    assert lines_of(
        PowerShare("a", "r1", 4, 3, 4000, 2800), PowerShare("", "", 1, 0, 500, 500)
    ) == [
        "  inputs     target_w 5000",
        "  share      feed a, rack r1: draws 4.000 kW, gets 2.800 kW; caps reach 3 of 4 nodes",
        "  share      cluster, no rack: draws 0.500 kW, gets 0.500 kW; caps reach 0 of 1 nodes",
    ]


def test_an_input_has_all_of_its_digits() -> None:
    assert list(input_lines({"target_w": 1_234_567.5}, ())) == ["  inputs     target_w 1234567.5"]


def test_racks_beyond_the_limit_are_counted() -> None:
    found = lines_of(*(PowerShare("", f"r{at}", 1, 0, 1, 1) for at in range(25)))

    assert len(found) == MOST_RACKS + 2
    assert found[-1] == "  share      and 5 more; -o json has all"
