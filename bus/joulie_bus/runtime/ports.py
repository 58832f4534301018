"""Loopback ports that are chosen before their servers listen, each by one process at a time."""

import contextlib
import errno
import secrets
import socket
import sys
from collections import deque
from collections.abc import Iterator
from itertools import cycle, islice

_PORTS = range(20_000, 30_000)
_KEPT = 256  # claims of one process, so that its descriptors are bounded; a command needs ten
_claims: deque[socket.socket] = deque()


def _shuffled() -> Iterator[int]:
    """Shuffles when the first port is chosen: most processes choose none."""
    yield from cycle(secrets.SystemRandom().sample(_PORTS, len(_PORTS)))


_numbers = _shuffled()


def free_port() -> int:
    """A port that is free now and that nothing else takes before the server listens.

    Systems assign outgoing ports above 32,767, and other processes of Joulie pass it by until this
    one has ended or has chosen `_KEPT` others. The same port is not returned twice in a row.
    """
    for port in islice(_numbers, len(_PORTS)):
        if take(port):
            return port
    raise OSError(errno.EADDRINUSE, f"every port from {_PORTS[0]} to {_PORTS[-1]} is in use")


def take(port: int) -> bool:
    """Claims a port for a server that starts later. Returns False if it is claimed or in use."""
    if not _is_unused(port) or (claim := _claim(port)) is None:
        return False
    _claims.append(claim)
    if len(_claims) > _KEPT:
        _claims.popleft().close()
    return True


def _is_unused(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True
    return False


def _claim(port: int) -> socket.socket | None:
    """A name that one process has at a time, until it ends, however it ends. Only Linux has such
    names; elsewhere two processes that start at the same moment can choose the same port."""
    claim = socket.socket(socket.AF_UNIX)
    if sys.platform != "linux":
        return claim
    try:
        claim.bind(f"\0joulie-port-{port}")
    except OSError:
        claim.close()
        return None
    return claim
