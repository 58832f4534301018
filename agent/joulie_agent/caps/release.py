"""Gives the limits of this node back, for a person or before the writer ends."""

from pathlib import Path

from joulie_agent.caps.actuators import actuators
from joulie_agent.caps.memory import BadMemory, Memory
from joulie_agent.caps.writer import Outcome, Writer
from joulie_agent.sources.host import Host
from joulie_agent.sources.nvml import opened


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
        return Writer(memory).release(list(actuators(host, library)))
    finally:
        memory.close()
        if library is not None:
            library.close()


def shown_limit(outcome: Outcome) -> str:
    value = outcome.value or 0
    return f"{value / 1e6:g} W" if outcome.kind == "cpu" else f"{value / 1000:g} W"
