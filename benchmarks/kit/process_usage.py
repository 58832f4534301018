"""The CPU time and the memory of this process and its descendants, by the name of the program.

The components of `joulie up` are forked from one process, so their command line is its own: they
are known by the title that each sets. A child without a name of its own counts for its parent, and
so does a child that has ended, but for the reports of the ledger: they come by the clock, one in
minutes, and would fall into some windows of a measurement and not into others.
"""

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from joulie_bus.streams.roles import Role
from joulie_cli.supervisor.forked import MOST_OF_A_NAME

TICKS = os.sysconf("SC_CLK_TCK")
TITLE = "joulie "  # of a forked component; Linux keeps MOST_OF_A_NAME bytes of it
COMPONENTS = {str(role)[: MOST_OF_A_NAME - len(TITLE)]: str(role) for role in Role}
MAIN = "joulie_cli.main"
FORK_SERVER, TRACKER = "multiprocessing.forkserver", "multiprocessing.resource_tracker"
IMPORTS = "imports"  # the process from which components are forked
BENCHMARK = "benchmark"  # this process and its helpers
REPORT = "report"  # `joulie report`, as the ledger starts it
ENDED = {"ledger": REPORT}  # whose CPU that of children is that have ended
PYTHON, HERE = "python", str(Path(__file__).parent)


class Unattributed(Exception):
    """A process that belongs to no program: its CPU would be missing from the figures."""


class Process(NamedTuple):
    pid: int
    parent: int
    name: str  # empty if it has none of its own
    cpu_s: float
    ended_s: float  # the CPU time of its children that have ended


def cpu_s() -> dict[str, float]:
    """The CPU time of each program so far. Raises Unattributed."""
    used = defaultdict[str, float](float)
    for process in descendants():
        used[process.name] += process.cpu_s
        used[ENDED.get(process.name, process.name)] += process.ended_s
    return used


def cpu_by_pid() -> dict[int, float]:
    return {process.pid: process.cpu_s + process.ended_s for process in descendants()}


def require(names: Iterable[str], found: Iterable[str]) -> None:
    """Each of these components is among the programs whose CPU was found."""
    if missing := sorted(set(names) - set(found)):
        raise Unattributed(f"No CPU was found of {', '.join(missing)}. Nothing was measured.")


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
    """This process and its descendants, each with a name. Raises Unattributed. A child may have a
    smaller number than its parent."""
    children = defaultdict[int, list[Process]](list)
    left = list[Process]()
    for process in _processes():
        children[process.parent].append(process)
        if process.pid == os.getpid():
            left.append(process._replace(name=BENCHMARK))
    while left:
        process = left.pop()
        yield process
        left += [_named(child, process) for child in children[process.pid]]


def _named(child: Process, parent: Process) -> Process:
    if parent.name == IMPORTS and child.name in ("", IMPORTS):
        raise Unattributed(
            f"Process {child.pid} was forked as a component and has no title. Nothing was measured."
        )
    return child if child.name else child._replace(name=parent.name)


def _processes() -> Iterator[Process]:
    for pid in (int(each.name) for each in Path("/proc").glob("[0-9]*")):
        with contextlib.suppress(OSError):
            place = Path(f"/proc/{pid}")
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            if fields[0] == "Z":
                continue  # it has ended, and its CPU is among that of the children of its parent
            words = (place / "cmdline").read_text().split("\0")
            title = (place / "comm").read_text().strip()
            ended_s = 0.0 if pid == os.getpid() else sum(map(int, fields[13:15])) / TICKS
            name = name_of(title, words)
            yield Process(pid, int(fields[1]), name, _cpu_s(place, fields), ended_s)


def _cpu_s(place: Path, fields: list[str]) -> float:
    """Of all threads, in nanoseconds if the kernel counts them."""
    try:
        threads = [each.read_text() for each in place.glob("task/*/schedstat")]
        counted_s = sum(int(each.split()[0]) for each in threads) / 1e9
    except (OSError, IndexError):  # a thread has ended, or the kernel does not count
        counted_s = 0.0
    return max(counted_s, sum(map(int, fields[11:13])) / TICKS)


def name_of(title: str, words: list[str]) -> str:
    """Of a component of Joulie, or of a program; empty if it has none of its own."""
    if title.startswith(TITLE):
        return COMPONENTS.get(title.removeprefix(TITLE), title.removeprefix(TITLE))
    for at, word in enumerate(words):
        if word == MAIN or word.endswith("peers.py"):
            return words[at + 1]
        if word.startswith(HERE):
            return Path(word).stem
        if FORK_SERVER in word or TRACKER in word:
            return IMPORTS
    program = Path(words[0]).name
    return "" if program.startswith(PYTHON) else program
