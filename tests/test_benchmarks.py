"""Each benchmark starts with one command, and measures what it names, in its smallest form."""

import math
import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from pod_cost import Window, cost_of, require_cost
from process_usage import IMPORTS, Unattributed, cpu_s, name_of
from report import FlawedTable
from report import Table as Printed

ROOT = Path(__file__).parents[1]
BENCHMARKS = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))
BENCHMARKS.remove("run")
BENCHMARKS.remove("scheduler")  # has a test of its own
SMALL = [pytest.param(name, marks=pytest.mark.long) for name in BENCHMARKS if name != "month"]
MINUTES = pytest.param("month", marks=pytest.mark.drill)  # also in its smallest form
MISSING = 77  # the exit code of a benchmark whose programs are not here
COMPONENTS = {"nats-server", "projector", "operator", "extender", "console", "ledger"}


# A difference of two short measurements beside other tests is below zero now and then; the column
# of a process that is not measured is zero each time.
MORE_TRIES = 2


class Table(msgspec.Struct):
    title: str
    rows: dict[str, dict[str, float]]
    zero: list[str]


class Result(msgspec.Struct):
    commit: str
    versions: dict[str, str]
    machine: dict[str, str]
    load: list[float]
    tables: list[Table]


def run(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = ["benchmarks/run.py", name, "--smallest", "--keep", name, "--results", str(folder)]
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )


def measured(name: str, folder: Path) -> Result:
    done = run(name, folder)
    for _ in range(MORE_TRIES):
        if "was not printed" not in done.stderr:
            break
        done = run(name, folder)
    if done.returncode == MISSING:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return msgspec.json.decode((folder / f"{name}.json").read_bytes(), type=Result)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [*SMALL, MINUTES])
def test_a_benchmark_measures_each_of_its_columns(name: str, tmp_path: Path) -> None:
    require_each_column(measured(name, tmp_path))


def require_each_column(found: Result) -> None:
    assert found.commit
    assert found.versions["python"]
    assert found.machine["cores"]
    assert found.load
    for table in found.tables:
        columns = [set(row) for row in table.rows.values()]
        assert columns
        assert all(each == columns[0] for each in columns)
        zeros = [
            (row, column)
            for row, figures in table.rows.items()
            for column, figure in figures.items()
            if not figure and row not in table.zero and column not in table.zero
        ]
        assert zeros == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_benchmark_of_the_scheduler_counts_every_component(tmp_path: Path) -> None:
    found = measured("scheduler", tmp_path)

    require_each_column(found)
    savings = next(table for table in found.tables if table.title == "savings")
    assert savings.rows.keys() >= COMPONENTS
    assert not COMPONENTS & {*savings.zero}
    for component in COMPONENTS:
        figures = savings.rows[component].items()
        assert all(value for name, value in figures if name not in savings.zero), component


def test_a_component_is_known_by_its_title_and_not_by_its_command_line() -> None:
    forked = ["python", "-c", "from multiprocessing.forkserver import main; main(4, 5)"]

    assert name_of("joulie projecto", forked) == "projector"  # Linux keeps 15 bytes
    assert name_of("joulie extender", forked) == "extender"
    assert name_of("python", forked) == IMPORTS
    assert name_of("python", ["python", "-m", "joulie_cli.main", "up"]) == "up"
    assert name_of("nats-server", ["/usr/bin/nats-server", "-c", "x"]) == "nats-server"


def test_a_forked_process_without_a_title_is_an_error() -> None:
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=time.sleep, args=(60,), daemon=True)
    process.start()
    try:
        with pytest.raises(Unattributed, match="has no title"):
            cpu_s()
    finally:
        process.kill()
        process.join()


@pytest.mark.parametrize("figure", [0.0, math.nan, -2.4])
def test_a_figure_that_is_zero_negative_or_unknown_is_not_printed(figure: float) -> None:
    with pytest.raises(FlawedTable, match="ledger, CPU: "):
        Printed(title="cost", rows={"ledger": {"CPU": figure}}).require_sound()


def test_pods_that_seem_to_cost_less_than_the_error_are_refused() -> None:
    sure = {"CPU ms per pod": 4.4, "its standard error": 0.2}
    unsure = {"CPU ms per pod": 0.3, "its standard error": 0.2}

    require_cost("savings", sure)
    with pytest.raises(FlawedTable, match=r"0\.30 ms .* error of that is 0\.20"):
        require_cost("savings", unsure)


def test_what_pods_cost_is_the_difference_of_windows_with_and_without_them() -> None:
    window = Window({"ledger": 1.5, "console": 0.4}, {"ledger": 1.0, "console": 0.5}, 10.0, 100)

    assert window.per_pod(["ledger"]) == 5.0
    assert window.per_pod(["console"]) == pytest.approx(-1.0)
    assert window.at_rest(["ledger", "console"]) == 15.0


def test_work_of_one_window_is_no_cost_of_pods() -> None:
    usual = Window({"ledger": 1.5}, {"ledger": 1.0}, lasted_s=10.0, pods=100)
    with_a_plan = Window({"ledger": 1.5}, {"ledger": 6.0}, lasted_s=10.0, pods=100)

    found = cost_of([usual, with_a_plan, usual], ["ledger"])

    assert found == {"CPU ms per pod": 5.0, "its standard error": 0.0, "at rest, % of a core": 10.0}


def test_a_column_that_a_row_lacks_is_an_error() -> None:
    rows = {"ledger": {"CPU": 1.0, "memory": 2.0}, "console": {"CPU": 1.0}}

    with pytest.raises(FlawedTable, match="console, memory: missing"):
        Printed(title="cost", rows=rows).require_sound()
