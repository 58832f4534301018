"""Events straight from the broker, with the credentials of a viewer.

The broker keeps nothing for a viewer: the iterator reports lost connections and dropped events, and
the stream of a console has no gaps.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from joulie_answers.schema.responses import Notice
from joulie_bus.errors import Undecodable, Unreachable
from joulie_bus.events import AnyEvent, codec

MOST_WAITING = 10_000  # events that the program has not read yet
BrokerEvent = AnyEvent | Notice


@contextlib.asynccontextmanager
async def events_of_broker(
    url: str,
    *,
    password_file: str | Path = "",
    nkey_file: str | Path = "",
    ca_file: str | Path = "",
    cluster: str = "local",
) -> AsyncGenerator["BrokerEvents", None]:
    """Decisions, plans and transitions as they are published, from the start of the block on.

    `Notice` stands for events that are missing, with the reason. Give the password of the user
    `viewer` or its NKEY.
    """
    # 20 MB, which the calls of a console do not need
    from joulie_bus.jetstream.connection import Address, Connection
    from joulie_bus.streams.roles import Role, inbox
    from joulie_bus.streams.subjects import Stream, Subjects

    address = Address(
        url=url,
        user="" if nkey_file else Role.VIEWER,
        password=_password(url, password_file),
        nkey_file=str(nkey_file),
        ca_file=str(ca_file),
        inbox=inbox(Role.VIEWER),
    )
    subjects = Subjects(cluster)
    connection = await Connection.open(address, "joulie-client")
    waiting = BrokerEvents(lambda: connection.lives, MOST_WAITING)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(connection.close)
        for stream in (Stream.DEC, Stream.PLAN):
            for pattern in subjects.patterns(stream):
                await stack.enter_async_context(connection.listening(pattern, waiting.put))
        yield waiting


def _password(url: str, file: str | Path) -> str:
    try:
        return Path(file).read_text().strip() if file else ""
    except (OSError, UnicodeDecodeError) as error:
        raise Unreachable(url, f"{file}: {getattr(error, 'strerror', None) or error}") from error


class BrokerEvents:
    """An iterator over events. It keeps a bounded number that the program has not read."""

    def __init__(self, lives: Callable[[], int], most: int) -> None:
        self._lives, self._life = lives, lives()
        self._most = most
        self._arrived = deque[bytes | Notice]()
        self._dropped = 0
        self._has_arrived = asyncio.Event()

    @property
    def waiting(self) -> int:
        """The number of events that have arrived and were not read."""
        return len(self._arrived)

    def put(self, data: bytes) -> None:
        if self._lives() != self._life:
            self._life = self._lives()
            self._arrived.append(Notice(reason="the connection to the broker was lost"))
        if len(self._arrived) < self._most:
            self._report_dropped()
            self._arrived.append(data)
        else:
            self._dropped += 1
        self._has_arrived.set()

    def _report_dropped(self) -> None:
        if self._dropped:
            reason = f"{self._dropped} events were dropped: read faster"
            self._arrived.append(Notice(reason=reason))
            self._dropped = 0

    def __aiter__(self) -> "BrokerEvents":
        return self

    async def __anext__(self) -> BrokerEvent:
        if not self._arrived:
            self._report_dropped()
        while not self._arrived:
            self._has_arrived.clear()
            await self._has_arrived.wait()
        found = self._arrived.popleft()
        return found if isinstance(found, Notice) else _event_of(found)


def _event_of(data: bytes) -> BrokerEvent:
    try:
        return codec.decoded(data, "a message of the broker")
    except Undecodable as error:
        return Notice(reason=str(error))
