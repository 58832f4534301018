"""Computes a report for a console, as a process of its own with bounds on memory and size.

A report reads all facts of pods since the log began and simulates the period: in the process of the
console it would delay other responses. The console ends this process at its deadline.
"""

import argparse
import asyncio
import os
import resource
import sys
import threading
import time
from pathlib import Path

import msgspec

from joulie_answers.report.form import Document, Period, as_json_text
from joulie_answers.report.served_result import ReportRefusal, Served, too_large
from joulie_answers.report.signature import signed
from joulie_answers.report.write import computed
from joulie_audit.access.past import ArchivePlace, usual_archive
from joulie_bus.errors import AgedOut, JoulieError, NotInTheLog, StreamReplaced
from joulie_bus.runtime.child_process import die_with_parent
from joulie_bus.streams.roles import Role
from joulie_projections.component.wiring import Wiring, wired

NICE = 5
MOST_MEMORY = 512 << 20  # the limit of the console's container leaves room for it
STATM = Path("/proc/self/statm")
CHECK_S = 0.1
LARGEST = 32 << 20  # of the document, half of what a client reads
_writing = threading.Lock()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("from_ms", type=int)
    parser.add_argument("to_ms", type=int)
    args = parser.parse_args()
    die_with_parent()
    os.nice(NICE)
    _end_if_too_large()
    threading.Thread(target=_watch_memory, daemon=True).start()
    _write(_answer(args.data, Period(args.from_ms, args.to_ms)))
    return 0


def _watch_memory() -> None:
    """Of what is used: the kernel's limits count what libraries reserve, too."""
    while True:
        time.sleep(CHECK_S)
        _end_if_too_large()


def _end_if_too_large() -> None:
    if used_memory() > MOST_MEMORY:
        _write(_encoded(too_large(f"it takes more than {MOST_MEMORY >> 20} MiB of memory")))
        os._exit(0)


def used_memory() -> int:
    """In bytes. Linux counts the memory of the parent process in the peak of `getrusage`; macOS has
    nothing else."""
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(STATM.read_text().split()[1]) * resource.getpagesize()


def _write(answer: bytes) -> None:
    """Once: the first answer counts."""
    _writing.acquire()
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()


def _answer(data: Path, period: Period) -> bytes:
    try:
        wires = wired("report", (ArchivePlace,), data, None)
        text = as_json_text(asyncio.run(_report(wires, period)))
    except JoulieError as error:
        return _encoded(refusal_of(error))
    if len(text) > LARGEST:
        return _encoded(too_large(f"its JSON has more than {LARGEST >> 20} MiB"))
    return f'{{"report":{text}}}'.encode()


async def _report(wires: Wiring, period: Period) -> Document:
    """Signed only by a process that may read the key."""
    found = await computed(wires, usual_archive(wires), period, Role.CONSOLE)
    return signed(found, wires.data.key) if os.access(wires.data.key, os.R_OK) else found


def refusal_of(error: JoulieError) -> ReportRefusal:
    if isinstance(error, AgedOut | StreamReplaced):
        return ReportRefusal(410, str(error))
    return ReportRefusal(404 if isinstance(error, NotInTheLog) else 503, str(error))


def _encoded(refusal: ReportRefusal) -> bytes:
    return msgspec.json.encode(Served(refusal=refusal))


if __name__ == "__main__":
    sys.exit(main())
