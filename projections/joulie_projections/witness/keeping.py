"""Keeps each new signed head where the settings name a place outside of broker and database."""

import asyncio
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from joulie_bus.errors import HeadsNotKept, JoulieError
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.metrics import HEADS_KEPT
from joulie_projections.chain.keyring import Ring
from joulie_projections.history.history import History
from joulie_projections.store.database import Place
from joulie_projections.witness.head_keepers import HeadKeeper
from joulie_projections.witness.restored_copy import WHY, is_copy

POLL_S = 2.0
AT_ONCE = 100  # heads, so that a long log is kept in steps
log = get_logger("heads")


class HeadKeeping:
    def __init__(
        self, place: Place, keeper: HeadKeeper | None, named: str, ring: Callable[[], Ring]
    ) -> None:
        """`ring` reads the keys of the log, which may change."""
        self._place = place
        self._ring = ring
        self._keeper = keeper
        self._named = named  # the place, for log and metric
        self._failure: str | None = None  # what was logged last; None before the first success

    async def run(self) -> None:
        """Runs until cancelled."""
        while self._keeper is not None:
            await asyncio.to_thread(self.keep)
            await asyncio.sleep(POLL_S)
        await asyncio.Event().wait()

    def keep(self) -> None:
        """Appends what is new. A failure is logged once; the next call tries again."""
        assert self._keeper is not None
        try:
            after = self._keeper.newest()
            with History.of(self._place) as history:
                if is_copy(history.connection):
                    raise HeadsNotKept(self._named, WHY)
                heads, last = history.heads_after(after), history.tip()
            heads = self._ring().valid(heads)[:AT_ONCE]
            if after > last:
                why = (
                    f"it holds a head of entry {after}, and the log ends at entry {last}: was the "
                    "log set back?"
                )
                raise HeadsNotKept(self._named, why)
            if heads:
                self._keeper.append(heads)
        except (JoulieError, SQLAlchemyError, OSError) as error:
            self._log(" ".join(str(error).split()) or type(error).__name__)
        else:
            self._log("")

    def _log(self, failure: str) -> None:
        HEADS_KEPT.labels(place=self._named).set(not failure)
        if failure == self._failure:
            return
        self._failure = failure
        if failure:
            log.error("heads_not_kept", to=self._named, why=failure)
        else:
            log.info("heads_kept", to=self._named)
