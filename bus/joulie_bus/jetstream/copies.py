"""Which servers of a broker lack messages of a stream that other servers hold.

A server drops what follows a damaged byte in a block of its store, never fetches it from its peers,
and continues to answer readers, without a word about the hole. So a reader that finds a gap reads
elsewhere, and a gap counts as one of the stream only if every server has it.
"""

from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.records import StreamState
from joulie_bus.streams.subjects import Stream

log = get_logger("bus")


class Copies:
    """The copies of one stream, for one reader: which of them lack the message that it needs next.

    `wanted` is the sequence of that message. What was found of an earlier one does not count.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._servers: tuple[str, ...] = ()
        self._gaps: dict[str, tuple[int, int]] = {}  # by server: wanted, and what it has instead
        self._late: dict[str, int] = {}
        self._logged: set[str] = set()

    def are_those_of(self, state: StreamState) -> None:
        self._servers = state.servers

    @property
    def are_several(self) -> bool:
        return len(self._servers) > 1

    def lack(self, server: str, wanted: int, first: int) -> None:
        """The copy of this server continues at `first`."""
        self._gaps[server] = (wanted, first)
        if self.are_several and server not in self._logged:
            self._logged.add(server)
            log.error(
                "gap_in_copy",
                server=server,
                stream=self._stream,
                wanted=wanted,
                found=first,
                what="reading from another server (docs/three-brokers.md)",
            )

    def are_late(self, server: str, wanted: int) -> None:
        """This server delivers nothing, although the leader holds more."""
        self._late[server] = wanted
        log.warning("copy_behind", server=server, stream=self._stream, wanted=wanted)

    def are_useless(self, server: str, wanted: int) -> bool:
        """Whether another server may have the message that this one lacks."""
        if not self.are_several:
            return False
        if all(
            self._late.get(each) == wanted or self._has_gap(each, wanted) for each in self._servers
        ):
            self._late.clear()
        return self._late.get(server) == wanted or self._has_gap(server, wanted)

    def all_lack(self, wanted: int) -> bool:
        """Also true if there is a single copy; to be asked after `lack`."""
        return not self.are_several or all(self._has_gap(each, wanted) for each in self._servers)

    def first_after(self, wanted: int) -> int:
        """What the stream continues with, if all copies lack the wanted message."""
        return min(first for missed, first in self._gaps.values() if missed == wanted)

    def _has_gap(self, server: str, wanted: int) -> bool:
        return self._gaps.get(server, (0, 0))[0] == wanted
