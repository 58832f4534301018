"""A connection to PostgreSQL that waits for no answer for ever, and holds no result of any size.

`statement_timeout` and `lock_timeout` bind a server that keeps to its protocol. What answers at the
address of the database may be a server that hangs, or another program.
"""

import resource
import sys
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen

MOST_BYTES = 1 << 30  # by which one result lets the process grow
_EACH = 256  # readings of the socket between two looks at the size of the process
_UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
T = TypeVar("T")


class BoundedConnection(psycopg.Connection[Any]):
    """psycopg calls `wait` for each statement and for each portion of rows."""

    answer_s: float | None = None  # for each of them; None: no limit

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        try:
            return super().wait(_bounded(gen), interval, timeout or self.answer_s)
        except psycopg.errors._WaitTimeout as error:
            self.close()
            raise psycopg.OperationalError(
                f"the server did not answer within {self.answer_s:g} s"
            ) from error
        except _TooLarge as error:
            self.close()
            raise psycopg.OperationalError(str(error)) from error


class _TooLarge(Exception):
    pass


def _bounded(gen: PQGen[T]) -> Generator[Any, Any, T]:
    """The same steps. Raises _TooLarge when the process has grown too much since the first one."""
    before, steps = _peak_bytes(), 0
    try:
        wanted = next(gen)
        while True:
            wanted = gen.send((yield wanted))
            steps += 1
            if steps % _EACH == 0 and _peak_bytes() - before > MOST_BYTES:
                raise _TooLarge(f"the answer of the server has more than {MOST_BYTES >> 20} MiB")
    except StopIteration as end:
        result: T = end.value
        return result


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT
