"""measure what caps save, by the energy of finished pods; or give the limits of this node back.

joulie caps --from -14d
joulie caps release
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from joulie_bus.core.times import MS
from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_answers.report.form import Period
    from joulie_audit.ledger.cap_effect import Measured
    from joulie_bus.events import CapsMeasured
    from joulie_projections.component.wiring import Wiring


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument(
        "what",
        nargs="?",
        choices=("measure", "release"),
        default="measure",
        metavar="measure|release",
        help="release: give back the limits that `joulie agent --caps` set on this node (measure)",
    )
    shared.limits_of_node(parser)
    shared.period(parser)
    parser.add_argument(
        "--record", action="store_true", help="write it to the log, for caps_where_measured"
    )
    shared.archive(parser)


PRODUCER = "caps"


def program() -> Program:
    from joulie_audit.access.past import ArchivePlace

    return Program((ArchivePlace,), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    import asyncio

    from joulie_answers.report.form import Period
    from joulie_audit.access.past import archive_of
    from joulie_bus.core.times import rfc3339
    from joulie_cli.display.output import show
    from joulie_cli.display.times import period_of

    if args.what == "release":
        return _release(args)
    period = Period(*(each // MS for each in period_of(args, time.time_ns())))
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
    from joulie_agent.caps.memory import BadMemory
    from joulie_agent.caps.release import release_limits, shown_limit
    from joulie_bus.errors import SettingsError
    from joulie_cli.display.output import show

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
    from joulie_answers.report.form import Period
    from joulie_answers.report.gather import NOTHING_FOLDED
    from joulie_audit.access.past import facts_of
    from joulie_audit.ledger.cap_effect import CappedLives, effect_of, finished_pods
    from joulie_audit.ledger.pods_in_log import folded
    from joulie_bus.errors import NotInTheLog
    from joulie_bus.events import WorkloadClass
    from joulie_projections.component.opening import require_readable
    from joulie_projections.store.energy_table import EnergyTable

    require_readable(wires.data)
    with EnergyTable.readable(wires.data.database) as table:
        found = table.reading(*period, ("node", "pod"))
    if found is None or not found[0]:
        raise NotInTheLog(NOTHING_FOLDED)
    intervals, state = found
    async with facts_of(wires, archive) as (history, facts):
        lives = await folded(CappedLives(), history, facts, state.position)
    pods = finished_pods(lives, intervals, state.ledger.newest_ms)
    first = min(each.start_ms for each in intervals)
    known = Period(max(period.from_ms, first), min(period.to_ms, state.ledger.newest_ms))
    return known, [effect_of(each, pods.get(each, ())) for each in get_args(WorkloadClass)]


async def _publish(wires: Wiring, events: Sequence[CapsMeasured]) -> None:
    from joulie_bus.log.producer import Producer
    from joulie_bus.streams.roles import Role
    from joulie_projections.component.connecting import connected

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
    from joulie_answers.text.tables import TextTable, TextWithTables
    from joulie_bus.core.times import utc_text

    start, end = (utc_text(each) for each in period)
    numbers = ("capped pods", "other pods")
    rows = [
        (each.workload, str(each.capped_pods), str(each.other_pods), _change(each))
        for each in found
    ]
    lines: list[str | TextTable] = [
        f"Pods that ran from {start} to {end}, up to which the ledger is complete",
        TextTable(("class", *numbers, "energy of a capped pod"), rows, {*numbers}),
    ]
    if recorded is not None:
        lines.append(f"{recorded} measurements were recorded.")
    return TextWithTables.of(lines)


def _change(found: Measured) -> str:
    if found.change is None:
        return "not measured: too few comparable pods have finished on both kinds of nodes"
    low, mid, high = (f"{100 * each:+.1f}" for each in found.change)
    return f"{mid} % ({low} to {high} %)"
