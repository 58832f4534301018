"""list, show and retry messages that could not be folded.

joulie dead
joulie dead show 4711
joulie dead retry 4711
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from joulie_projections.component.wiring import Wiring
    from joulie_projections.fold.commit import Poison

ACTIONS = ("list", "show", "retry")


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="list", help="list")
    parser.add_argument(
        "position", type=shared.count, nargs="?", help="position of the message to show or retry"
    )
    shared.archive(parser)


def program() -> Program:
    from joulie_audit.access.past import ArchivePlace

    return Program((ArchivePlace,), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    import asyncio

    from joulie_audit.access.past import archive_of, history_of
    from joulie_bus.errors import NotRetryable
    from joulie_cli.display.output import show
    from joulie_projections.fold import quarantine
    from joulie_projections.fold.quarantine_quota import is_single

    with history_of(wires, archive_of(args, wires)) as history:
        found = history.quarantined()
    if args.action == "list":
        line = [_as_json(poison) for poison in found]
        show(args, line, _as_text(found))
        return 1 if found else 0
    if args.position is None:
        raise NotRetryable("No position is given. Nothing was done. `joulie dead list` has them.")
    poison = _at(found, args.position)
    if args.action == "retry":
        asyncio.run(_retry(wires, poison))
    body = quarantine.to_readable(poison.body) if is_single(poison) else None
    document = _as_json(poison) | {"body": body}
    show(args, document, json.dumps(document, indent=2))
    return 0


async def _retry(wires: Wiring, poison: Poison) -> None:
    from joulie_bus.streams.roles import Role
    from joulie_projections.component.connecting import connected
    from joulie_projections.fold import quarantine

    message = quarantine.retry_message(poison, wires.subjects)
    async with connected(wires, Role.ADMIN) as bus:
        await bus.publish([message])


def _at(found: list[Poison], position: int) -> Poison:
    from joulie_bus.errors import NotRetryable
    from joulie_projections.fold.quarantine_quota import positions_of

    for poison in found:
        if position in positions_of(poison):
            return poison
    raise NotRetryable(
        f"No message is in quarantine at position {position}. Nothing was done. "
        f"`joulie dead list` shows those that are."
    )


def _as_json(poison: Poison) -> dict[str, Any]:
    from joulie_projections.fold.quarantine_quota import positions_of

    return {
        "position": poison.position,
        "stream": poison.stream,
        "sequence": poison.sequence,
        "why": poison.why,
        "bytes": len(poison.body),
        "subject": poison.subject,
        "messages": len(positions_of(poison)),
        "last": positions_of(poison)[-1],
    }


def _as_text(found: list[Poison]) -> str:
    from joulie_answers.text.tables import TextTable, TextWithTables

    if not found:
        return "Nothing is in quarantine."
    rows = [row for poison in found for row in _rows(poison)]
    return TextWithTables.of([TextTable(("position", "message", "why"), rows, {"position"})])


def _rows(poison: Poison) -> Iterator[tuple[str, str, str]]:
    from joulie_projections.fold.quarantine_quota import is_single, positions_of

    yield str(poison.position), f"{poison.stream} #{poison.sequence}", poison.why
    if not is_single(poison):
        positions = positions_of(poison)
        more = f"and {len(positions) - 1} more of {poison.subject or 'several subjects'}"
        yield "", "", f"{more} up to {positions[-1]}, without their bodies"
