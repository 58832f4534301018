"""`joulie demo` and `joulie up` as processes, and the other commands beside them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from sqlalchemy.exc import OperationalError, ProgrammingError

import joulie_forked
from joulie_bus.errors import DatabaseUnreachable
from joulie_cli.supervisor.supervisor import free_addresses
from joulie_projections.component.data_directory import DataDirectory
from joulie_projections.history.history import Counts, History

PATIENCE_S = 180.0  # a slow machine; nothing here waits so long for its own sake


def joulie(*args: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return joulie_forked.joulie(*args, environ={**os.environ, **environ})


def told_by(*args: str | Path, **environ: str) -> tuple[int, dict[str, Any]]:
    done = joulie(*args, "-o", "json", **environ)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


class Running:
    """`joulie demo` or `joulie up`, until `end`."""

    def __init__(self, data: Path, *words: str, **environ: str) -> None:
        self.data = DataDirectory(data)
        self._database = environ.get("DATABASE_URL", self.data.database)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "joulie_cli.main", *words, "--data", str(data)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Most tests need eco nodes.
            env={**os.environ, "PRESET": "headroom", **free_addresses(), **environ},
        )

    def counts(self) -> Counts:
        with History.of(self._database) as history:
            return history.counts()

    def await_start(self) -> None:
        """Of a demo: it has the state of the projector."""
        said = self.process.stderr
        assert said is not None
        while "console at" not in (line := said.readline()):
            assert line, self.process.communicate()

    def await_decisions(self, wanted: int) -> None:
        self.wait_until(lambda: self.counts().answers >= wanted)

    def wait_until(self, is_so: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        not_there_yet = (OperationalError, ProgrammingError, DatabaseUnreachable)
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.process.communicate()
            with contextlib.suppress(*not_there_yet):
                if is_so():
                    return
            time.sleep(0.05)
        raise AssertionError("it did not come to that")

    def pids(self) -> dict[str, int]:
        """Of the parts that have been started."""
        running = self.data.running()
        return {name: pid for name, pid in running.parts.items() if pid} if running else {}

    def kill(self, part: str) -> None:
        """SIGKILL, and back again when the supervisor has made a new one."""
        victim = self.pids()[part]
        os.kill(victim, signal.SIGKILL)
        self.wait_until(lambda: self.pids().get(part, victim) not in (victim, 0))

    def end(self, number: int = signal.SIGINT) -> dict[str, Any]:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == (130 if number == signal.SIGINT else 0), err
        told: dict[str, Any] = json.loads(out)
        return told


@contextlib.contextmanager
def running(
    command: str, data: Path, *options: str, **environ: str
) -> Generator[Running, None, None]:
    started = Running(data, command, *options, **environ)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.process.kill()
            started.process.communicate()


def demo(data: Path, *options: str, **environ: str) -> contextlib.AbstractContextManager[Running]:
    return running("demo", data, "--headless", "-o", "json", *options, **environ)
