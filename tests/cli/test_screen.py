from collections.abc import Sequence

import pytest
from rich.console import Console, RenderableType

from joulie_bus.events import AnyEvent
from joulie_bus.testing import (
    NOON,
    SECOND,
    ask,
    draining,
    eco,
    hardware,
    performance,
    power,
    records,
)
from joulie_cli.screen import MAP_ROWS, MAP_WIDTH, Rate, by_class, decisions, heat_map
from joulie_extender.decide import Moment, decide_filter, decide_prioritize
from joulie_extender.scoring import Weights
from joulie_projections.board import Board
from joulie_projections.draft import Draft
from joulie_projections.sequence import fold
from joulie_projections.world import World

HALF_FREE: list[AnyEvent] = [hardware("half", watts=600), power("half", 300), eco("half")]
NEARLY_FULL: list[AnyEvent] = [hardware("full", watts=600), power("full", 590), performance("full")]


def board_of(events: Sequence[AnyEvent]) -> Board:
    world = World()
    draft = Draft(world)
    fold(draft, records(*events, step_s=0.001), 0)
    draft.commit()
    return Board.of(world.nodes, NOON)


def drawn(picture: RenderableType) -> str:
    console = Console(width=120, color_system=None)
    with console.capture() as captured:
        console.print(picture)
    return captured.get()


def test_nodes_are_counted_by_class() -> None:
    board = board_of([*HALF_FREE, *NEARLY_FULL, hardware("d"), draining("d"), hardware("new")])

    assert [text for text, _ in by_class(board)] == [
        "■ 1 unknown  ",
        "■ 1 performance  ",
        "■ 1 eco  ",
        "■ 1 draining  ",
    ]


def test_a_bar_per_node_says_how_much_is_free() -> None:
    assert "▁▅" in drawn(heat_map(board_of([*HALF_FREE, *NEARLY_FULL])))


def test_a_node_without_a_budget_has_nothing_free() -> None:
    assert "▁" in drawn(heat_map(board_of([power("n", 5)])))


@pytest.mark.parametrize(("nodes", "bars"), [(1, 1), (576, 576), (577, 289), (5000, 556)])
def test_a_large_cluster_shares_its_bars(nodes: int, bars: int) -> None:
    picture = drawn(heat_map(board_of([hardware(f"n{at}", cores=1) for at in range(nodes)])))

    assert picture.count("█") == bars <= MAP_WIDTH * MAP_ROWS


@pytest.mark.parametrize("nodes", [1, 72, 200, 5000])
def test_the_map_fits_a_small_terminal(nodes: int) -> None:
    lines = drawn(heat_map(board_of([hardware(f"n{at}", cores=1) for at in range(nodes)])))

    assert max(map(len, lines.splitlines())) <= 80
    assert len(lines.splitlines()) <= MAP_ROWS + 2


def test_the_last_decisions_come_with_their_reasons() -> None:
    board = board_of([*HALF_FREE, *NEARLY_FULL])
    moment = Moment(board, 1, 0, NOON + SECOND)
    picky = decide_filter(ask("picky", performance=True), ["half", "full"], moment, Weights())
    scored = decide_prioritize(ask("plain"), ["half", "full"], moment, Weights())
    picture = drawn(decisions([picky, scored]))

    assert "team/picky" in picture
    assert "1 refused: the node is reserved for saving energy" in picture
    assert "half " in picture
    assert "headroom 49 %" in picture


def test_a_rate_is_what_came_since_the_last_picture() -> None:
    rate = Rate()

    assert [rate.of(*at) for at in ((100, 10.0), (150, 12.0), (150, 13.0), (20, 14.0))] == [
        0,
        25,
        0,
        0,
    ]
