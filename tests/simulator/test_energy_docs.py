"""The figures of docs/simulation.md and of its other suites are those of the program.

OPENB_TRACE=openb_pod_list_default.csv, a file of Alibaba's cluster-trace-gpu-v2023, repeats the
figures of this trace as well.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import pytest

from joulie_cli.main import main
from joulie_simulator.energy.suites import (
    QUEUE_NODES,
    SEEDS,
    TRACE_LOAD,
    Case,
    Row,
    Size,
    fair,
    trace,
)
from joulie_simulator.energy.switching.conditions import CONDITIONS, USUAL, baseline_of
from joulie_simulator.plots.energy_table import compared
from joulie_simulator.trace_file import Trace


class Shown(NamedTuple):
    """A row of a table of the page."""

    load: str
    policy: str
    conditions: str
    seeds: str  # "101", or "101 to 108"
    figures: tuple[str, ...]

    def seed_range(self) -> range:
        first, *last = map(int, self.seeds.split(" to "))
        return range(first, max(first, *last) + 1) if last else range(first, first + 1)


DOCS = Path(__file__).parents[2] / "docs"
PAGE = "\n".join(
    (DOCS / page).read_text() for page in ("simulation.md", "contributing/simulated-suites.md")
)
TRANSCRIPTS = re.findall(r"^\$ joulie (simulate energy[^\n]*)\n(load .*?)```", PAGE, re.M | re.S)


def cells_of(first: str) -> list[tuple[str, ...]]:
    lines = re.findall(rf"^\| (?:{first}) \|.*$", PAGE, re.MULTILINE)
    return [tuple(cell.strip().strip("`") for cell in line.split("|")[1:-1]) for line in lines]


ROWS = [
    Shown(load, policy, USUAL, seeds, tuple(rest))
    for load, policy, seeds, *rest in cells_of("low|mid|high")
]
VARIED = [
    Shown(load, "joulie-energy", conditions, seeds, tuple(rest))
    for conditions, load, seeds, *rest in cells_of("|".join(map(re.escape, CONDITIONS)))
]
TRACE_ROWS = {
    sizes: [
        tuple(cell.strip().strip("`") for cell in line.split("|")[2:-1])
        for line in re.findall(rf"^\| {sizes} \|.*$", PAGE, re.MULTILINE)
    ]
    for sizes in ("quantiles", "openb")
}
OPENB = os.environ.get("OPENB_TRACE", "")


@pytest.mark.slow
@pytest.mark.timeout(600)  # three seeds of two policies, beside other tests
@pytest.mark.parametrize(("command", "shown"), TRANSCRIPTS)
@pytest.mark.drill
def test_the_page_shows_what_the_command_prints(
    command: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out == shown


def test_the_page_has_a_transcript_and_a_table() -> None:
    assert len(TRANSCRIPTS) == 1
    assert {(row.load, row.policy) for row in ROWS} >= {("mid", "joulie-energy")}
    assert VARIED[0].conditions == USUAL
    assert [*map(len, TRACE_ROWS.values())] == [1, 1]


@pytest.mark.drill
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shown", [*ROWS, *VARIED])
def test_a_row_of_the_tables_is_that_of_a_run(shown: Shown) -> None:
    cases = [
        Case(shown.load, "kube-default", False, baseline_of(shown.conditions)),
        Case(shown.load, shown.policy, True, shown.conditions),
    ]
    pairs = [fair(Size(nodes=QUEUE_NODES), seed, cases) for seed in shown.seed_range()]
    base, found = [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def seconds(name: str, of: Callable[[Iterable[float]], float]) -> str:
        return f"{of(getattr(row, name) for row in found):,.0f} s"

    assert shown.figures == (
        compared(found, base),
        seconds("wait_p99_s", mean),
        seconds("wait_max_s", max),
        seconds("wait_max_performance_s", max),
        f"{mean(row.wakes for row in found):,.0f}",
    )


@pytest.mark.drill
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("sizes", TRACE_ROWS)
def test_the_table_of_the_trace_is_that_of_a_run(sizes: str) -> None:
    if sizes == "openb" and not OPENB:
        pytest.skip("requires OPENB_TRACE")
    of_openb = Trace.of(Path(OPENB)) if sizes == "openb" else None
    shown_rows = TRACE_ROWS[sizes]
    cases = [Case(TRACE_LOAD, policy, sleep == "on") for policy, sleep, *_ in shown_rows]
    found = [trace(Size(nodes=QUEUE_NODES), seed, cases, sizes=of_openb) for seed in SEEDS[:3]]
    base = [rows[0] for rows in found]  # kube-default without sleep

    for at, shown in enumerate(shown_rows):
        group = [rows[at] for rows in found]
        stuck = sum(row.stuck for row in group) / len(group)
        *energy, _ = figures(group, base)
        assert shown[2:] == (*energy, f"{stuck:,.0f}")


def figures(group: list[Row], base: list[Row]) -> tuple[str, ...]:
    def mean(name: str) -> float:
        return sum(float(getattr(row, name)) for row in group) / len(group)

    work = sum(row.work for row in group) / sum(row.work for row in base) - 1
    return (
        f"{mean('kwh'):,.1f}",
        f"{mean('work'):,.1f}",
        f"{mean('kwh_per_work'):.4f}",
        compared(group, base),
        f"{100 * work:+.2f} %",
        f"{mean('wait_p99_s'):,.0f} s",
    )
