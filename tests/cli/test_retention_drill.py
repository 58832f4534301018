"""A year, shortened: at the highest speed with a short retention the disk stays flat behind it.

    .venv/bin/python -m pytest -m drill -s tests/cli/test_retention_drill.py

RETENTION_MINUTES=26 for longer than six minutes: the retention then passes 52 times, as a week
does in a year; RETENTION_SPEED=20215 lets a simulated year pass meanwhile. RETENTION_NODES=1000 for
more than 200, RETENTION_PODS=2 for pods a second, RETENTION_EVERY=10 for seconds between two
passes. It prints what each component holds on disk and in memory, at last as a table;
RETENTION_PLOT=FILE draws it (SVG).
"""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

import joulie_demo
from joulie_bus.runtime.ports import free_port
from joulie_cli.main import main
from joulie_simulator.plots import svg
from joulie_simulator.plots.svg import Panel, Point

MINUTES = float(os.environ.get("RETENTION_MINUTES", "6"))
NODES = os.environ.get("RETENTION_NODES", "200")
SPEED = os.environ.get("RETENTION_SPEED", "600")
PODS = os.environ.get("RETENTION_PODS", "10")
PLOT = os.environ.get("RETENTION_PLOT", "")
EVERY_S = int(os.environ.get("RETENTION_EVERY", "5"))
KEEP_S = 30
SAMPLE_S = 5
MIB = 2**20
pytestmark = [pytest.mark.drill, pytest.mark.timeout(int(MINUTES * 60) + 600)]
# Okabe and Ito's palette.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#777777", "#000000")
LEFT, WIDTH, HEIGHT, LEGEND = 60, 560, 220, 650
PICTURE = 820, 620


class Sample(NamedTuple):
    at_s: float
    broker: float  # MiB
    database: float
    archive: float
    position: int
    memory: dict[str, float]

    @property
    def trimmed(self) -> float:
        """What a trim keeps flat."""
        return self.broker + self.database


Line = Callable[[Sample], float]


def plotted(samples: Sequence[Sample], title: str) -> str:
    disk: dict[str, Line] = {
        "broker": lambda each: each.broker,
        "database": lambda each: each.database,
        "archive": lambda each: each.archive,
    }
    names = sorted({name for each in samples for name in each.memory})
    memory: dict[str, Line] = {name: _memory_of(name) for name in names}
    parts = [svg.text(LEFT, 22, title, size=14)]
    parts += _panel(samples, disk, "on disk, MiB", 60)
    parts += _panel(samples, memory, "memory (PSS), MiB", 350)
    return svg.picture(*PICTURE, parts)


def _memory_of(name: str) -> Line:
    return lambda each: each.memory.get(name, 0.0)


def _panel(
    samples: Sequence[Sample], lines: Mapping[str, Line], title: str, top: float
) -> Iterable[str]:
    most = max(line(each) for line in lines.values() for each in samples) or 1.0
    ends = Point(0, 0), Point(samples[-1].at_s / 60, most)
    panel = Panel(LEFT, top, WIDTH, HEIGHT, *ends)
    yield from svg.axes(panel, title, "minutes")
    for (name, line), colour in zip(lines.items(), COLOURS, strict=False):
        points = " ".join(panel.at(Point(each.at_s / 60, line(each))) for each in samples)
        stroke = f'stroke="{colour}" stroke-width="1.5"'
        last = f"<title>{name}: {line(samples[-1]):.0f} MiB at the end</title>"
        yield f'<polyline fill="none" {stroke} points="{points}">{last}</polyline>'
    yield from svg.legend(LEGEND, top + 12, zip(lines, COLOURS, strict=False))


def size_of(folder: Path) -> float:
    """What its files occupy, in MiB; files and folders may go meanwhile."""
    total = 0
    for place, _, names in os.walk(folder):  # it passes over a folder that went
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += Path(place, name).stat().st_blocks * 512
    return total / MIB


def memory_of(pid: int) -> float:
    """PSS in MiB."""
    with contextlib.suppress(OSError, IndexError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return 0.0


def sampled(began: float, data: Path, archive: Path, pids: dict[str, int]) -> Sample:
    with closing(sqlite3.connect(data / "joulie.db", timeout=30)) as db:
        (position,) = db.execute("SELECT max(p_to) FROM batch").fetchone()
    database = sum(file.stat().st_blocks * 512 for file in data.glob("joulie.db*")) / MIB
    memory = {name: memory_of(pid) for name, pid in pids.items()}
    at_s = time.monotonic() - began
    return Sample(at_s, size_of(data / "nats"), database, size_of(archive), position or 0, memory)


def printed(each: Sample) -> None:
    memory = "  ".join(f"{name} {size:.0f}" for name, size in each.memory.items())
    print(
        f"{each.at_s:5.0f} s  position {each.position:9,}  broker {each.broker:6.1f}  "
        f"database {each.database:6.1f}  archive {each.archive:6.1f} MiB  memory: {memory}",
        flush=True,
    )


def tabulated(samples: list[Sample]) -> None:
    """The first sample after one retention, and the largest and the last of each half after it."""
    after = [each for each in samples if each.at_s > 2 * KEEP_S]
    half = len(after) // 2
    rows: dict[str, list[float]] = {
        "broker": [each.broker for each in after],
        "database": [each.database for each in after],
        "archive": [each.archive for each in after],
    }
    for name in after[-1].memory:
        rows[f"memory of {name}"] = [each.memory.get(name, 0.0) for each in after]
    print(
        f"{after[0].at_s:.0f} to {after[-1].at_s:.0f} s, MiB | first | largest of the first half"
        " | largest of the second half | last"
    )
    for name, values in rows.items():
        figures = (values[0], max(values[:half]), max(values[half:]), values[-1])
        print(" | ".join([name, *(f"{each:.1f}" for each in figures)]))
    print(f"positions: {after[0].position:,} to {after[-1].position:,}", flush=True)


def archiver(data: Path, archive: Path) -> "subprocess.Popen[bytes]":
    environ = {**os.environ, "ARCHIVE_KEEP": f"{KEEP_S}s", "LOG_LEVEL": "warning"}
    environ["METRICS_ADDR"] = f"127.0.0.1:{free_port()}"
    words = ["archive", "--every", f"{EVERY_S}s", "--now", "--dir", str(archive)]
    return subprocess.Popen(
        [sys.executable, "-m", "joulie_cli.main", *words, "--data", str(data)], env=environ
    )


def test_the_disk_is_flat_behind_the_retention_while_the_log_grows(tmp_path: Path) -> None:
    data, archive = tmp_path / "data", tmp_path / "archive"
    words = ("--nodes", NODES, "--speed", SPEED, "--pods-per-second", PODS)
    with joulie_demo.demo(data, *words, PROJECTOR_SNAPSHOT_EVERY="5000") as running:
        running.await_decisions(10)
        samples = watched(running, data, archive)
        running.end()

    tabulated(samples)
    if PLOT:
        title = f"{NODES} nodes, {float(SPEED):g} times real time, a retention of {KEEP_S} s"
        Path(PLOT).write_text(plotted(samples, title))
    third = len(samples) // 3
    middle = max(each.trimmed for each in samples[third : 2 * third])
    end = max(each.trimmed for each in samples[2 * third :])
    growth = samples[-1].position / samples[third].position
    print(f"largest: {middle:.1f} MiB, then {end:.1f} MiB, while the log grew {growth:.1f} times")
    assert growth > 1.5
    assert end < middle * 1.25
    assert main(["verify", "--archive", str(archive), "--data", str(data)]) == 0


def watched(running: joulie_demo.Running, data: Path, archive: Path) -> list[Sample]:
    """Beside an archiver, which is killed again and again: that loses nothing."""
    samples: list[Sample] = []
    keeper, began = archiver(data, archive), time.monotonic()
    try:
        while time.monotonic() - began < MINUTES * 60:
            time.sleep(SAMPLE_S)
            samples.append(sampled(began, data, archive, running.pids() | {"archive": keeper.pid}))
            if len(samples) % 3 == 1:
                printed(samples[-1])
            if len(samples) % 20 == 10:
                keeper.kill()
                keeper.wait()
                keeper = archiver(data, archive)
    finally:
        keeper.send_signal(signal.SIGTERM)
        keeper.wait(60)
    return samples
