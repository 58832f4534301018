"""Gives the limits of this node back, for a person or before the writer ends."""

from pathlib import Path

from joulie_agent.caps.actuators import Actuator, actuators
from joulie_agent.caps.clocks import Locks, clock_locks
from joulie_agent.caps.memory import BadMemory, Memory
from joulie_agent.caps.writer import Outcome, Writer
from joulie_agent.sources.host import Host
from joulie_agent.sources.nvml import Library, opened


def memory_in(file: Path) -> Memory:
    """The memory of the writer; its folder is made. Raises BadMemory."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadMemory(f"{file.parent}: {error.strerror}") from error
    return Memory(file)


def release_limits(root: Path, file: Path) -> list[Outcome]:
    """What became of each limit that a writer set. Raises BadMemory."""
    host, memory = Host(root), memory_in(file)
    library = opened(host)
    try:
        return Writer(memory).release(all_limits(host, library, Locks(memory)))
    finally:
        memory.close()
        if library is not None:
            library.close()


def all_limits(host: Host, library: Library | None, locks: Locks) -> list[Actuator]:
    """The limits of this node that can be set, and the clocks of its cards."""
    clocks = clock_locks(library, locks) if library is not None else []
    return [*actuators(host, library), *clocks]


def shown_limit(outcome: Outcome) -> str:
    value = outcome.value or 0
    if outcome.kind == "clocks":
        return f"{value} MHz"
    return f"{value / 1e6:g} W" if outcome.kind == "cpu" else f"{value / 1000:g} W"
