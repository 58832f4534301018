"""The figures of docs/simulation.md are those of the program."""

import re
import shlex
from collections import defaultdict
from pathlib import Path

import pytest

from joulie_cli.display.energy_table import compared
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

PAGE = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text()
TRANSCRIPTS = re.findall(r"^\$ joulie (simulate energy[^\n]*)\n(load .*?)```", PAGE, re.M | re.S)
ROWS = [
    tuple(cell.strip().strip("`") for cell in line.split("|")[1:-1])
    for line in re.findall(r"^\| (?:low|mid|high) \|.*$", PAGE, re.MULTILINE)
]
TRACE_ROWS = [
    tuple(cell.strip().strip("`") for cell in line.split("|")[2:-1])
    for line in re.findall(r"^\| quantiles \|.*$", PAGE, re.MULTILINE)
]


@pytest.mark.slow
@pytest.mark.parametrize(("command", "shown"), TRANSCRIPTS)
def test_the_page_shows_what_the_command_prints(
    command: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out == shown


def test_the_page_has_a_transcript_and_a_table() -> None:
    assert len(TRANSCRIPTS) == 1
    assert (len(ROWS), len(TRACE_ROWS)) == (15, 5)


@pytest.mark.drill
@pytest.mark.timeout(3600)
def test_the_table_of_eight_seeds_is_that_of_a_run() -> None:
    cases = [Case(load, policy, sleep == "on") for load, policy, sleep, *_ in ROWS]
    found: dict[Case, list[Row]] = defaultdict(list)
    for seed in SEEDS:
        for case, row in zip(cases, fair(Size(nodes=500), seed, cases), strict=True):
            found[case].append(row)

    for case, shown in zip(cases, ROWS, strict=True):
        assert shown[3:] == figures(found[case], found[Case(case.load, "kube-default", False)])


@pytest.mark.drill
@pytest.mark.timeout(3600)
def test_the_table_of_the_trace_is_that_of_a_run() -> None:
    cases = [Case(TRACE_LOAD, policy, sleep == "on") for policy, sleep, *_ in TRACE_ROWS]
    found = [trace(Size(nodes=QUEUE_NODES), seed, cases) for seed in SEEDS[:3]]
    base = [rows[0] for rows in found]  # kube-default without sleep

    for at, shown in enumerate(TRACE_ROWS):
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
