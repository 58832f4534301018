"""Runs `joulie` in a process that is forked from one in which everything is imported.

The process has its own memory, environment, directory and streams, and ends with an exit code. It
saves the import, which takes most of the processor time of a short command.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import NamedTuple

from joulie_cli.command_line.commands import commands
from joulie_cli.main import main
from projections_kit import PRELOADED

PATIENCE_S = 120.0  # a slow machine; nothing here waits so long for its own sake
STOP_PATIENCE_S = 120.0
PRELOADED.extend([__name__, *(each.path for each in commands().values())])


class Command:
    """One run of `joulie`, with the whole environment; what it writes is kept in two files.

    `constants` replaces constants of modules, such as the seconds between two heads.
    """

    def __init__(
        self,
        words: Sequence[str | Path],
        environ: Mapping[str, str],
        kept: Path,
        where: Path | None = None,
        constants: Mapping[str, object] | None = None,
    ) -> None:
        self._words = [*map(str, words)]
        self._out, self._err = kept / "out", kept / "err"
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        place = _Place(dict(environ), where or Path.cwd(), self._out, self._err)
        self._process = context.Process(target=_run, args=(self._words, place, constants or {}))
        self._process.start()

    def wait(self, patience_s: float) -> bool:
        """Whether it has ended by then."""
        self._process.join(patience_s)
        return self._process.exitcode is not None

    def stop(self) -> None:
        """SIGTERM, if it has not ended by itself."""
        self._process.terminate()
        if not self.wait(STOP_PATIENCE_S):
            self._process.kill()
            raise subprocess.TimeoutExpired(self._words, STOP_PATIENCE_S)

    def kill(self) -> None:
        """SIGKILL: it can do nothing more."""
        self._process.kill()

    def interrupt(self) -> None:
        """Ctrl-C."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGINT)

    def said(self) -> str:
        """All that it has written so far."""
        return "".join(file.read_text() for file in (self._out, self._err) if file.exists())

    def done(self) -> subprocess.CompletedProcess[str]:
        assert self._process.exitcode is not None
        out, err = self._out.read_text(), self._err.read_text()
        return subprocess.CompletedProcess(self._words, self._process.exitcode, out, err)


def joulie(
    *words: str | Path, environ: Mapping[str, str] | None = None, where: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, with the environment of the tests or with another one."""
    given = os.environ if environ is None else environ
    with tempfile.TemporaryDirectory(prefix="joulie-said-") as kept:
        command = Command(words, given, Path(kept), where)
        if not command.wait(PATIENCE_S):
            command.stop()
            raise subprocess.TimeoutExpired(words, PATIENCE_S)
        return command.done()


class _Place(NamedTuple):
    environ: dict[str, str]
    where: Path
    out: Path
    err: Path


def _run(words: list[str], place: _Place, constants: Mapping[str, object]) -> None:
    for number, path in ((1, place.out), (2, place.err)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    # Ignored in a job that a shell started in the background, as these tests may have been.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(place.environ)
    os.chdir(place.where)
    for path_of, value in constants.items():
        owner, _, name = path_of.rpartition(".")
        setattr(resolve_name(owner), name, value)
    sys.exit(main(words))
