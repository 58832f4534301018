"""Work in a fork of this process, and what is printed beside its output."""

import os
import pickle
import resource
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import IO, TypeVar

TIMEOUT_S, CPU_S = 300, 60  # a mutant may wait or loop forever


EXPLORE_S = 24 * 3600


OUTPUT = os.dup(1)  # the tests' own output is dropped


Result = TypeVar("Result")


def in_fork(run: Callable[[], Result], seconds: int = CPU_S) -> Result | None:
    """What the work returns, which may neither fail nor loop nor wait forever."""
    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if child == 0:
            _work(run, seconds, file)
        deadline = time.monotonic() + max(TIMEOUT_S, seconds)
        while not os.waitpid(child, os.WNOHANG)[0]:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.01)
        file.seek(0)
        written = file.read()
    return pickle.loads(written) if written else None


def _work(run: Callable[[], object], seconds: int, file: IO[bytes]) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
        result = pickle.dumps(run())
        file.write(result)
        file.flush()
    except BaseException:
        report(traceback.format_exc())
    finally:
        os._exit(0)


def be_quiet() -> None:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)


def report(line: object) -> None:
    os.write(OUTPUT, f"{line}\n".encode())
