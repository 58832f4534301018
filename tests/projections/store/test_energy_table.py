"""Intervals in the database: committed with the state, kept coarser with age."""

import time
import zlib
from collections.abc import Callable, Iterator

import msgspec
import pytest
from sqlalchemy import Engine, event
from sqlalchemy.pool import StaticPool

from bus_kit import power, records
from bus_kit.clock import NOON
from joulie_bus.errors import CountedByAnotherRule, LedgerDamaged, LedgerFenced, StateDamaged
from joulie_projections.energy import idle_holders, intervals, savings
from joulie_projections.energy.intervals import DAY_MS, HOUR_MS, MINUTES_MS, Grain, NodeEnergy
from joulie_projections.energy.report import Reading, report_of
from joulie_projections.energy.saved import LedgerState, digest_of, unpacked
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.energy_table import EnergyTable, Period, chosen
from joulie_projections.store.tables import batch as batch_table

NOON_MS = NOON // 1_000_000
J = 1_000_000


@pytest.fixture
def engine(place: Place) -> Iterator[Engine]:
    made = database.ledger(place)
    yield made
    made.dispose()


@pytest.fixture
def log(place: Place) -> Iterator[Engine]:
    made = database.writer(place)
    yield made
    made.dispose()


@pytest.fixture
def table(engine: Engine) -> EnergyTable:
    return EnergyTable(engine)


def steady(hours: float, step_s: float = 30) -> LedgerState:
    """One node at 100 W from noon on."""
    state = LedgerState()
    count = int(hours * 3600 / step_s) + 1
    state.fold(records(*[power("n1", 100)] * count, step_s=step_s), ())
    return state


def test_a_table_in_memory_is_closed_with_its_block() -> None:
    closed: list[object] = []

    def close(connection: object, *_: object) -> None:
        closed.append(connection)

    event.listen(StaticPool, "close", close)
    try:
        with EnergyTable.in_memory() as table:
            assert table.load() is None
            assert closed == []
    finally:
        event.remove(StaticPool, "close", close)

    assert len(closed) == 1


def test_a_state_that_was_saved_is_loaded_again(table: EnergyTable) -> None:
    state = steady(0.5)
    table.save(0, state)

    loaded = table.load()

    assert loaded is not None
    assert (loaded.position, loaded.packed()) == (61, state.packed())


def test_the_reads_of_one_moment_are_of_one_fold_while_another_process_writes(
    table: EnergyTable, place: Place
) -> None:
    table.save(0, steady(0.5))
    whole = NOON_MS, NOON_MS + HOUR_MS
    with EnergyTable.readable(place) as opened, opened.at_one_moment() as moment:
        before = moment.between(*whole, ("node",))
        table.save(before.position, steady(1.0))

        after = moment.between(*whole, ("node",))
        minutes = moment.by_minutes(*whole)

    meter_uj = before.report("node").meter_uj
    assert (after.position, after.report("node").meter_uj) == (before.position, meter_uj)
    assert sum(row.pods_uj + row.idle_uj for each in minutes for row in each.nodes) == meter_uj
    assert table.between(*whole, ("node",)).report("node").meter_uj > meter_uj


def test_a_second_process_at_an_older_position_changes_nothing(table: EnergyTable) -> None:
    table.save(0, steady(0.5))

    with pytest.raises(LedgerFenced):
        table.save(0, steady(0.1))

    loaded = table.load()
    assert loaded is not None
    assert loaded.position == 61


def test_a_damaged_state_is_refused() -> None:
    with pytest.raises(StateDamaged):
        unpacked(steady(0.1).packed(), b"another digest")


def test_a_report_holds_the_running_minutes(table: EnergyTable) -> None:
    table.save(0, steady(1.25))

    found = table.between(0, NOON_MS + DAY_MS, ("node",))

    assert found.position == 151
    assert found.report("node").meter_uj == 100 * 4500 * J


def test_the_ends_of_a_report_are_exact_to_the_minutes(table: EnergyTable) -> None:
    table.save(0, steady(3))
    begin = NOON_MS // MINUTES_MS * MINUTES_MS
    first, last = begin + 2 * MINUTES_MS, begin + HOUR_MS + 3 * MINUTES_MS

    report = table.between(first, last, ("node",)).report("node")

    assert (report.from_ms, report.to_ms) == (first, last)
    assert report.meter_uj == 100 * (last - first) // 1000 * J


@pytest.mark.long
def test_days_replace_hours_and_minutes_of_old_days(table: EnergyTable) -> None:
    table.save(0, steady(24 * 17, step_s=60))
    everything = table.between(0, NOON_MS + 20 * DAY_MS, ("node", "group", "pod"))[0]
    recent = table.between(NOON_MS + 16 * DAY_MS, NOON_MS + 20 * DAY_MS, ("node",))[0]

    assert {each.grain for each in everything} == {"day", "hour"}
    assert {each.grain for each in recent} == {"hour", "minutes"}
    assert report_of(everything, "node").meter_uj == 100 * 17 * 86_400 * J


def test_a_ledger_that_is_cleared_is_empty(table: EnergyTable) -> None:
    table.save(0, steady(2))
    table.clear()

    assert table.load() is None
    assert table.between(0, NOON_MS + DAY_MS, ("node",)) == Reading([])


@pytest.mark.parametrize("kinds", [("node",), ("node", "group")], ids=["minutes", "hours"])
def test_a_report_ends_where_the_ledger_is_complete(
    table: EnergyTable, kinds: tuple[str, ...]
) -> None:
    table.save(0, steady(1.2))
    newest_ms = NOON_MS + 4320 * 1000

    report = table.between(0, NOON_MS + DAY_MS, kinds).report("node")

    assert (report.to_ms, report.complete_to_ms) == (newest_ms, newest_ms)


def test_a_report_of_an_ended_period_ends_with_it(table: EnergyTable) -> None:
    table.save(0, steady(3))
    end_ms = NOON_MS // HOUR_MS * HOUR_MS + HOUR_MS

    report = table.between(0, end_ms, ("node", "group")).report("node")

    assert (report.to_ms, report.complete_to_ms) == (end_ms, NOON_MS + 3 * HOUR_MS)


def test_a_state_that_was_counted_by_another_rule_is_refused() -> None:
    state = steady(0.5)
    state.take_closed()
    *fields, rule, newest_ms = msgspec.msgpack.decode(zlib.decompress(state.packed()))
    body = zlib.compress(msgspec.msgpack.encode([*fields, rule + 1, newest_ms]))

    with pytest.raises(CountedByAnotherRule, match=r"counted by rule 2, .* by rule 1"):
        unpacked(body, digest_of(body))


def test_a_ledger_is_behind_by_the_age_of_the_oldest_fact_that_it_lacks(
    table: EnergyTable, log: Engine
) -> None:
    table.save(0, steady(0.5))
    hours_ago = time.time_ns() - 2 * HOUR_MS * 1_000_000
    rows = [(1, 61, hours_ago - 10**12), (62, 70, hours_ago), (71, 90, time.time_ns())]
    with log.begin() as db:
        for first, last, at in rows:
            db.execute(batch_table.insert().values(batch_row(first, last, at)))

    assert table.between(0, NOON_MS, ("node",)).behind_s == pytest.approx(2 * 3600, abs=60)


def batch_row(first: int, last: int, at: int) -> dict[str, object]:
    blank = dict.fromkeys(("ranges", "facts_hash", "state_digest", "prev", "head"), b"")
    return {"p_from": first, "p_to": last, "committed_at": at, "fold_version": "1", **blank}


def test_the_intervals_of_a_report_do_not_overlap() -> None:
    day = 10 * DAY_MS
    kept: dict[Grain, list[int]] = {
        "day": [day - DAY_MS, day],
        "hour": [day + n * HOUR_MS for n in range(26)],
        "minutes": [day + n * MINUTES_MS for n in range(12 * 25, 12 * 26)],
    }
    period = Period(day + HOUR_MS // 2, day + DAY_MS + HOUR_MS + MINUTES_MS, "minutes")

    found = chosen(kept, period)

    assert found == [
        *(("hour", day + n * HOUR_MS) for n in range(25)),
        ("minutes", day + 25 * HOUR_MS),
    ]


@pytest.mark.parametrize("body", [b"", b"x", zlib.compress(b"x"), zlib.compress(b"\x81\x01\x02")])
def test_what_cannot_be_decoded_of_a_ledger_says_how_to_count_it_again(body: bytes) -> None:
    readers: list[Callable[[], object]] = [
        lambda: intervals.unpacked(body, NodeEnergy),
        lambda: savings.unpacked(body),
        lambda: idle_holders.unpacked(body),
    ]
    for read in readers:
        with pytest.raises(LedgerDamaged, match="joulie ledger --rebuild"):
            read()
