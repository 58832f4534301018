"""Component processes, forked from one process in which everything is imported.

An import takes a component 0.6 s of processor time and 50 MiB; forked components share the pages
of one import, and a restart takes milliseconds. The fork server of the standard library is a fresh
process, so no lock and no connection of ours is inherited. Libraries of macOS do not survive a
fork, so each component is a new process there.
"""

import asyncio
import ctypes
import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver, get_context
from multiprocessing.process import BaseProcess
from runpy import run_module

from joulie_bus.runtime.child_process import die_with_parent

FORKS = sys.platform == "linux"
PRELOADED = "joulie_cli.preloaded"
# Read at the start of a process, so the fork server needs them. No part multiplies matrices or
# allocates in many threads; by default both libraries create a pool per core.
AT_START = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
MOST_OF_A_NAME = 15  # bytes that Linux keeps of the name of a process
PR_SET_NAME = 15
_fork_server: list[int] = []  # its process, in it and in the components


class Forked:
    """A component in a process of its own, which ends with this one."""

    def __init__(self, process: BaseProcess) -> None:
        self._process = process
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(process.sentinel, self._has_ended)

    @classmethod
    async def start(cls, words: Sequence[str], environ: Mapping[str, str], log: str) -> "Forked":
        """Runs `joulie` with these words and this environment; appends what it writes to a log."""
        context = get_context("forkserver") if FORKS else get_context("spawn")
        context.set_forkserver_preload([PRELOADED])  # without effect if the fork server runs
        process = context.Process(target=_run, args=(list(words), dict(environ), log), daemon=True)
        if FORKS:
            _ensure_fork_server()
        await asyncio.to_thread(process.start)  # the first one waits for the imports
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    @property
    def exit_code(self) -> int | None:
        """None while it runs; 255 if the fork server ended before it."""
        return self._process.exitcode

    async def wait(self) -> int:
        await self._ended.wait()
        code = self._process.exitcode
        assert code is not None
        return code

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def _has_ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self._process.join()
        self._ended.set()


def _ensure_fork_server() -> None:
    """In this thread, because it ends with the thread that started it."""
    for name, value in AT_START.items():
        os.environ.setdefault(name, value)
    forkserver.ensure_running()


# --- in the fork server -------------------------------------------------------------------------


def become_fork_server() -> None:
    die_with_parent()
    _fork_server.append(os.getpid())


# --- in the component's process -----------------------------------------------------------------


def _run(words: list[str], environ: Mapping[str, str], log: str) -> None:
    die_with_parent()
    if _fork_server and os.getppid() not in _fork_server:
        return  # it died before it could be a reason to end
    os.setsid()  # Ctrl-C is for the supervisor, which ends the components in order
    _write_to(log)
    os.environ.clear()
    os.environ.update(environ)
    _name_it(f"joulie {words[0]}")
    sys.argv = ["joulie", *words]
    run_module("joulie_cli.main", run_name="__main__")  # as `python -m` does


def _write_to(log: str) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    written = os.open(log, os.O_WRONLY | os.O_APPEND)
    for source, target in ((nothing, 0), (written, 1), (written, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(written)


def _name_it(name: str) -> None:
    """For `ps` and `top`; its command line is that of the fork server."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode()[:MOST_OF_A_NAME], 0, 0, 0)
