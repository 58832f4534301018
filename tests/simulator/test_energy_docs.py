"""The figures of docs/simulation.md are those of the program.

OPENB_TRACE=openb_pod_list_default.csv, a file of Alibaba's cluster-trace-gpu-v2023, repeats the
figures of this trace as well.
"""

import os
import re
import shlex
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
from joulie_simulator.trace_file import Trace

PAGE = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text()
TRANSCRIPTS = re.findall(r"^\$ joulie (simulate energy[^\n]*)\n(load .*?)```", PAGE, re.M | re.S)
ROWS = [
    tuple(cell.strip().strip("`") for cell in line.split("|")[1:-1])
    for line in re.findall(r"^\| (?:low|mid|high) \|.*$", PAGE, re.MULTILINE)
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
@pytest.mark.parametrize(("command", "shown"), TRANSCRIPTS)
def test_the_page_shows_what_the_command_prints(
    command: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out == shown


def test_the_page_has_a_transcript_and_a_table() -> None:
    assert len(TRANSCRIPTS) == 1
    assert (len(ROWS), *map(len, TRACE_ROWS.values())) == (1, 1, 1)


@pytest.mark.drill
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shown", ROWS)
def test_a_row_of_the_table_is_that_of_a_run(shown: tuple[str, ...]) -> None:
    load, seed, *figures = shown
    cases = [Case(load, "kube-default", False), Case(load, "joulie-energy", True)]
    base, ours = fair(Size(nodes=500), int(seed), cases)

    waits = (ours.wait_p99_s, ours.wait_max_s, ours.wait_max_performance_s)
    assert figures == [compared([ours], [base]), *(f"{wait:,.0f} s" for wait in waits)]


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
