"""`joulie diff`: checks that the log was only appended to between two signed heads."""

import argparse

from joulie_answers.text.times import shown
from joulie_audit.verify.proof import Difference, difference
from joulie_cli.display.output import show
from joulie_cli.display.times import MS
from joulie_cli.log_access.kept_heads import head_named, public_key
from joulie_cli.log_access.past import ArchivePlace, archive_of, history_of
from joulie_cli.wiring import Wiring

SETTINGS = (ArchivePlace,)


def run(args: argparse.Namespace, wires: Wiring) -> int:
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
    if found.flaw:
        return f"NOT one log: {found.flaw}."
    first, last = (shown(each.signed_at // MS) for each in (found.first, found.last))
    return (
        f"One log: the head at {found.last.pos} ({last}) goes on from the "
        f"head at {found.first.pos} ({first}) by {found.entries} entries."
    )
