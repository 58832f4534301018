"""Frees space: deletes what an archive holds from the streams and the database, up to a cut.

    check the cut that the archiver asks for     `history.asked_cut`
    record it                                    one row; readers respect it from now on
    purge the streams                            up to the cut
    delete the rows                              before the cut, in portions
    release the pages                            SQLite only

A crash may follow any step: the projector that leads next completes the newest cut.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import NamedTuple, Protocol

from sqlalchemy.exc import DBAPIError

from joulie_bus.errors import JoulieError, NotTrimmed
from joulie_bus.log.protocol import Answer
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.cut_requests import CutAnswer, CutRequest, encode, request_in
from joulie_bus.streams.subjects import Subjects
from joulie_projections.chain.head import Head
from joulie_projections.chain.keyring import Ring
from joulie_projections.fold.commit import Cut
from joulie_projections.history.asked_cut import Held, cut_as_asked, is_at
from joulie_projections.history.history import History
from joulie_projections.history.trimming import TrimStore
from joulie_projections.projector.trim_streams import (
    PurgingLog,
    anchored_heads,
    purge_bounds,
    purge_to,
)
from joulie_projections.store import database
from joulie_projections.store.database import Place

STANDBY_MARGIN_S = 600.0
ANSWER_S = 60.0  # for which an answer waits for the end of the deletion
UNKNOWN_STANDBY = (
    "a standby of PostgreSQL is away, or how far one is cannot be seen: "
    "GRANT pg_read_all_stats TO joulie_trimmer"
)
STANDBY_LACKS = (
    "A standby of PostgreSQL may need what is younger than {:.0f} s. Nothing was deleted to make "
    "room."
)
OpenHistory = Callable[[], AbstractContextManager[History]]
log = get_logger("trim")


class AnsweringLog(PurgingLog, Protocol):
    """Answers requests, one after another."""

    def answering(self, subject: str, answer: Answer) -> AbstractAsyncContextManager[None]: ...


class Trimmed(NamedTuple):
    """What was deleted."""

    cut: Cut
    rows: int
    messages: dict[str, int]  # purged, by stream
    freed: int  # bytes of the database file


class Trimmer:
    """The steps. `store` is that of the trimmer's role; `open_history` reads."""

    def __init__(
        self, store: TrimStore, open_history: OpenHistory, public: Callable[[], Ring]
    ) -> None:
        self.store = store
        self._open_history = open_history
        self._public = public

    def count_heads(self) -> int:
        with self._open_history() as history:
            return history.count_heads()

    def standbys_need_s(self, asked: CutRequest, now: int) -> float:
        """How much time has to stay if a standby lacks what this cut deletes, else 0: after a
        failover to it, the projector reads that again."""
        lag_s = self.store.standby_lag_s()
        if lag_s is None:
            raise NotTrimmed(f"{UNKNOWN_STANDBY}. Nothing was deleted to make room.")
        with self._open_history() as history:
            committed = history.committed_at(asked.p_to)
        least_s = lag_s + STANDBY_MARGIN_S
        return least_s if committed is None or now - committed < least_s * 1e9 else 0.0

    def cut(self, asked: CutRequest, anchored: Sequence[Head], now: int) -> bool:
        """Records the cut; returns whether it is a new one."""
        if is_at(self.store.newest(), asked):
            return False
        held = Held(anchored, self._public())
        with self._open_history() as history:
            made = cut_as_asked(history, asked, held, now)
        self.store.record(made)
        return True

    async def delete(
        self, bus: PurgingLog, subjects: Subjects, aside: Sequence[int] = ()
    ) -> Trimmed | None:
        """What lies before the newest cut; None: the log was never cut."""
        if (cut := self.store.newest()) is None:
            return None
        purged = await self.purge(bus, subjects)
        rows = await _paced(self.store.drop(aside))
        return Trimmed(cut, rows, purged, await _paced(self.store.release_pages()))

    async def purge(self, bus: PurgingLog, subjects: Subjects) -> dict[str, int]:
        with self._open_history() as history:
            if (cut := history.cut()) is None:
                return {}
            bounds = await purge_bounds(bus, subjects, history, cut)
        return await purge_to(bus, bounds)


class TrimTask:
    """Answers the archiver, one request at a time, and deletes. Only the projector that leads."""

    def __init__(
        self, bus: AnsweringLog, subjects: Subjects, place: Place, public: Callable[[], Ring]
    ) -> None:
        self._bus = bus
        self._subjects = subjects
        self._place = place
        self._public = public
        self._deleting = asyncio.Lock()
        self.is_answering = asyncio.Event()

    async def run(self) -> None:
        engine = database.trimmer(self._place)
        trimmer = Trimmer(TrimStore(engine), lambda: History.of(self._place), self._public)
        try:
            async with asyncio.TaskGroup() as tasks:

                async def answer(data: bytes) -> bytes:
                    return encode(await self._answer(trimmer, data, tasks))

                # The projector that led before may have been killed between two portions.
                tasks.create_task(self._delete(trimmer))
                async with self._bus.answering(self._subjects.cuts, answer):
                    self.is_answering.set()
                    await asyncio.Event().wait()
        finally:
            engine.dispose()

    async def _answer(self, trimmer: Trimmer, data: bytes, tasks: asyncio.TaskGroup) -> CutAnswer:
        now = time.time_ns()
        try:
            asked = request_in(data)
            await asyncio.to_thread(trimmer.store.require_role)
            least_s = 0.0
            if asked.for_room:
                least_s = await asyncio.to_thread(trimmer.standbys_need_s, asked, now)
            if least_s:
                return _refusal(STANDBY_LACKS.format(least_s), least_s)
            is_new = await self._record(trimmer, asked, now)
        except DBAPIError as error:
            return _refusal(_refused_by(self._place, error))
        except JoulieError as error:
            return _refusal(str(error))
        deleting = tasks.create_task(self._delete(trimmer, asked.aside))
        await asyncio.wait([deleting], timeout=ANSWER_S)
        done = deleting.result() if deleting.done() else None
        if done is None:
            return CutAnswer(is_new=is_new)
        _, rows, messages, freed = done
        return CutAnswer(is_new=is_new, is_done=True, rows=rows, messages=messages, freed=freed)

    async def _record(self, trimmer: Trimmer, asked: CutRequest, now: int) -> bool:
        anchored = await anchored_heads(self._bus, await asyncio.to_thread(trimmer.count_heads))
        return await asyncio.to_thread(trimmer.cut, asked, anchored, now)

    async def _delete(self, trimmer: Trimmer, aside: Sequence[int] = ()) -> Trimmed | None:
        """None if the log was never cut, or a step failed; then the log line says why."""
        try:
            async with self._deleting:
                done = await trimmer.delete(self._bus, self._subjects, aside)
        except DBAPIError as error:
            log.warning("not_deleted", why=_refused_by(self._place, error))
            return None
        except JoulieError as error:
            log.warning("not_deleted", why=str(error))
            return None
        if done is not None and (done.rows or done.messages):
            at = {"entry": done.cut.pos, "position": done.cut.p_to}
            log.info("trimmed", **at, rows=done.rows, messages=done.messages, freed=done.freed)
        return done


def _refusal(why: str, least_s: float = 0.0) -> CutAnswer:
    log.warning("not_cut", why=why)
    return CutAnswer(refused=why, least_keep_s=least_s)


def _refused_by(place: Place, error: DBAPIError) -> str:
    return (
        f"{database.without_password(place)} refused a step of the trim: {error.orig}. The steps "
        "before it are complete; the next request continues from there."
    )


async def _paced(portions: Iterator[int]) -> int:
    """The sum of the portions. Pacing: sleeps after each as long as it took, for other writers."""
    total = 0
    while True:
        begun = time.monotonic()
        portion = await asyncio.to_thread(next, portions, None)
        if portion is None:
            return total
        total += portion
        await asyncio.sleep(time.monotonic() - begun)
