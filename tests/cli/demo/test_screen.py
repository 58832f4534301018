import re
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console, RenderableType

from bus_kit import (
    NOON,
    SECOND,
    ask,
    draining,
    eco,
    hardware,
    node_seen,
    performance,
    power,
    records,
)
from joulie_answers.views.placements import placements
from joulie_bus.events import AnyEvent, FilterDecided, PodBound, PrioritizeDecided
from joulie_cli.demo.demo import command_name
from joulie_cli.demo.screen import (
    DecisionRate,
    DemoLocation,
    Screen,
    TerminalSize,
    by_class,
    decisions,
    heat_map,
    in_use,
    power_text,
)
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import DecisionContext, decide_filter, decide_prioritize
from joulie_projections.fold.sequence import fold
from joulie_projections.state.completeness import ViewAges
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.view.view import View, ViewSnapshot

HALF_FREE: list[AnyEvent] = [hardware("half", watts=600), power("half", 300), eco("half")]
NEARLY_FULL: list[AnyEvent] = [hardware("full", watts=600), power("full", 590), performance("full")]


def cluster_state_of(events: Sequence[AnyEvent]) -> ClusterState:
    cluster_state = ClusterState()
    draft = Draft(cluster_state)
    fold(draft, records(*events, step_s=0.001), 0)
    draft.commit()
    return cluster_state


def twin_columns_of(events: Sequence[AnyEvent]) -> TwinColumns:
    return TwinColumns.of(cluster_state_of(events).nodes, NOON)


MOMENT = DecisionContext(twin_columns_of([*HALF_FREE, *NEARLY_FULL]), 1, 0, NOON + SECOND)
PLACE = DemoLocation({"extender": "http://127.0.0.1:9876"}, "bin/joulie", " --data d", 60)


def scored(pod: str = "plain", weights: Weights = Weights()) -> PrioritizeDecided:  # noqa: B008
    return decide_prioritize(ask(pod), ["half", "full"], MOMENT, weights)


def refused() -> FilterDecided:
    return decide_filter(ask("picky", performance=True), ["half"], MOMENT, Weights())


class Shown:
    """What a screen looks at, without a broker."""

    def __init__(self, events: Sequence[AnyEvent]) -> None:
        self.cluster_state = cluster_state_of(events)
        self.position = len(events)
        self.last_beat = None
        self.ages = ViewAges(0, 0)

    def snapshot(self) -> ViewSnapshot:
        return ViewSnapshot(self.position, TwinColumns.of(self.cluster_state.nodes, NOON), 0)


def shown(events: Sequence[AnyEvent]) -> View:
    return cast(View, Shown(events))


def drawn(rendered: RenderableType, width: int = 80) -> str:
    console = Console(width=max(80, width), color_system=None)
    with console.capture() as captured:
        console.print(rendered)
    return captured.get()


def test_nodes_are_counted_by_class() -> None:
    twin_columns = twin_columns_of(
        [*HALF_FREE, *NEARLY_FULL, hardware("d"), draining("d"), hardware("new")]
    )

    assert [text for text, _ in by_class(twin_columns)] == [
        "■ 1 unknown  ",
        "■ 1 performance  ",
        "■ 1 eco  ",
        "■ 1 draining  ",
    ]


def test_power_is_that_of_the_nodes_with_a_reading_and_unknown_is_no_zero() -> None:
    nothing = [hardware("new"), hardware("other")]

    assert power_text(twin_columns_of([])) == "power not measured yet"
    assert power_text(twin_columns_of(nothing)) == "power not measured yet"
    assert power_text(twin_columns_of([*HALF_FREE, hardware("new")])) == (
        "0.3 kW measured on 1 of 2 nodes"
    )
    assert power_text(twin_columns_of(HALF_FREE)) == "0.3 kW measured"


def test_a_start_shows_neither_a_power_nor_a_class_of_which_there_is_no_node() -> None:
    started = drawn(Screen(shown([]), PLACE).rendered([], TerminalSize()))

    assert "power not measured yet" in started
    assert "0.0 kW" not in started
    assert "■" not in started


def test_a_node_that_sleeps_is_neither_performance_nor_a_bar() -> None:
    twin_columns = twin_columns_of([*HALF_FREE, *NEARLY_FULL])
    asleep = frozenset({"full"})

    assert [text for text, _ in by_class(twin_columns, asleep)] == [
        "■ 1 eco  ",
        "· 1 asleep  ",
    ]
    assert "·▅" in drawn(heat_map(twin_columns, TerminalSize(), asleep))


def test_a_bar_shows_the_free_share_of_a_node() -> None:
    assert "▁▅" in drawn(heat_map(twin_columns_of([*HALF_FREE, *NEARLY_FULL]), TerminalSize()))


def test_a_node_without_a_budget_has_nothing_free() -> None:
    assert "▁" in drawn(heat_map(twin_columns_of([power("n", 5)]), TerminalSize()))


@pytest.mark.parametrize(("nodes", "bars"), [(1, 1), (288, 288), (289, 145), (5000, 278)])
def test_a_large_cluster_shares_its_bars(nodes: int, bars: int) -> None:
    twin_columns = twin_columns_of([hardware(f"n{at}", cores=1) for at in range(nodes)])

    assert heat_map(twin_columns, TerminalSize()).plain.count("█") == bars


@pytest.mark.parametrize(
    "size", [TerminalSize(), TerminalSize(120, 40), TerminalSize(40, 10)], ids=str
)
@pytest.mark.parametrize("nodes", [1, 72, 200, 5000])
def test_the_screen_fits_the_terminal(nodes: int, size: TerminalSize) -> None:
    screen = Screen(shown([hardware(f"n{at}", cores=1) for at in range(nodes)]), PLACE)
    lines = drawn(screen.rendered(40 * placements([scored()]), size), size.width).splitlines()

    assert max(map(len, lines)) <= max(80, size.width)
    assert len(lines) <= max(24, size.height) - 1  # the line of the prompt stays


def test_a_pod_is_one_line_with_its_best_node_and_the_reason() -> None:
    rendered = "".join(map(drawn, decisions(placements([scored(), refused()]))))

    assert "plain                standard        2/2  half" in rendered
    assert "headroom 49 %" in rendered
    assert "picky                performance     0/1  pending: the node is reserved for" in rendered


def test_a_score_by_watts_is_shown_with_its_watts() -> None:
    by_watts = scored(weights=Weights(scoring="energy"))
    rendered = " ".join("".join(map(drawn, decisions(placements([by_watts])))).split())

    assert re.search(r"100 = adds \d+ W, keeps \d+ W on", rendered)
    assert "headroom" not in rendered


def test_a_best_node_without_data_is_shown_without_numbers() -> None:
    unknown = decide_prioritize(ask("plain"), ["new"], MOMENT, Weights())
    rendered = " ".join("".join(map(drawn, decisions(placements([unknown])))).split())

    assert "= no twin, or a stale one" in rendered
    assert "headroom" not in rendered


def test_a_pod_that_passed_and_has_no_scores_yet_is_left_out() -> None:
    passed = decide_filter(ask("plain"), ["half", "full"], MOMENT, Weights())

    assert placements([passed]) == []
    assert [one.share for one in placements([scored(), passed])] == ["2/2"]


def test_scores_of_an_earlier_attempt_are_not_shown_with_a_later_refusal() -> None:
    again = decide_filter(ask("plain", performance=True), ["half"], MOMENT, Weights())

    assert [(one.share, one.node) for one in placements([again, scored()])] == [("0/1", "")]


def test_the_example_commands_stay_the_same_while_decisions_change() -> None:
    screen = Screen(shown(HALF_FREE), PLACE)
    screen.rendered(placements([scored("first")]), TerminalSize())
    rendered = drawn(screen.rendered(placements([scored("second")]), TerminalSize()))

    assert "bin/joulie explain team/first --data d" in rendered
    assert "bin/joulie twin half --at -10s --data d" in rendered


def test_trouble_is_shown() -> None:
    screen = Screen(shown(HALF_FREE), PLACE)
    screen.trouble = "restarted: projector (1)"

    assert "restarted: projector (1)" in drawn(screen.rendered([], TerminalSize()))


def test_running_pods_and_gpus_in_use_are_counted() -> None:
    view = shown([node_seen("n", gpus=4), PodBound(pod=ask("pod", gpus=2), node="n")])

    assert in_use(view.cluster_state) == "1 pods running   2 of 4 GPUs in use"


def test_a_program_is_called_as_the_user_called_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "joulie"
    program.parent.mkdir()
    program.touch(0o755)
    monkeypatch.chdir(tmp_path)
    by_way = command_name(str(program))
    monkeypatch.setenv("PATH", str(program.parent))

    assert (by_way, command_name(str(program)), command_name("main.py")) == (
        "bin/joulie",
        "joulie",
        "joulie",
    )


def test_a_rate_is_the_growth_since_the_last_frame() -> None:
    rate = DecisionRate()

    assert [rate.of(*at) for at in ((100, 10.0), (150, 12.0), (150, 13.0), (20, 14.0))] == [
        0,
        25,
        0,
        0,
    ]
