"""Posts events to a webhook, one after the other, again and again until it takes them.

A receiver that is down delays events; a bounded number of them waits, and the oldest is dropped for
a newer one. Conditions that still exist are reported again after a restart of the console, with the
same ids. Follows no redirect, so that the token goes to the address of the settings alone, and
reads no body.
"""

import asyncio
import ssl
from collections import deque
from urllib.parse import urlsplit

import aiohttp
import msgspec

from joulie_bus.core.backoff import Backoff
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_console.notify.settings import NotifySettings
from joulie_console.views.occurrences import CONTENT_TYPE, Event

MOST_WAITING = 1000
TIMEOUT_S = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
AGAIN = frozenset({408, 425, 429})  # and all from 500 on
log = get_logger("notify")


class Refused(Exception):
    """The receiver will not take this event later either."""


class Webhook:
    def __init__(self, settings: NotifySettings, most_waiting: int = MOST_WAITING) -> None:
        self._settings = settings
        self._host = urlsplit(settings.url).hostname
        self._most_waiting = most_waiting
        self._waiting = deque[Event]()
        self._has_events = asyncio.Event()

    def put(self, event: Event) -> None:
        if len(self._waiting) >= self._most_waiting:
            self._drop(self._waiting.popleft(), "more events wait than are kept")
        self._waiting.append(event)
        self._count_waiting()
        self._has_events.set()

    async def deliver(self) -> None:
        """Runs until it is cancelled."""
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        tls = ssl.create_default_context()  # SSL_CERT_FILE names other authorities
        connector = aiohttp.TCPConnector(ssl=tls, limit=1)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            while True:
                await self._has_events.wait()
                if not self._waiting:
                    self._has_events.clear()
                    continue
                event = self._waiting[0]
                if why := await self._why_not_sent(session, event):
                    pause_s = backoff.failed()
                    log.warning("not_notified", host=self._host, why=why, again_in_s=pause_s)
                    await asyncio.sleep(pause_s)
                    continue
                backoff.succeeded()
                if self._waiting and self._waiting[0] is event:  # it may have been dropped
                    self._waiting.popleft()
                self._count_waiting()

    async def _why_not_sent(self, session: aiohttp.ClientSession, event: Event) -> str:
        """Empty if the event needs no other attempt."""
        try:
            await self._post(session, event)
        except Refused as error:
            self._drop(event, str(error))
            return ""
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            metrics.NOTIFY_FAILING.set(1)
            return str(error) or "no answer in time"
        metrics.NOTIFY_FAILING.set(0)
        metrics.NOTIFICATIONS.labels(result="sent").inc()
        log.info("notified", id=event.id)
        return ""

    async def _post(self, session: aiohttp.ClientSession, event: Event) -> None:
        headers = {"Content-Type": CONTENT_TYPE}
        if self._settings.token:
            headers["Authorization"] = f"Bearer {self._settings.token}"
        body = msgspec.json.encode(event.tree)
        url = self._settings.url
        async with session.post(url, data=body, headers=headers, allow_redirects=False) as answer:
            answer.close()  # its body says nothing that is needed
            if 200 <= answer.status < 300:
                return
            if answer.status in AGAIN or answer.status >= 500:
                raise aiohttp.ClientError(f"status {answer.status}")
            raise Refused(f"status {answer.status}")

    def _drop(self, event: Event, why: str) -> None:
        metrics.NOTIFY_FAILING.set(1)
        metrics.NOTIFICATIONS.labels(result="dropped").inc()
        log.error("notification_dropped", id=event.id, host=self._host, why=why)

    def _count_waiting(self) -> None:
        metrics.NOTIFICATIONS_WAITING.set(len(self._waiting))
