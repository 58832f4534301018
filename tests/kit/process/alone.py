"""Decides alone what failed while other tests ran beside it, and may have failed for that reason.

A loaded machine makes any deadline too short, and lets the processes that a test starts run in any
order: that such a test failed among others proves little. Alone it does. A law repeats the example
that it failed with.
"""

import re
import subprocess
import sys

import pytest

OUT_OF_TIME = re.compile(r"\bTimeoutError\b|Timeout \(>|\bTimeoutExpired\b|\d+ms exceeded")
SLOW = "slow"  # the mark of tests that wait for processes
MOST = 3  # that more tests fail has another cause than the machine


class DecidedAlone:
    """A plugin for the process that hands tests to workers."""

    def __init__(self) -> None:
        self._failed: list[pytest.TestReport] = []
        self._passed_alone: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.append(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        late = sorted({report.nodeid for report in self._failed})
        if session.exitstatus != pytest.ExitCode.TESTS_FAILED or len(late) > MOST:
            return
        if all(map(may_be_the_machine, self._failed)) and pass_alone(late):
            self._passed_alone = late
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._passed_alone:
            terminalreporter.section("failed beside others, and passed alone")
            for test in self._passed_alone:
                terminalreporter.line(test)


def may_be_the_machine(report: pytest.TestReport) -> bool:
    return SLOW in report.keywords or OUT_OF_TIME.search(reason_of(report)) is not None


def reason_of(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longrepr)


def pass_alone(tests: list[str]) -> bool:
    words = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", *tests]
    return subprocess.run(words, check=False).returncode == 0
