"""The CPU time and the memory of this process and its descendants, by the name of the program."""

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    pid: int
    parent: int
    name: str
    cpu_s: float


def cpu_s() -> dict[str, float]:
    """The CPU time of each program so far."""
    used = defaultdict[str, float](float)
    for process in descendants():
        used[process.name] += process.cpu_s
    return used


def cpu_by_pid() -> dict[int, float]:
    return {process.pid: process.cpu_s for process in descendants()}


def memory_mib() -> dict[str, float]:
    """The memory of each program (PSS): a page that several processes share is divided among them,
    so the figures can be added."""
    used = defaultdict[str, float](float)
    for process in descendants():
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            pss = next(line for line in text.splitlines() if line.startswith("Pss:"))
            used[process.name] += int(pss.split()[1]) / 1024
    return used


def pin(names: set[str]) -> None:
    """Pins these programs to one core, and all others except this process to the other cores."""
    first, *others = sorted(os.sched_getaffinity(0))
    for process in descendants():
        if process.pid == os.getpid():
            continue  # a process that is started later may run anywhere
        cores = [first] if process.name in names else others
        for thread in Path(f"/proc/{process.pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)


def descendants() -> Iterator[Process]:
    """This process and its descendants. A child may have a smaller number than its parent."""
    children = defaultdict[int, list[Process]](list)
    left = list[Process]()
    for process in _processes():
        children[process.parent].append(process)
        if process.pid == os.getpid():
            left.append(process)
    while left:
        process = left.pop()
        yield process
        left += children[process.pid]


def _processes() -> Iterator[Process]:
    for pid in (int(each.name) for each in Path("/proc").glob("[0-9]*")):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            used = (int(fields[11]) + int(fields[12])) / TICKS
            yield Process(pid, int(fields[1]), _name_of(words), used)


def _name_of(words: list[str]) -> str:
    """The name of a process of Joulie, or of a program."""
    for at, word in enumerate(words):
        if word == "joulie_cli.main" or word.endswith("peers.py"):
            return words[at + 1]
    return Path(words[0]).name
