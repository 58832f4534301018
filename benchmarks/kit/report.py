"""What a benchmark measured: tables that are printed, and kept as JSON with what they ran on.

A figure that is missing, not finite, zero or negative is an error, because a component that runs
costs something. A column in which zero is a result is declared with `zero`, one of differences that
may lie below zero with `signed`.
"""

import math
import os
import platform
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec

from joulie_bus.broker.checksum import server_binary

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
MEASURED = "measured"  # the column of a table with one figure in a row
KUBERNETES = ROOT / ".kube" / "bin"


class NotMeasured(Exception):
    """A program or file that this benchmark needs is not on this machine."""


class FlawedTable(Exception):
    """Figures that cannot be right; nothing is printed or kept of them."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of figures; each row has each column."""

    title: str
    rows: Mapping[str, Mapping[str, float]]
    zero: Collection[str] = ()  # columns or rows in which zero is a result
    signed: Collection[str] = ()  # columns of differences, which may lie below zero

    @classmethod
    def of(cls, title: str, figures: Mapping[str, float], zero: Collection[str] = ()) -> "Table":
        """One figure in a row; `zero` names rows."""
        rows = {name: {MEASURED: float(value)} for name, value in figures.items()}
        return cls(title=title, rows=rows, zero=zero)

    @property
    def columns(self) -> Sequence[str]:
        return list(dict.fromkeys(column for row in self.rows.values() for column in row))

    def require_sound(self) -> None:
        flaws = [
            f"{row}, {column}: {'missing' if value is None else value}"
            for row, figures in self.rows.items()
            for column in self.columns
            if not self._is_sound(row, column, value := figures.get(column))
        ]
        if flaws or not self.columns:
            what = "; ".join(flaws) or "it has no figures"
            raise FlawedTable(f"The table {self.title!r} was not printed: {what}.")

    def _is_sound(self, row: str, column: str, value: float | None) -> bool:
        if value is None or not math.isfinite(value):
            return False
        if value < 0 and column not in self.signed:
            return False
        return value != 0 or column in self.zero or row in self.zero

    def __str__(self) -> str:
        lines = [["", *self.columns]]
        lines += [[row, *map(shown, each.values())] for row, each in self._aligned().items()]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        text = [_line(cells, widths) for cells in lines]
        return "\n".join([self.title, *text])

    def _aligned(self) -> dict[str, dict[str, float]]:
        return {
            row: {column: each[column] for column in self.columns}
            for row, each in self.rows.items()
        }


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(cells, widths, strict=True)
    numbers = (f"{cell:>{width}}" for cell, width in others)
    return f"  {first[0]:<{first[1]}}" + "".join(f"   {each}" for each in numbers)


def shown(value: float) -> str:
    """Three digits, or all before the point."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a benchmark."""

    benchmark: str
    options: Mapping[str, str]
    at: str  # the day, in UTC
    commit: str  # of the code that was measured; with "+" if files were changed
    versions: Mapping[str, str]
    machine: Mapping[str, str]
    load: Sequence[float]  # of the minute before the run, and of its last minute
    tables: Sequence[Table]
    notes: Sequence[str] = ()

    def table(self, title: str) -> Table:
        return next(each for each in self.tables if each.title == title)

    def __str__(self) -> str:
        given = ", ".join(f"{name} {value}" for name, value in self.options.items())
        ran = f"{self.machine['cores']} cores of {self.machine['processor']}"
        load = " and ".join(f"{each:.1f}" for each in self.load)
        head = f"{self.benchmark} at {self.commit} on {self.at}: {given}\n{ran}, load {load}"
        return "\n\n".join([head, *map(str, self.tables), *self.notes])


def load_now() -> float:
    return os.getloadavg()[0]


def result_of(
    benchmark: str,
    options: Mapping[str, str],
    load_before: float,
    tables: Sequence[Table],
    notes: Sequence[str] = (),
) -> Result:
    """Raises FlawedTable."""
    for table in tables:
        table.require_sound()
    return Result(
        benchmark=benchmark,
        options=options,
        at=time.strftime("%Y-%m-%d", time.gmtime()),
        commit=_commit(),
        versions=_versions(),
        machine=_machine(),
        load=(round(load_before, 1), round(load_now(), 1)),
        tables=tables,
        notes=notes,
    )


def write(result: Result, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")


def read(file: Path) -> Result:
    return msgspec.json.decode(file.read_bytes(), type=Result)


def _commit() -> str:
    found = _output("git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--abbrev=8")
    return found or "unknown"


def _versions() -> dict[str, str]:
    servers = {"nats-server": server_binary()}
    servers |= {name: str(KUBERNETES / name) for name in ("kube-apiserver", "kube-scheduler")}
    found = {name: _output(path, "--version").split()[-1:] for name, path in servers.items()}
    given = {name: words[0].lstrip("v") for name, words in found.items() if words}
    return {"joulie": version("joulie"), "python": platform.python_version(), **given}


def _machine() -> dict[str, str]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "processor": models[0] if models else platform.machine(),
        "memory": f"{memory:.0f} GiB",
        "kernel": platform.release(),
    }


def _output(*words: str) -> str:
    """Empty if the program is not there."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
