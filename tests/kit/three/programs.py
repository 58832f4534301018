"""Programs on machines. What ends is started again a second later, as a supervisor does."""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from joulie_bus.runtime.child_process import die_with_parent

PAUSE_S = 1.0  # from the end of a program to its next start
PATIENCE_S = 120.0


class Command(NamedTuple):
    name: str
    machine: int
    words: Sequence[str]
    environment: Mapping[str, str]
    directory: Path  # of its log
    user: int | None = None  # of the process


class Ended(NamedTuple):
    """A program that ended by itself."""

    name: str
    code: int
    why: str


class Program:
    """One command that is kept running."""

    def __init__(self, command: Command, ended: list[Ended]) -> None:
        self.command = command
        self.started_at = 0.0
        self.is_held = False  # is not started again
        self._ended = ended
        self._process: Process | None = None
        self._killed = False

    @property
    def name(self) -> str:
        return self.command.name

    @property
    def _log(self) -> Path:
        return self.command.directory / f"{self.name}.log"

    def runs_for(self) -> float:
        """Seconds since the last start; 0 while it does not run."""
        if self._process is None or self._process.returncode is not None:
            return 0.0
        return asyncio.get_running_loop().time() - self.started_at

    async def keep(self) -> None:
        while True:
            if self.is_held:
                await asyncio.sleep(0.05)
                continue
            process = await self._start()
            code = await process.wait()
            if not self._killed:
                self._ended.append(Ended(self.name, code, self._reason()))
            self._killed = False
            await asyncio.sleep(PAUSE_S)

    async def _start(self) -> Process:
        command = self.command
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command.words,
                env={**os.environ, **command.environment},
                cwd=command.directory,
                stdout=log,
                stderr=log,
                user=command.user,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self.started_at = asyncio.get_running_loop().time()
        return self._process

    def _reason(self) -> str:
        """The error with which it ended: the last line of the log that begins with its name."""
        lines = self._log.read_text(errors="replace").splitlines()
        errors = [
            line
            for line in lines
            if line.startswith("joulie ") or "Error" in line or "has not ended" in line
        ]
        return (errors or lines or [""])[-1]

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """The program with its children, as a machine that loses its power."""
        if self._process is not None and self._process.returncode is None:
            self._killed = True
            os.killpg(self._process.pid, number)

    async def freeze(self, seconds: float) -> None:
        """It stands still, as on a machine without CPU, and continues."""
        assert self._process is not None
        group = self._process.pid
        os.killpg(group, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.killpg(group, signal.SIGCONT)

    async def stop(self) -> None:
        """In order; it stays stopped."""
        self.is_held = True
        self.kill(signal.SIGTERM)
        if self._process is not None:
            try:
                await asyncio.wait_for(self._process.wait(), PATIENCE_S)
            except TimeoutError:
                self.kill()


@contextlib.asynccontextmanager
async def kept(programs: Sequence[Program]) -> AsyncGenerator[None, None]:
    """The programs run in this block."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each.keep(), name=each.name) for each in programs]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for each in programs:
                each.kill()
