"""`joulie caps`: measures what caps save for each workload class, and records it for plans."""

import argparse
import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import joulie_migrations
from joulie_agent.caps.memory import BadMemory
from joulie_agent.caps.release import release_limits, shown_limit
from joulie_answers.text.times import rfc3339, shown
from joulie_audit.ledger.cap_effect import CappedLives, Measured, effect_of, finished_pods
from joulie_audit.ledger.pods_in_log import folded
from joulie_bus.errors import NotInTheLog, SettingsError
from joulie_bus.events import CapsMeasured, WorkloadClass
from joulie_bus.log.producer import Producer
from joulie_bus.streams.roles import Role
from joulie_cli.display.output import show
from joulie_cli.display.times import time_of_period
from joulie_cli.log_access.past import ArchivePlace, archive_of, facts_of, require_readable
from joulie_cli.reporting.gather import NOTHING_FOLDED, Period
from joulie_cli.wiring import Wiring, connected
from joulie_projections.store import database
from joulie_projections.store.energy_table import EnergyTable

SETTINGS = (ArchivePlace,)
PRODUCER = "caps"
NS_PER_MS = 1_000_000


def run(args: argparse.Namespace, wires: Wiring) -> int:
    if args.what == "release":
        return _release(args)
    now = time.time_ns()
    first = time_of_period(args.first, now) // NS_PER_MS if args.first else 0
    last = (time_of_period(args.last, now) if args.last else now) // NS_PER_MS
    period = Period(first, last)
    period, found = asyncio.run(_measured(wires, archive_of(args, wires), period))
    events = [event for each in found if (event := each.event(*period)) is not None]
    if args.record and events:
        asyncio.run(_publish(wires, events))
    text = _as_text(found, period, len(events) if args.record else None)
    times = {"from": rfc3339(period.from_ms), "to": rfc3339(period.to_ms)}
    show(args, [_as_json(each) | times for each in found], text)
    return 0


def _release(args: argparse.Namespace) -> int:
    """The exit code is 1 if a limit could not be given back."""
    try:
        done = release_limits(args.host_root, args.limits)
    except BadMemory as error:
        raise SettingsError([f"--limits {error}"]) from error
    lines = [
        f"{each.name}: {each.refused or f'{shown_limit(each)} as before'}" for each in done
    ] or ["no limit of this node was set"]
    show(args, [each._asdict() for each in done], "\n".join(lines))
    return int(any(each.refused for each in done))


async def _measured(
    wires: Wiring, archive: Path | None, period: Period
) -> tuple[Period, list[Measured]]:
    """The part of the period that the ledger holds, and what was measured in it."""
    require_readable(wires.data)
    engine = database.reader(wires.data.database)
    try:
        joulie_migrations.require(engine)
        found = EnergyTable(engine).reading(*period, ("node", "pod"))
        if found is None or not found[0]:
            raise NotInTheLog(NOTHING_FOLDED)
        intervals, state = found
        async with facts_of(wires, archive) as (history, facts):
            lives = await folded(CappedLives(), history, facts, state.position)
    finally:
        engine.dispose()
    pods = finished_pods(lives, intervals, state.ledger.newest_ms)
    first = min(each.start_ms for each in intervals)
    known = Period(max(period.from_ms, first), min(period.to_ms, state.ledger.newest_ms))
    return known, [effect_of(each, pods.get(each, ())) for each in get_args(WorkloadClass)]


async def _publish(wires: Wiring, events: Sequence[CapsMeasured]) -> None:
    producer = Producer(PRODUCER, wires.subjects, time.time_ns)
    async with connected(wires, Role.OPERATOR) as bus:
        await bus.publish([producer.stamp(event) for event in events])


def _as_json(found: Measured) -> dict[str, Any]:
    low, mid, high = found.change or (None, None, None)
    return {
        "workload": found.workload,
        "capped_pods": found.capped_pods,
        "other_pods": found.other_pods,
        "change_low": low,
        "change": mid,
        "change_high": high,
    }


def _as_text(found: Sequence[Measured], period: Period, recorded: int | None) -> str:
    start, end = (shown(each) for each in period)
    lines = [f"Pods that ran from {start} to {end}, up to which the ledger is complete"]
    lines += [f"{'class':<12} {'capped pods':>12} {'other pods':>12}   energy of a capped pod"]
    lines += [
        f"{each.workload:<12} {each.capped_pods:>12} {each.other_pods:>12}   {_change(each)}"
        for each in found
    ]
    if recorded is not None:
        lines.append(f"{recorded} measurements were recorded.")
    return "\n".join(lines)


def _change(found: Measured) -> str:
    if found.change is None:
        return "not measured: too few comparable pods have finished on both kinds of nodes"
    low, mid, high = (f"{100 * each:+.1f}" for each in found.change)
    return f"{mid} % ({low} to {high} %)"
