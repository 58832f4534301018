"""prove that the log was only appended to between two signed heads.

joulie diff 1024 2048
joulie diff old-head.json new-head.json
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_audit.verify.proof import Difference
    from joulie_projections.component.wiring import Wiring


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    for name in ("one", "other"):
        parser.add_argument(
            name, metavar="HEAD", help="a file with a head, or the number of its entry"
        )
    shared.archive(parser)


def program() -> Program:
    from joulie_audit.access.past import ArchivePlace

    return Program((ArchivePlace,), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    from joulie_audit.access.kept_heads import head_named, public_key
    from joulie_audit.access.past import archive_of, history_of
    from joulie_audit.verify.proof import difference
    from joulie_cli.display.output import show

    wires.data.require()
    public = public_key(wires)
    with history_of(wires, archive_of(args, wires)) as history:
        heads = [head_named(text, history, ()) for text in (args.one, args.other)]
        found = difference(history, public, *heads)
    result = {
        "from": found.first.pos,
        "to": found.last.pos,
        "entries": found.entries,
        "consistent": not found.flaw,
        "what": found.flaw,
    }
    show(args, result, as_text(found))
    return 1 if found.flaw else 0


def as_text(found: Difference) -> str:
    from joulie_bus.core.times import MS, utc_text

    if found.flaw:
        return f"NOT one log: {found.flaw}."
    first, last = (utc_text(each.signed_at // MS) for each in (found.first, found.last))
    return (
        f"One log: the head at {found.last.pos} ({last}) goes on from the "
        f"head at {found.first.pos} ({first}) by {found.entries} entries."
    )
