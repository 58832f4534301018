"""`joulie target`: sets, withdraws and lists targets for the power of the cluster or of a feed."""

import argparse
import asyncio
import time
from typing import Any

from joulie_answers.text.times import rfc3339, shown
from joulie_bus.errors import WrongTarget
from joulie_bus.events import TargetSet
from joulie_bus.log.producer import Producer
from joulie_bus.runtime.settings import duration
from joulie_bus.streams.roles import Role
from joulie_cli.display.output import show
from joulie_cli.display.times import MS, SECOND, as_time
from joulie_cli.log_access.past import history_of
from joulie_cli.wiring import Wiring, connected
from joulie_operator.planning.power_target import RACK, place
from joulie_projections.state.state import Target

SETTINGS = ()
PRODUCER = "target"


def run(args: argparse.Namespace, wires: Wiring) -> int:
    if args.action == "list":
        with history_of(wires) as history:
            targets = history.cluster_state().targets
        now = time.time_ns()
        found = [_as_json(name, each, now) for name, each in sorted(targets.items())]
        show(args, found, _as_text(found))
        return 0
    event = target_of(args, time.time_ns())
    asyncio.run(_publish(wires, event))
    show(args, {"target": event.target}, _done(event))
    return 0


def target_of(args: argparse.Namespace, now: int) -> TargetSet:
    """Raises WrongTarget."""
    if args.action == "clear":
        return TargetSet(target=args.name)
    if args.watts is None or args.last is None:
        raise WrongTarget("`joulie target set` needs --watts and --to. Nothing was set.")
    starts = _time(args.first, now) if args.first else now
    ends = _time(args.last, now)
    if ends <= max(starts, now):
        raise WrongTarget(
            f"The target would end at {shown(ends // MS)}, which is not after its start or has "
            "passed. Nothing was set."
        )
    return TargetSet(
        target=args.name,
        power_mw=round(args.watts * 1000),
        feed=f"{RACK}{args.rack}" if args.rack else args.feed or "",
        starts_at=starts,
        ends_at=ends,
        because=args.because or "",
    )


def _time(text: str, now: int) -> int:
    try:
        if text.startswith("+"):
            return now + int(duration(text[1:]) * SECOND)
        return as_time(text, now)
    except ValueError as error:
        why = "a time such as 2026-11-21T10:30, or +10m"
        raise WrongTarget(f"{text!r} is not {why}. Nothing was set.") from error


async def _publish(wires: Wiring, event: TargetSet) -> None:
    producer = Producer(PRODUCER, wires.subjects, time.time_ns)
    async with connected(wires, Role.OPERATOR) as bus:
        await bus.publish([producer.stamp(event)])


def _done(event: TargetSet) -> str:
    if event.power_mw is None:
        return f"Target {event.target} is withdrawn."
    where = place(event.feed)
    return (
        f"Target {event.target}: {where} draws at most {event.power_mw / 1000:g} W "
        f"from {shown(event.starts_at // MS)} to {shown(event.ends_at // MS)}."
    )


def _as_json(name: str, target: Target, now: int) -> dict[str, Any]:
    return {
        "target": name,
        "watts": target.power_mw / 1000,
        "feed": target.feed,
        "from": rfc3339(target.starts_at // MS),
        "to": rfc3339(target.ends_at // MS),
        "because": target.because,
        "in_force": target.starts_at <= now < target.ends_at,
    }


def _as_text(found: list[dict[str, Any]]) -> str:
    if not found:
        return "No target is set."
    return "\n".join(
        f"{each['target']:<20} {each['watts']:>12g} W  {each['feed'] or 'cluster':<12} "
        f"{each['from']} to {each['to']}{'  in force' if each['in_force'] else ''}"
        f"{'  ' + each['because'] if each['because'] else ''}"
        for each in found
    )
