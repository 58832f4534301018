"""Reports of a period, computed by a process of their own: one at a time, with a deadline."""

import asyncio
import contextlib
import os
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from joulie_answers.readers.energy import Period
from joulie_answers.report.served_result import Served, too_large, words_of
from joulie_bus.errors import NotAnswered
from joulie_bus.runtime.logging import get_logger

TIMEOUT_S = 30.0  # with the wait for other reports; clients wait 35 s
NO_RESULT = "The report was not computed; the console's log has the details."
Words = Callable[[Period], Sequence[str]]
log = get_logger("console")
_served = msgspec.json.Decoder(Served).decode


class ReportProgram(NamedTuple):
    """How the process is started."""

    words: Words
    environ: Mapping[str, str]

    @classmethod
    def at(cls, data: Path, settings: Mapping[str, str]) -> "ReportProgram":
        """`settings` of a file are those that the environment does not give."""
        return cls(lambda period: words_of(data, *period), {**settings, **os.environ})


class Reports:
    def __init__(self, program: ReportProgram, timeout_s: float = TIMEOUT_S) -> None:
        self._program = program
        self._timeout_s = timeout_s
        self._lock = asyncio.Lock()

    async def of(self, period: Period) -> dict[str, Any]:
        """Raises NotAnswered."""
        try:
            async with asyncio.timeout(self._timeout_s), self._lock:
                found = await self._run(period)
        except TimeoutError as error:
            took = f"computing, and the wait for other reports, took over {self._timeout_s:g} s"
            refused = too_large(took)
            raise NotAnswered(refused.status, refused.why) from error
        if found.report is None:
            assert found.refusal is not None
            raise NotAnswered(found.refusal.status, found.refusal.why)
        return found.report

    async def _run(self, period: Period) -> Served:
        words, environ = self._program.words(period), self._program.environ
        child = await asyncio.create_subprocess_exec(
            *words, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=environ
        )
        try:
            out, errors = await child.communicate()
        finally:
            await _ended(child)
        if child.returncode:
            lines = errors.decode(errors="replace").strip().splitlines()
            why = lines[-1] if lines else f"it ended with {child.returncode}"
            log.error("report_not_computed", why=why)
            raise NotAnswered(503, NO_RESULT)
        return await asyncio.to_thread(_served, out)


async def _ended(child: Process) -> None:
    """Ends it at the deadline, and with the console."""
    with contextlib.suppress(ProcessLookupError):
        child.kill()
    await child.wait()
