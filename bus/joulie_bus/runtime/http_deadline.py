"""A deadline for a whole exchange of `http.client`, whose time-outs are of one read each.

A server that trickles bytes, headers, trailers or interim answers keeps each read short, and the
exchange without an end.
"""

import contextlib
import socket
import threading
from collections.abc import Generator
from http.client import HTTPConnection, HTTPException
from typing import Any


@contextlib.contextmanager
def within(connection: HTTPConnection, whole_s: float) -> Generator[None, None, None]:
    """Connects, if that is not done, and cuts the connection if the block takes longer.

    Raises TimeoutError then, also if what arrived looks like a whole answer.
    """
    if connection.sock is None:
        connection.connect()
    opened: Any = connection.sock
    is_over = threading.Event()

    def cut() -> None:
        is_over.set()
        with contextlib.suppress(OSError):  # the connection knows it no more after its last answer
            opened.shutdown(socket.SHUT_RDWR)

    end = threading.Timer(whole_s, cut)
    end.daemon = True
    end.start()
    try:
        yield
    except (OSError, HTTPException) as error:
        if is_over.is_set():
            raise TimeoutError(_late(whole_s)) from error
        raise
    finally:
        end.cancel()
    if is_over.is_set():
        raise TimeoutError(_late(whole_s))


def _late(whole_s: float) -> str:
    return f"no whole answer within {whole_s:g} s"
