"""Requests that a broker does not answer for the moment, as during an election."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from joulie_bus.errors import BrokerRefused, Unreachable
from joulie_bus.runtime.logging import get_logger

NO_LEADER = 10008
# Temporary refusals: no leader, no peers, no quorum, ingest queue full, disk busy, the same message
# is being stored (its first copy may still be lost with the leader).
TEMPORARY = frozenset({503, 429, 10005, NO_LEADER, 10009, 10023, 10028, 10035, 10158, 10167})
PAUSE_S = 0.5
T = TypeVar("T")
log = get_logger("bus")


async def until_answered(ask: Callable[[], Awaitable[T]]) -> T:
    """Asks again without a limit. For the start of a component, which would end otherwise, start
    again and be refused again. Other refusals are raised."""
    while True:
        try:
            return await ask()
        except (BrokerRefused, Unreachable) as error:
            if isinstance(error, BrokerRefused) and error.code not in TEMPORARY:
                raise
            log.warning("asked_again", error=str(error))
        await asyncio.sleep(PAUSE_S)
