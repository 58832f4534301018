"""The status of this machine: the processes of `joulie up` here, and the database."""

import shutil

from joulie_answers.readers.gauges import gauges_of
from joulie_answers.readers.status import status_here
from joulie_answers.schema.responses import Status
from joulie_answers.views.status import Disk, Processes
from joulie_projections.component.data_directory import DataDirectory, Running, is_alive
from joulie_projections.component.opening import history_in
from joulie_projections.component.room import lack_of_room
from joulie_projections.store.energy_lag import seconds_behind

NS = 10**9


def status_of(data: DataDirectory, now: int, reading_s: float) -> Status:
    """A reading is fresh for `reading_s`."""
    running = data.running()
    processes = _processes(running, now, _disk_of(data)) if running else None
    with history_in(data) as history:
        ledger_s = seconds_behind(data.database)  # its answer is as old as what it reads
        return status_here(history, ledger_s, now, reading_s, processes, str(data.path))


def _disk_of(data: DataDirectory) -> Disk:
    return Disk(shutil.disk_usage(data.path).free, lack_of_room(data.path))


def _processes(running: Running, now: int, disk: Disk) -> Processes:
    return Processes(
        (now - running.since) / NS,
        running.parts,
        {name: (now - started) / NS for name, started in running.started.items()},
        frozenset(name for name, pid in running.parts.items() if is_alive(pid)),
        running.restarts,
        gauges_of(running.metrics),
        {"broker": running.nats_url, **running.endpoints},
        disk,
    )
