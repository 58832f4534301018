"""`joulie decisions`: lists entries of the decision log, newest last; `--follow` streams them."""

import argparse
import time
from collections.abc import Iterator
from typing import Any

from joulie_audit.questions.explain import read
from joulie_audit.questions.listing import about_node, line_of, row_of
from joulie_bus.errors import NotInTheLog
from joulie_bus.events import DECISION_TYPES
from joulie_cli.display.output import show
from joulie_cli.display.time_arguments import HOW, as_time
from joulie_cli.log_access.past import ArchivePlace, archive_of, history_of
from joulie_cli.wiring import Wiring
from joulie_projections.history.history import EntryQuery, History, StoredEntry

SETTINGS = (ArchivePlace,)
POLL_S = 0.3
KINDS = {cls.TYPE.removeprefix("decision."): cls.TYPE for cls in DECISION_TYPES}


def run(args: argparse.Namespace, wires: Wiring) -> int:
    wanted = wanted_of(args, time.time_ns())
    with history_of(wires, archive_of(args, wires)) as history:
        found = list(_found(history, wanted, args))
        newest = history.tip()
    if not found and not args.follow:
        raise NotInTheLog(_nothing(newest))
    _print(reversed(found), args)
    if args.follow:
        _follow(wires, wanted._replace(after=newest), args)
    return 0


def wanted_of(args: argparse.Namespace, now: int) -> EntryQuery:
    return EntryQuery(
        pod=args.pod or "",
        namespace=args.namespace or "",
        kinds=tuple(KINDS[kind] for kind in args.kind or ()),
        since=_since(args.since, now) if args.since else None,
    )


def _since(text: str, now: int) -> int:
    try:
        at = as_time(text, now)
    except ValueError as error:
        raise NotInTheLog(f"{text!r} is not {HOW}.") from error
    if at > now:
        raise NotInTheLog(f"--since {text} lies in the future. Give a time in the past.")
    return at


def _found(history: History, wanted: EntryQuery, args: argparse.Namespace) -> Iterator[StoredEntry]:
    if args.node is None:
        yield from history.find(wanted, args.limit)
        return
    is_about = about_node(history, args.node)
    count = 0
    for entry in history.find(wanted):
        if is_about(entry):
            yield entry
            count += 1
            if count == args.limit:
                return


def _follow(wires: Wiring, wanted: EntryQuery, args: argparse.Namespace) -> None:
    while True:
        time.sleep(POLL_S)
        with history_of(wires) as history:
            unlimited = argparse.Namespace(**{**vars(args), "limit": None})
            fresh = list(_found(history, wanted, unlimited))
            wanted = wanted._replace(after=history.tip())
        _print(reversed(fresh), args)


def _print(entries: Iterator[StoredEntry], args: argparse.Namespace) -> None:
    for entry in entries:
        event = read(entry)
        row: Any = row_of(entry, event)
        # JSON has one object per line; in YAML the items make one list.
        show(args, [row] if args.output == "yaml" else row, line_of(entry, event))


def _nothing(entries: int) -> str:
    if not entries:
        return "The log has no decisions yet. `joulie status` shows what runs."
    return (
        f"None of the {entries} entries matches. Remove a filter, or list all: `joulie decisions`."
    )
