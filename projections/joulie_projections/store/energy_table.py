"""The intervals in the database, and the state of the ledger that goes with them."""

import contextlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, Engine, create_engine, delete, func, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import StaticPool

from joulie_bus.errors import LedgerFenced, Unreadable
from joulie_projections.energy import idle_holders, savings, use
from joulie_projections.energy.grid import Rate
from joulie_projections.energy.idle_holders import IdleHolder
from joulie_projections.energy.intervals import (
    DAY_MS,
    KEPT_MS,
    LENGTHS,
    CardEnergy,
    Grain,
    GroupEnergy,
    Interval,
    NodeEnergy,
    PodEnergy,
    day_of,
    packed,
    start_of,
    unpacked,
)
from joulie_projections.energy.late_rates import LateRates
from joulie_projections.energy.report import Reading
from joulie_projections.energy.saved import LedgerState, digest_of
from joulie_projections.energy.saved import unpacked as unpacked_state
from joulie_projections.energy.savings import Savings
from joulie_projections.energy.use import DayOfUse, WorkloadUse
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.energy_lag import NAME, behind_s_of
from joulie_projections.store.store import insert_new
from joulie_projections.store.tables import batch, energy, energy_state, ledger_metadata, metadata

SAVINGS, HOLDERS = "savings", "idle-holders"
USE = "use"  # the kind of a day's use, which no node has a row of
EVERY_KIND = ("node", "group", "pod", "grid", "card")
EMPTY: list[NodeEnergy] = []


class Period(NamedTuple):
    from_ms: int
    to_ms: int
    finest: Grain
    splits: bool = False  # whole hours into their minutes, as far as these are kept

    def overlaps(self, grain: Grain, start_ms: int) -> bool:
        return start_ms < self.to_ms and start_ms + LENGTHS[grain] > self.from_ms

    def holds(self, grain: Grain, start_ms: int) -> bool:
        return start_ms >= self.from_ms and start_ms + LENGTHS[grain] <= self.to_ms


class UseReading(NamedTuple):
    """The use of each workload in a period, up to a position."""

    workloads: Sequence[WorkloadUse]
    position: int = 0
    behind_s: float = 0.0


class EnergyTable:
    """Every method is one transaction, but those of `at_one_moment`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # Reports read several tables at one moment; SQLite always does.
        self._snapshot = (
            engine.execution_options(isolation_level="REPEATABLE READ")
            if engine.dialect.name == "postgresql"
            else engine
        )

    @classmethod
    @contextlib.contextmanager
    def in_memory(cls) -> Generator["EnergyTable", None, None]:
        engine = create_engine("sqlite://", poolclass=StaticPool)
        try:
            metadata.create_all(engine, tables=[batch])
            ledger_metadata.create_all(engine)
            yield cls(engine)
        finally:
            engine.dispose()

    @classmethod
    @contextlib.contextmanager
    def readable(cls, place: Place) -> Generator["EnergyTable", None, None]:
        """For reports. Raises Unreadable if a database fails, for callers that continue."""
        engine = database.ledger_reader(place)
        try:
            yield cls(engine)
        except SQLAlchemyError as error:
            where, why = database.without_password(place), str(error).splitlines()[0]
            raise Unreadable(where, why) from error
        finally:
            engine.dispose()

    @contextlib.contextmanager
    def at_one_moment(self) -> Generator["EnergyTable", None, None]:
        """A table whose reads are one transaction: an answer of several reads is of one fold."""
        with self._reading() as db:
            yield _AtOneMoment(self._engine, db)

    @contextlib.contextmanager
    def _reading(self) -> Generator[Connection, None, None]:
        with self._snapshot.connect() as db, db.begin():
            yield db

    def load(self) -> LedgerState | None:
        with self._engine.connect() as db:
            return _state_in(db)

    def save(self, before: int, state: LedgerState) -> None:
        """Writes the closed intervals and the state; raises LedgerFenced, without a change, if the
        table is not at the position `before`, because another process has written it."""
        closed = list(state.ledger.closed)  # which the state keeps until they are committed
        days = list(state.ledger.uses.closed)
        body = state.packed()
        values = {"position": state.position, "digest": digest_of(body), "body": body}
        with self._engine.begin() as db:
            insert_new(db, energy_state, {"name": NAME, "position": 0, "digest": b"", "body": b""})
            mine = (energy_state.c.name == NAME, energy_state.c.position == before)
            if db.execute(update(energy_state).where(*mine).values(**values)).rowcount != 1:
                raise LedgerFenced(before)
            for interval in closed:
                _write(db, interval)
            for hour in (interval for interval in closed if interval.grain == "hour"):
                _close_day_before(db, hour.start_ms)
            for day in days:
                _write_use(db, day)
        state.take_closed()
        state.take_closed_uses()

    def keep_savings(self, found: Savings) -> str:
        """Replaces those of an earlier report, and of an earlier report of the same day. Returns
        why the database refused them, if it did: a report needs no right to write."""
        body = savings.packed(found)
        values = {"position": found.position, "digest": digest_of(body), "body": body}
        day_ms = found.day_ms
        names = [SAVINGS] if day_ms is None else [SAVINGS, f"{SAVINGS}/{day_ms}"]
        try:
            with self._engine.begin() as db:
                for name in names:
                    insert_new(db, energy_state, {"name": name, **values})
                    mine = energy_state.c.name == name
                    db.execute(update(energy_state).where(mine).values(**values))
        except SQLAlchemyError as error:
            return str(error).splitlines()[0]
        return ""

    def keep_holders(self, found: Sequence[IdleHolder], position: int) -> None:
        body = idle_holders.packed(found)
        values = {"position": position, "digest": digest_of(body), "body": body}
        with self._engine.begin() as db:
            insert_new(db, energy_state, {"name": HOLDERS, **values})
            db.execute(update(energy_state).where(energy_state.c.name == HOLDERS).values(**values))

    def holders(self) -> list[IdleHolder]:
        """Of cards that did no work at the newest commit of the ledger."""
        with self._reading() as db:
            body = db.scalar(select(energy_state.c.body).where(energy_state.c.name == HOLDERS))
        return idle_holders.unpacked(body) if body else []

    def savings(self) -> Savings | None:
        """What the newest report computed; None if none was written."""
        with self._reading() as db:
            body = db.scalar(select(energy_state.c.body).where(energy_state.c.name == SAVINGS))
        return savings.unpacked(body) if body else None

    def savings_by_day(self, from_ms: int, to_ms: int) -> dict[int, Savings]:
        """Those of reports of one day each, by the start of the day."""
        names = {f"{SAVINGS}/{day}": day for day in range(from_ms, to_ms, DAY_MS)}
        mine = energy_state.c.name.in_(names)
        with self._reading() as db:
            found = db.execute(select(energy_state.c.name, energy_state.c.body).where(mine)).all()
        return {names[row.name]: savings.unpacked(row.body) for row in found}

    def days(self, from_ms: int, to_ms: int) -> set[int]:
        """The starts of the days of which intervals are kept."""
        inside = energy.c.start_ms.between(from_ms, to_ms - 1)
        with self._reading() as db:
            found = db.scalars(select(energy.c.start_ms).where(energy.c.kind == "node", inside))
            return {start_of("day", start) for start in found}

    def log_began_ms(self) -> int:
        """When the first fact was committed; 0 if that is trimmed."""
        first = select(batch.c.p_from, batch.c.committed_at).order_by(batch.c.p_to).limit(1)
        with self._reading() as db:
            row = db.execute(first).first()
        return row.committed_at // 1_000_000 if row and row.p_from == 1 else 0

    def log_end(self) -> int:
        """The last committed position."""
        with self._engine.connect() as db:
            return db.scalar(select(func.max(batch.c.p_to))) or 0

    def clear(self) -> None:
        """Deletes everything, so that the ledger is folded again from the first fact."""
        with self._engine.begin() as db:
            db.execute(delete(energy))
            db.execute(delete(energy_state))

    def between(self, from_ms: int, to_ms: int, kinds: Sequence[str]) -> Reading:
        """The intervals that cover the period, and how far they reach.

        Without pods or groups in `kinds`, the ends of the period are exact to the minutes as far as
        these are kept; with them, to the hour. Running intervals are included as they are, and the
        rates of the grid always.
        """
        with self._reading() as db:
            found = reading_in(db, from_ms, to_ms, kinds)
            behind_s = behind_s_of(db, found[1].position if found else 0)
        if found is None:
            return Reading([], behind_s=behind_s)
        intervals, state = found
        return Reading(intervals, state.position, state.ledger.newest_ms, behind_s)

    def uses(self, from_ms: int) -> UseReading:
        """Of the days since then, and of the running one."""
        mine = (energy.c.kind == USE, energy.c.start_ms >= start_of("day", from_ms))
        with self._reading() as db:
            bodies = list(db.scalars(select(energy.c.body).where(*mine)))
            state = _state_in(db)
            position = state.position if state else 0
            behind_s = behind_s_of(db, position)
        running = state.ledger.uses.running() if state else []
        days = [*map(use.unpacked, bodies), running]
        return UseReading(use.summed(days), position, behind_s)

    def by_minutes(self, from_ms: int, to_ms: int) -> list[Interval]:
        """The energy of nodes over time, by minutes as far as they are kept."""
        with self._reading() as db:
            found = reading_in(db, from_ms, to_ms, ("node",), splits=True)
        return found[0] if found else []

    def reading(
        self, from_ms: int, to_ms: int, kinds: Sequence[str]
    ) -> tuple[list[Interval], LedgerState] | None:
        """The intervals, and the state that they were read with; None before the first fold. What
        had no price when it was counted has the one that came later."""
        with self._reading() as db:
            return reading_in(db, from_ms, to_ms, kinds)


class _AtOneMoment(EnergyTable):
    def __init__(self, engine: Engine, db: Connection) -> None:
        super().__init__(engine)
        self._db = db

    @contextlib.contextmanager
    def _reading(self) -> Generator[Connection, None, None]:
        yield self._db


def reading_in(
    db: Connection,
    from_ms: int,
    to_ms: int,
    kinds: Sequence[str],
    *,
    splits: bool = False,
) -> tuple[list[Interval], LedgerState] | None:
    state = _state_in(db)
    if state is None:
        return None
    rates = LateRates(state.ledger)
    state.ledger.end()
    finest: Grain = "minutes" if tuple(kinds) == ("node",) else "hour"
    running = [each for each in state.take_closed() if each.grain == finest]
    wanted = [each for each in running if each.end_ms > from_ms and each.start_ms < to_ms]
    period = Period(from_ms, to_ms, finest, splits)
    found = [*_read(db, period, (*kinds, "grid")), *wanted]
    return [_rated(db, each, rates) for each in found], state


def _rated(db: Connection, interval: Interval, rates: LateRates) -> Interval:
    """Groups name no node: if some of their energy gets a rate, they are made of pods again."""
    if not rates.change(interval):
        return interval
    if interval.groups and not interval.pods:
        pods = _interval(db, interval.grain, interval.start_ms, ("pod",)).pods
        return rates.rated(interval._replace(pods=pods))._replace(pods=())
    return rates.rated(interval)


def _state_in(db: Connection) -> LedgerState | None:
    found = db.execute(select(energy_state).where(energy_state.c.name == NAME)).first()
    return unpacked_state(found.body, found.digest) if found and found.body else None


def _write(db: Connection, interval: Interval) -> None:
    bodies = {"node": packed(interval.nodes)}
    if interval.grain != "minutes":
        bodies |= {"group": packed(interval.groups), "pod": packed(interval.pods)}
    if interval.grid:
        bodies["grid"] = packed(interval.grid)
    if interval.cards:
        bodies["card"] = packed(interval.cards)
    for kind, body in bodies.items():
        values = {"grain": interval.grain, "start_ms": interval.start_ms, "kind": kind}
        insert_new(db, energy, values | {"body": body})


def _write_use(db: Connection, day: DayOfUse) -> None:
    """And drops the days that are old enough."""
    values = {"grain": "day", "start_ms": day.start_ms, "kind": USE}
    insert_new(db, energy, values | {"body": use.packed(day.workloads)})
    kept_from_ms = day.start_ms - use.KEPT_MS
    db.execute(delete(energy).where(energy.c.kind == USE, energy.c.start_ms < kept_from_ms))


def _close_day_before(db: Connection, hour_ms: int) -> None:
    """With the first hour of a later day: writes the newest day with hours, and drops intervals
    that are old enough for coarser ones. Whole days are dropped, so that grains do not overlap."""
    today = start_of("day", hour_ms)
    newest = select(func.max(energy.c.start_ms)).where(
        energy.c.grain == "hour", energy.c.start_ms < today
    )
    last = db.scalar(newest)
    if last is None:
        return
    day = start_of("day", last)
    is_written = select(energy.c.start_ms).where(energy.c.grain == "day", energy.c.start_ms == day)
    if db.execute(is_written.limit(1)).first() is not None:
        return
    starts = _starts(db, "hour", day, day + DAY_MS)
    hours = [_interval(db, "hour", start, EVERY_KIND) for start in starts]
    _write(db, day_of(day, hours))
    for grain, kept_ms in KEPT_MS.items():
        db.execute(
            delete(energy).where(energy.c.grain == grain, energy.c.start_ms < today - kept_ms)
        )


def _read(db: Connection, period: Period, kinds: Sequence[str]) -> list[Interval]:
    """Coarse intervals where they lie inside of the period or nothing finer is kept."""
    first, end = start_of("day", period.from_ms), period.to_ms
    kept: dict[Grain, list[int]] = {
        grain: _starts(db, grain, first, end) for grain in ("day", "hour", "minutes")
    }
    return [_interval(db, grain, start, kinds) for grain, start in chosen(kept, period)]


def chosen(kept: Mapping[Grain, Sequence[int]], period: Period) -> list[tuple[Grain, int]]:
    """The intervals to add up for a period, of those that are kept: none overlap."""
    hours = _by_start("day", kept["hour"])
    minutes = _by_start("hour", kept["minutes"])
    found: list[tuple[Grain, int]] = []
    days = {*kept["day"], *hours, *(start_of("day", hour) for hour in minutes)}
    for day in sorted(days):
        if day in kept["day"] and (period.holds("day", day) or day not in hours):
            found.append(("day", day))
            continue
        for hour in sorted({*hours.get(day, ()), *_hours_in(minutes, day)}):
            is_kept = hour in hours.get(day, ())
            is_whole = hour not in minutes or (period.holds("hour", hour) and not period.splits)
            if is_kept and (is_whole or period.finest == "hour"):
                found.append(("hour", hour))
            elif period.finest == "minutes":
                found.extend(("minutes", start) for start in minutes.get(hour, ()))
    return [(grain, start) for grain, start in found if period.overlaps(grain, start)]


def _by_start(grain: Grain, starts: Iterable[int]) -> dict[int, list[int]]:
    """The starts by the start of the interval of a coarser grain that holds them."""
    found: dict[int, list[int]] = {}
    for start in starts:
        found.setdefault(start_of(grain, start), []).append(start)
    return found


def _hours_in(hours: Iterable[int], day: int) -> list[int]:
    return [hour for hour in hours if start_of("day", hour) == day]


def _starts(db: Connection, grain: Grain, first_ms: int, end_ms: int) -> list[int]:
    inside = energy.c.start_ms.between(first_ms, end_ms - 1)
    found = select(energy.c.start_ms).where(
        energy.c.grain == grain, energy.c.kind == "node", inside
    )
    return list(db.scalars(found.order_by(energy.c.start_ms)))


def _interval(db: Connection, grain: Grain, start_ms: int, kinds: Sequence[str]) -> Interval:
    found = select(energy.c.kind, energy.c.body).where(
        energy.c.grain == grain, energy.c.start_ms == start_ms, energy.c.kind.in_(kinds)
    )
    bodies: dict[str, bytes] = {kind: body for kind, body in db.execute(found)}
    empty = packed(EMPTY)
    return Interval(
        grain,
        start_ms,
        unpacked(bodies.get("node", empty), NodeEnergy),
        unpacked(bodies.get("group", empty), GroupEnergy),
        unpacked(bodies.get("pod", empty), PodEnergy),
        unpacked(bodies.get("grid", empty), Rate),
        unpacked(bodies.get("card", empty), CardEnergy),
    )
