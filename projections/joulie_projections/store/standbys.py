"""What a PostgreSQL server says about its standbys."""

from typing import NamedTuple


class Standbys(NamedTuple):
    """The streaming standbys of a PostgreSQL server."""

    connected: int
    synchronous: str  # the setting synchronous_standby_names; empty if none is
