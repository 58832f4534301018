"""The questions of the command line: the same program for the local data, for a console, and for
a console behind an API server. Imports nothing that reads a database."""

import argparse
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from joulie_answers.pages import PAGE, all_pages
from joulie_answers.schema import requests as q
from joulie_answers.schema.responses import Answer, DecisionBrief, DecisionList, Energy
from joulie_answers.text.decisions import decisions_text
from joulie_answers.text.energy import energy_csv, energy_text, opencost_csv
from joulie_answers.text.gpus import gpus_text
from joulie_answers.text.nodes import node_text, nodes_text
from joulie_answers.text.plans import next_plan_text, plan_text, plans_text
from joulie_answers.text.requests import requests_text
from joulie_bus.core.times import MS
from joulie_bus.errors import EMPTY, NotInTheLog, NotRead
from joulie_bus.runtime.system_errors import reason_of
from joulie_cli.asking.names import (
    require_model,
    require_namespace,
    require_node,
    require_pod,
)
from joulie_cli.asking.source_type import Source
from joulie_cli.display.times import instant, period_of, time_of, time_since
from joulie_extender.decide.entry_verbs import VERBS, EntryVerb

CHANGES = 100  # of a node by plans
NONE_MATCHES = "None of the {} entries matches. Remove a filter, or list all: `joulie decisions`."
DAY_MS = 24 * 3_600_000


class Answered(NamedTuple):
    document: Answer
    text: str


Question = Callable[[Source, argparse.Namespace], Awaitable[Answered]]


async def pod(source: Source, args: argparse.Namespace) -> Answered:
    from joulie_answers.text.pod import pod_text  # with all terms of a score

    [name] = args.what
    found = await source.pod(name, q.Pod(candidate=args.node or ""))
    return Answered(found, pod_text(found))


async def gpus(source: Source, args: argparse.Namespace) -> Answered:
    query = q.Gpus(node=args.node or "", model=args.model or "", pod=args.pod or "", free=args.free)
    found = await all_pages(source.gpus, query)
    if not found.items:
        await require_node(source, args.node)
        await require_pod(source, args.pod)
        await require_model(source, args.model)
    return Answered(found, gpus_text(found))


async def node(source: Source, args: argparse.Namespace) -> Answered:
    """One, now or at an earlier position."""
    return await _node(source, args.node, moment(args.at, time.time_ns()), args.history)


async def node_changes(source: Source, args: argparse.Namespace) -> Answered:
    _, name = args.what
    return await _node(source, name, {}, changes=True)


async def _node(source: Source, name: str, at: dict[str, Any], changes: bool) -> Answered:
    query = q.Node(transitions=CHANGES if changes else 0, **at)
    found = await source.node(name, query)
    return Answered(found, node_text(found))


def moment(text: str | None, now: int) -> dict[str, Any]:
    """`--at`: a position or a time."""
    if text is None:
        return {}
    if text.isascii() and text.isdigit():
        return {"at": int(text)}
    return {"time": instant(time_of(text, now))}


async def energy(source: Source, args: argparse.Namespace) -> Answered:
    query = energy_of_period(args, time.time_ns())
    found = await all_pages(source.energy, query)
    if not found.series:
        raise NotInTheLog(
            "The ledger holds no energy of this time. It is folded by `joulie ledger`, which "
            "`joulie up` and `joulie demo` run; `joulie ledger --once` folds it now."
        )
    if args.output == "opencost":
        days = [await all_pages(source.energy, query) for query in _days(query, found)]
        return Answered(found, opencost_csv(days))
    return Answered(found, energy_csv(found) if args.output == "csv" else energy_text(found))


def energy_of_period(args: argparse.Namespace, now: int) -> q.Energy:
    """Since the first reading, unless the period is named."""
    first, last = period_of(args, now)
    return q.Energy(by=args.by, since=instant(first), until=instant(last))


def _days(whole: q.Energy, found: Energy) -> Iterator[q.Energy]:
    """Intervals of the ledger do not cross midnight (UTC)."""
    for day in range(found.from_ms // DAY_MS, -(-found.to_ms // DAY_MS)):
        start, end = instant(day * DAY_MS * MS), instant((day + 1) * DAY_MS * MS)
        since, until = whole.since or start, whole.until or end
        yield replace(whole, since=max(start, since), until=min(end, until))


async def requests(source: Source, args: argparse.Namespace) -> Answered:
    query = q.WorkloadRequests(namespace=args.namespace or "", least_hours=args.least_hours)
    found = await all_pages(source.workload_requests, query)
    if not found.position:
        raise NotInTheLog(EMPTY)
    return Answered(found, requests_text(found))


async def plan(source: Source, args: argparse.Namespace) -> Answered:
    _, which = args.what
    found = await source.plan(which, q.NoParameters())
    return Answered(found, plan_text(found))


async def nodes(source: Source, args: argparse.Namespace) -> Answered:
    """All, or the one that is named."""
    if args.node:
        return await _node(source, args.node, {}, changes=True)
    found = await all_pages(source.nodes, q.Nodes(), args.limit)
    return Answered(found, nodes_text(found))


async def plans(source: Source, args: argparse.Namespace) -> Answered:
    query = q.Plans(node=args.node or "", changed=not args.all)
    found = await all_pages(source.plans, query, args.limit)
    if not found.position:
        raise NotInTheLog(EMPTY)
    if not found.items:
        await require_node(source, args.node)
    return Answered(found, plans_text(found, args.node or ""))


async def defragment(source: Source, args: argparse.Namespace) -> Answered:
    from joulie_answers.text.defragment import defragment_text  # with NumPy

    found = await source.defragment(q.Defragment(moves=args.moves))
    return Answered(found, defragment_text(msgspec.to_builtins(found), args.limit))


async def place(source: Source, args: argparse.Namespace) -> Answered:
    from joulie_answers.text.place import place_text  # with all terms of a score

    query = q.Place(manifest=manifest_of(args.filename), namespace=args.namespace)
    found = await source.place(query)
    return Answered(found, place_text(found))


def manifest_of(filename: str) -> str:
    """Raises NotRead."""
    try:
        if filename == "-":
            return sys.stdin.buffer.read().decode()
        return Path(filename).read_text(encoding="utf-8")
    except OSError as error:
        raise NotRead(filename, reason_of(error)) from error
    except UnicodeDecodeError as error:
        raise NotRead(filename, "it is not text in UTF-8") from error


async def next_plan(source: Source, args: argparse.Namespace) -> Answered:
    found = await source.next_plan(q.NextPlan(after_s=args.next))
    return Answered(found, next_plan_text(found, args.limit))


async def decisions(source: Source, args: argparse.Namespace) -> Answered:
    found = await _newest(source, asked_for(args, time.time_ns()), _verbs(args), args.limit)
    if found.items:
        return Answered(found, decisions_text(found.items))
    if not found.entries:
        raise NotInTheLog("The log has no decisions yet. `joulie status` shows what runs.")
    await _require_names(source, args)
    return Answered(found, NONE_MATCHES.format(found.entries))


async def _require_names(source: Source, args: argparse.Namespace) -> None:
    await require_pod(source, args.pod)
    await require_namespace(source, args.namespace)


def asked_for(args: argparse.Namespace, now: int) -> q.Decisions:
    since = time_since(args.since, now) if args.since else None
    return q.Decisions(
        pod=args.pod or "",
        namespace=args.namespace or "",
        candidate=args.node or "",
        since=since,
    )


def _verbs(args: argparse.Namespace) -> list[EntryVerb | None]:
    return [VERBS[f"decision.{kind}"] for kind in args.kind or ()] or [None]


async def _newest(
    source: Source, query: q.Decisions, verbs: Sequence[EntryVerb | None], limit: int
) -> DecisionList:
    """Of each kind that is asked for, together the newest ones."""
    lists = [await all_pages(source.decisions, replace(query, verb=verb), limit) for verb in verbs]
    items = sorted((each for one in lists for each in one.items), key=lambda one: -one.entry)
    return replace(lists[0], items=items[:limit], next=lists[0].next if len(lists) == 1 else None)


async def following(source: Source, args: argparse.Namespace) -> AsyncIterator[list[DecisionBrief]]:
    """The newest entries, then those that are new since the last time, newest first."""
    query, verbs = asked_for(args, time.time_ns()), _verbs(args)
    found = await _newest(source, query, verbs, args.limit)
    if not found.items:
        await _require_names(source, args)
    yield found.items
    seen = found.entries
    while True:
        found = await _newest(source, query, verbs, PAGE)
        yield [each for each in found.items if each.entry > seen]
        seen = max([seen, *(each.entry for each in found.items)])
