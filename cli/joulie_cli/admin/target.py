"""limit the power of the cluster, of a feed or of a rack for a time.

joulie target set evening --watts 320000 --from +1h --to +3h --because heat
joulie target clear evening
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from joulie_bus.events import TargetSet
    from joulie_projections.component.wiring import Wiring
    from joulie_projections.state.state import Target

ACTIONS = ("list", "set", "clear")
MOST_WATTS = 1e11  # of joulie_bus.events.bounds, without importing it


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="list", help="list")
    parser.add_argument("name", nargs="?", default="target", help="name of the target (target)")
    parser.add_argument("--watts", type=_watts, metavar="W", help="the most power")
    of = parser.add_mutually_exclusive_group()
    of.add_argument("--feed", metavar="NAME", help="label joulie.io/feed (the whole cluster)")
    of.add_argument("--rack", metavar="NAME", help="label joulie.io/rack (the whole cluster)")
    parser.add_argument("--from", dest="first", metavar="TIME", help="a time, or +10m (now)")
    parser.add_argument("--to", dest="last", metavar="TIME", help="a time, or +10m")
    parser.add_argument("--because", metavar="TEXT", help="the reason, for the plans")


def _watts(text: str) -> float:
    try:
        watts = float(text)
    except ValueError:
        watts = -1.0
    if not 0 <= watts <= MOST_WATTS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a power from 0 to {MOST_WATTS:,.0f} W")
    return watts


PRODUCER = "target"


def program() -> Program:
    return Program((), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    import asyncio

    from joulie_audit.access.past import history_of
    from joulie_cli.display.output import show

    if args.action == "list":
        with history_of(wires) as history:
            targets = history.cluster_state().targets
        now = time.time_ns()
        found = [_as_json(name, each, now) for name, each in sorted(targets.items())]
        show(args, found, as_text(targets, now))
        return 0
    event = target_of(args, time.time_ns())
    if args.action == "clear":
        _require_set(wires, args.name)
    elif args.feed or args.rack:
        _require_label(wires, args)
    asyncio.run(_publish(wires, event))
    show(args, {"target": event.target}, _done(event))
    return 0


def _require_set(wires: Wiring, name: str) -> None:
    """Raises WrongTarget. Nothing is known of the targets where only the broker can be reached."""
    from joulie_audit.access.past import history_of
    from joulie_bus.core.similar_names import similar_names
    from joulie_bus.errors import WrongTarget

    if not wires.data.has_database:
        return
    with history_of(wires) as history:
        targets = history.cluster_state().targets
    if name not in targets:
        known = similar_names(name, targets)
        raise WrongTarget(f"No target {name!r} is set. Set are {known}. Nothing was withdrawn.")


def _require_label(wires: Wiring, args: argparse.Namespace) -> None:
    """Raises WrongTarget where nodes are known and none has the label with this value."""
    from joulie_audit.access.past import history_of

    if not wires.data.has_database:
        return
    with history_of(wires) as history:
        nodes = history.cluster_state().nodes.values()
    if nodes:
        require_known_label(args, [node.labels for node in nodes])


def require_known_label(args: argparse.Namespace, labels: Iterable[Mapping[str, str]]) -> None:
    """Raises WrongTarget."""
    from joulie_bus.core.similar_names import similar_names
    from joulie_bus.errors import WrongTarget
    from joulie_operator.planning.power_target import FEED_LABEL
    from joulie_projections.twin.totals import RACK_LABEL

    label, name = (RACK_LABEL, args.rack) if args.rack else (FEED_LABEL, args.feed)
    known = {each[label] for each in labels if each.get(label)}
    if name not in known:
        values = similar_names(name, known)
        raise WrongTarget(
            f"No node has the label {label}={name!r}. Known are {values}. Nothing was set."
        )


def target_of(args: argparse.Namespace, now: int) -> TargetSet:
    """Raises WrongTarget."""
    from joulie_bus.core.times import MS, utc_text
    from joulie_bus.errors import WrongTarget
    from joulie_bus.events import TargetSet
    from joulie_operator.planning.power_target import RACK

    if args.action == "clear":
        return TargetSet(target=args.name)
    if args.watts is None or args.last is None:
        raise WrongTarget("`joulie target set` needs --watts and --to. Nothing was set.")
    starts = _time(args.first, now) if args.first else now
    ends = _time(args.last, now)
    if ends <= max(starts, now):
        raise WrongTarget(
            f"The target would end at {utc_text(ends // MS)}, which is not after its start or has "
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
    from joulie_bus.errors import WrongTarget
    from joulie_bus.runtime.settings import duration
    from joulie_cli.display.times import SECOND, as_time

    try:
        if text.startswith("+"):
            return now + int(duration(text[1:]) * SECOND)
        return as_time(text, now)
    except ValueError as error:
        why = "a time such as 2026-11-21T10:30, or +10m"
        raise WrongTarget(f"{text!r} is not {why}. Nothing was set.") from error


async def _publish(wires: Wiring, event: TargetSet) -> None:
    from joulie_bus.log.producer import Producer
    from joulie_bus.streams.roles import Role
    from joulie_projections.component.connecting import connected

    producer = Producer(PRODUCER, wires.subjects, time.time_ns)
    async with connected(wires, Role.OPERATOR) as bus:
        await bus.publish([producer.stamp(event)])


def _done(event: TargetSet) -> str:
    from joulie_bus.core.times import MS, utc_text
    from joulie_operator.planning.power_target import place

    if event.power_mw is None:
        return f"Target {event.target} is withdrawn."
    where = place(event.feed)
    return (
        f"Target {event.target}: {where} draws at most {event.power_mw / 1000:,.12g} W "
        f"from {utc_text(event.starts_at // MS)} to {utc_text(event.ends_at // MS)}."
    )


def _as_json(name: str, target: Target, now: int) -> dict[str, Any]:
    from joulie_bus.core.times import MS, rfc3339

    return {
        "target": name,
        "watts": target.power_mw / 1000,
        "feed": target.feed,
        "from": rfc3339(target.starts_at // MS),
        "to": rfc3339(target.ends_at // MS),
        "because": target.because,
        "in_force": _is_in_force(target, now),
    }


def as_text(targets: Mapping[str, Target], now: int) -> str:
    from joulie_answers.text.tables import TextTable, TextWithTables

    if not targets:
        return "No target is set."
    rows = [_row(name, target, now) for name, target in sorted(targets.items())]
    heads = ("target", "watts", "of", "from", "to", "in force", "because")
    return TextWithTables.of([TextTable(heads, rows, {"watts"})])


def _row(name: str, target: Target, now: int) -> tuple[str, ...]:
    from joulie_bus.core.times import MS, utc_text

    return (
        *(name, f"{target.power_mw / 1000:,.12g}", target.feed or "cluster"),
        *(utc_text(each // MS) for each in (target.starts_at, target.ends_at)),
        *("yes" if _is_in_force(target, now) else "no", target.because),
    )


def _is_in_force(target: Target, now: int) -> bool:
    return target.starts_at <= now < target.ends_at
