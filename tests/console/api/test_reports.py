"""The process that computes a report for the console, and its limits."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bus_kit import until
from joulie_answers.readers.energy import Period
from joulie_answers.report.served import refusal_of
from joulie_bus.errors import (
    AgedOut,
    JoulieError,
    NotAnswered,
    NotInTheLog,
    QueryRefused,
    StreamReplaced,
)
from joulie_console.api.reports import NO_RESULT, ReportProgram, Reports

ALL = Period(0, 1)
MAIN = "import sys; sys.argv[1:] = ['none', '0', '1']; served.main()"
REPORT = """print('{"report":{}}')"""


def program(code: str) -> ReportProgram:
    return ReportProgram(lambda _: (sys.executable, "-c", code), os.environ)


async def refused(reports: Reports) -> tuple[int, str]:
    with pytest.raises(NotAnswered) as caught:
        await reports.of(ALL)
    return caught.value.status, str(caught.value)


@pytest.mark.anyio
async def test_a_refusal_of_the_process_is_that_of_the_console() -> None:
    code = """print('{"refusal":{"status":410,"why":"Too much."}}')"""

    assert await refused(Reports(program(code))) == (410, "Too much.")


@pytest.mark.anyio
async def test_a_process_that_fails_is_no_report() -> None:
    assert await refused(Reports(program("raise ValueError"))) == (503, NO_RESULT)


@pytest.mark.anyio
async def test_a_report_that_takes_too_long_is_too_large() -> None:
    status, why = await refused(Reports(program("import time; time.sleep(1e6)"), timeout_s=0.01))

    assert status == 410
    assert "too large" in why
    assert "`joulie report`" in why


@pytest.mark.anyio
async def test_a_process_ends_when_nobody_waits_for_it(tmp_path: Path) -> None:
    """As at the deadline and at the end of the console."""
    file = tmp_path / "pid"
    code = f"import os, time; print(os.getpid(), file=open({str(file)!r}, 'w', 1)); time.sleep(1e6)"
    asked = asyncio.create_task(Reports(program(code), timeout_s=1e6).of(ALL))
    await until(lambda: file.exists() and file.read_text().endswith("\n"))
    asked.cancel()
    await asyncio.wait([asked])

    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)


@pytest.mark.anyio
async def test_one_report_is_computed_at_a_time() -> None:
    """Each process starts when the results of those before it are there."""
    ended: list[Any] = []
    ended_before: list[int] = []

    def words(_: Period) -> tuple[str, ...]:
        ended_before.append(len(ended))
        return sys.executable, "-c", REPORT

    reports = Reports(ReportProgram(words, os.environ))

    async def ask() -> None:
        ended.append(await reports.of(ALL))

    await asyncio.gather(*(ask() for _ in range(3)))

    assert ended == [{}] * 3
    assert ended_before == [0, 1, 2]


def test_the_memory_of_a_report_is_not_that_of_the_process_that_starts_it() -> None:
    told = "from joulie_answers.report.served import used_memory; print(used_memory())"
    parent = (
        "import subprocess, sys; kept = b'x' * (400 << 20);"
        f"subprocess.run([sys.executable, '-c', {told!r}], check=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", parent], capture_output=True, text=True, check=True
    )

    assert 1 << 20 < int(done.stdout) < 400 << 20


@pytest.mark.anyio
async def test_a_report_that_takes_too_much_memory_is_too_large() -> None:
    code = f"from joulie_answers.report import served; served.MOST_MEMORY = 1; {MAIN}"
    status, why = await refused(Reports(program(code)))

    assert status == 410
    assert "MiB of memory" in why


REFUSALS: dict[int, JoulieError] = {
    404: NotInTheLog("no energy"),
    410: AgedOut("JOULIE_OBS", 1, 7),
    503: QueryRefused("busy"),
}


@pytest.mark.parametrize("status", REFUSALS)
def test_an_error_has_the_status_of_other_answers(status: int) -> None:
    assert refusal_of(REFUSALS[status]).status == status


def test_a_stream_that_was_replaced_is_too_far_back() -> None:
    assert refusal_of(StreamReplaced.at("JOULIE_OBS", 3)).status == 410
