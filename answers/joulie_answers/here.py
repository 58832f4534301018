"""The status of this machine: the processes of `joulie up` here, and the database."""

from joulie_answers.readers.gauges import gauges_of
from joulie_answers.readers.status import status_here
from joulie_answers.schema.responses import Status
from joulie_answers.views.status import Processes
from joulie_projections.component.data_directory import DataDirectory, Running, is_alive
from joulie_projections.component.opening import history_in

NS = 10**9


def status_of(data: DataDirectory, now: int, reading_s: float) -> Status:
    """A reading is fresh for `reading_s`."""
    running = data.running()
    processes = _processes(running, now) if running else None
    with history_in(data) as history:
        return status_here(history, now, reading_s, processes, str(data.path))


def _processes(running: Running, now: int) -> Processes:
    return Processes(
        (now - running.since) / NS,
        running.parts,
        frozenset(name for name, pid in running.parts.items() if is_alive(pid)),
        running.restarts,
        gauges_of(running.metrics),
        {"broker": running.nats_url, **running.endpoints},
    )
