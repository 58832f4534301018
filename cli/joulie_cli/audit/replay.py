"""fold all facts again and recompute every decision and plan.

joulie replay
joulie replay --from-position 1252 --to-position 1260
joulie replay --sample 1000 --archive /srv/joulie-archive
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_audit.replay.replay import Progress, ReplayReport
    from joulie_projections.component.wiring import Wiring


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    shared.span(parser, "position")
    parser.add_argument(
        "--sample", type=shared.count, default=0, metavar="N", help="only N decisions"
    )
    shared.jobs(parser)
    shared.archive(parser)


def program() -> Program:
    from joulie_audit.access.past import ArchivePlace

    return Program((ArchivePlace,), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    import asyncio

    from joulie_cli.display.output import show
    from joulie_cli.display.progress import progress

    with progress("replay", args.output != "table") as report:
        done = asyncio.run(_replay(args, wires, report))
    show(args, done, as_text(done))
    return 0 if not done["mismatches"] else 1


async def _replay(
    args: argparse.Namespace, wires: Wiring, report: Progress | None
) -> dict[str, Any]:
    from joulie_audit.access.past import archive_of, jobs_of, shared_facts_of, span_of
    from joulie_audit.replay.replay import Scope, other_versions, replay

    async with shared_facts_of(wires, archive_of(args, wires)) as (history, facts, elsewhere):
        newest = history.checkpoint()
        span = span_of(args, newest.position if newest is not None else 0, "position")
        versions = other_versions(history)
        if versions is not None:
            print(f"joulie replay: {versions}", file=sys.stderr)
        scope = Scope(*span, args.sample, jobs_of(args.jobs, history))
        done = await replay(history, facts, scope, report, elsewhere)
        return as_json(done) | {"other_code": versions._asdict() if versions else {}}


def as_json(done: ReplayReport) -> dict[str, Any]:
    return {
        "events": done.events,
        "each_nth": done.step,
        "decisions": done.decisions,
        "plans": done.plans,
        "resizes": done.resizes,
        "mismatches": done.mismatches,
        "seconds": round(done.seconds, 3),
        "told": [mismatch._asdict() for mismatch in done.reported],
        "set_back": done.set_back,
        "lost": [mismatch._asdict() for mismatch in done.lost],
        "uncompared": dict(done.uncompared),
        "other_folds": done.other_folds,
        "holes": [hole._asdict() for hole in done.holes],
        "in_holes": done.in_holes,
        "on_other_folds": [mismatch._asdict() for mismatch in done.on_other_folds],
        "foreign": done.foreign,
        "foreign_ones": [mismatch._asdict() for mismatch in done.foreign_ones],
    }


def as_text(done: dict[str, Any]) -> str:
    from joulie_projections.fold.comparison import uncompared_text

    lines = [
        f"{done['events']} events folded, {done['decisions']} decisions and {done['plans']} plans "
        f"{_resizes(done['resizes'])}recomputed in {done['seconds']:.1f} s: "
        f"{_count(done['mismatches'])}."
    ]
    if done["each_nth"] > 1:
        lines.append(f"This is a sample: one of each {done['each_nth']} decisions was recomputed.")
    lines.extend(f"  {_place(miss)}: {miss['kind']}: {miss['what']}" for miss in done["told"])
    if done["set_back"]:
        lines.append(
            f"{done['set_back']} were made on state that the database lost afterwards (a failover "
            "to a standby that lagged, or an older copy), and cannot be recomputed:"
        )
        lines.extend(f"  {_place(miss)}: {miss['what']}" for miss in done["lost"])
    if done["foreign"]:
        lines.append(
            f"FOREIGN: {done['foreign']} decisions that no replica signed cannot be recomputed: "
            "another program published them with the credential of the extenders:"
        )
        lines.extend(f"  {_place(miss)}: {miss['what']}" for miss in done["foreign_ones"])
    for hole in done["holes"]:
        lines.append(
            f"NOT folded: positions {hole['first']} to {hole['last']}, of which messages had aged "
            "out of their stream before they were archived."
        )
    if done["in_holes"]:
        lines.append(f"{done['in_holes']} decisions and plans on them were not recomputed.")
    if done["uncompared"]:
        lines.append(uncompared_text(done["uncompared"]))
    if done["other_folds"]:
        lines.append(f"{done['other_folds']} were made on such a state and differ:")
        lines.extend(f"  {_place(miss)}: {miss['what']}" for miss in done["on_other_folds"])
    return "\n".join(lines)


def _count(mismatches: int) -> str:
    return f"{mismatches or 'no'} mismatch{'' if mismatches == 1 else 'es'}"


def _resizes(count: int) -> str:
    return f"and {count} orders to change requests " if count else ""


def _place(miss: dict[str, Any]) -> str:
    of_facts = miss["kind"] in ("state-differs", "plan-differs", "resize-differs")
    return f"{'position' if of_facts else 'entry'} {miss['entry']}"
