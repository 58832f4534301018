"""`joulie explain`: why there? A pod by its name or uid; `node NAME`; `plan ID|POSITION`."""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from joulie_audit.archive.fact_source import FactSource, plan_facts
from joulie_audit.questions.explain import (
    Explanation,
    Outcome,
    candidate_names,
    explain_pod,
    node_names,
    outcome_of,
    recompute_terms,
    similar_names,
    weights_in,
)
from joulie_audit.questions.time_travel import (
    NodeChange,
    binding_of,
    cluster_state_at,
    node_changes,
)
from joulie_bus.errors import BusError, DataDirectoryError, NotInTheLog
from joulie_bus.events import Terms
from joulie_cli.commands import plans
from joulie_cli.display.time_arguments import shown
from joulie_cli.log_access.past import ArchivePlace, archive_of, facts_of, require_facts
from joulie_cli.wiring import Wiring
from joulie_projections.history.history import History
from joulie_projections.twin.columns import TwinColumns

SETTINGS = (ArchivePlace,)
SHOWN_STEPS = 20
ONE_GPU = 1000  # thousandths
NAMES_OF_TODAY = "Nodes have gone since, and refused ones may be named wrongly:"


class Told(msgspec.Struct):
    """A pod's explanation, and what took reading the facts."""

    pod: Explanation
    candidates: int
    asked_for: Terms | None
    outcome: Outcome | None
    missing: str = ""  # why something is not told


def run(args: argparse.Namespace, wires: Wiring) -> int:
    match args.what:
        case ["node", name]:
            return _tell(args, asyncio.run(_node(args, wires, name)), _node_text)
        case ["plan", which]:
            return _tell(args, asyncio.run(_plan(args, wires, which)), _plan_text)
        case [pod] | ["pod", pod]:
            told = asyncio.run(_pod(args, wires, pod))
            print(json.dumps(pod_json(told)) if args.json else pod_text(told))
            return 0
        case _:
            raise NotInTheLog(
                "What shall be explained? A pod (namespace/name or uid), `node NAME` or `plan ID`."
            )


def _tell(args: argparse.Namespace, told: dict[str, Any], text: Any) -> int:
    print(json.dumps(told) if args.json else text(told))
    return 0


# --- a pod ------------------------------------------------------------------------------------


async def _pod(args: argparse.Namespace, wires: Wiring, pod: str) -> Told:
    async with facts_of(wires, archive_of(args, wires)) as (history, facts):
        found = explain_pod(history, pod)
        names = await _names_then(history, facts, found.view)
        found = explain_pod(history, pod, names)
        count = len((found.scored or found.filtered).candidates.ordinals) // 4  # type: ignore[union-attr]
        told = Told(found, count, None, found.outcome)
        if args.node is not None:
            told.asked_for = await _terms_of(history, facts, found, args.node)
        if told.outcome is None:
            try:
                told.outcome = await _binding(history, facts, found, names)
            except (BusError, NotInTheLog, DataDirectoryError) as error:
                told.missing = f"where it went cannot be told: {error}"
        return told


async def _names_then(history: History, facts: FactSource, view: int) -> dict[int, str]:
    """Nodes by row, at the position that was looked at; of today, where the facts are away."""
    if view >= history.rows_reassigned_at():
        return node_names(history)
    try:
        cluster_state = await cluster_state_at(history, facts, view)
    except (BusError, NotInTheLog, DataDirectoryError) as error:
        print(f"joulie explain: {NAMES_OF_TODAY} {error}", file=sys.stderr)
        return node_names(history)
    return {state.ordinal: name for name, state in cluster_state.nodes.items()}


async def _terms_of(history: History, facts: FactSource, found: Explanation, node: str) -> Terms:
    scored = found.scored
    if scored is None:
        raise NotInTheLog("This attempt ended with the filter: no node was scored.")
    listed = next((terms for terms in scored.top if terms.node == node), None)
    if listed is not None:
        return listed
    weights = weights_in(history, found.settings)
    if weights is None:
        raise NotInTheLog(f"The settings {found.settings} are not in the log.")
    cluster_state = await cluster_state_at(history, facts, found.view)
    terms = recompute_terms(scored, node, TwinColumns.of_state(cluster_state), weights)
    if terms is None:
        raise NotInTheLog(_no_candidate(history, found, node))
    return terms


def _no_candidate(history: History, found: Explanation, node: str) -> str:
    names = node_names(history)
    filtered = found.filtered
    if filtered and node in candidate_names(filtered.candidates, names):
        return f"{node} was refused by the filter, so it was not scored: {filtered.reason}."
    known = "is no node that we know" if node not in names.values() else "was no candidate"
    return (
        f"{node} {known}: kube-scheduler did not send it (it filters before us, and looks at a "
        "sample of large clusters)."
    )


async def _binding(
    history: History, facts: FactSource, found: Explanation, names: dict[int, str]
) -> Outcome | None:
    bound = await binding_of(history, facts, found.pod.uid, found.view)
    return outcome_of(found.scored, bound.node, names) if bound else None


def pod_json(told: Told) -> dict[str, Any]:
    found = told.pod
    return {
        "pod": msgspec.to_builtins(found.pod),
        "attempts": found.attempts,
        "entries": found.entries,
        "decided_at": found.decided_at,
        "view": found.view,
        "view_age_ms": found.view_age_ms,
        "settings": found.settings,
        "candidates": told.candidates,
        "top": msgspec.to_builtins(found.scored.top) if found.scored else [],
        "asked_for": msgspec.to_builtins(told.asked_for),
        "rejections": [rejection._asdict() for rejection in found.rejections],
        "reason": found.filtered.reason if found.filtered else "",
        "outcome": told.outcome._asdict() if told.outcome else None,
        "missing": told.missing,
    }


def pod_text(told: Told) -> str:
    return "\n".join([*_asked(told), *_refused(told.pod), *_scored(told), *_became(told)])


def _asked(told: Told) -> Iterator[str]:
    found, pod = told.pod, told.pod.pod
    entries = " and ".join(map(str, found.entries))
    tries = f", attempt {found.attempts}" if found.attempts > 1 else ""
    yield f"{pod.namespace}/{pod.name}   {shown(found.decided_at)}{tries}   (entry {entries})"
    yield f"  class      {pod.workload}, {pod.placement} (rule: {pod.rule})" + (
        f"; never refused: {pod.exempt}" if pod.exempt else ""
    )
    many = "" if pod.gpu_milli == ONE_GPU else "s"
    gpus = f", {pod.gpu_milli / ONE_GPU:g} GPU{many}" if pod.gpu_milli else ""
    memory = f", {pod.memory_bytes / 2**30:.3g} GiB" if pod.memory_bytes else ""
    yield f"  asks for   {pod.cpu_milli / 1000:g} cores{memory}{gpus}"
    yield (
        f"  view       position {found.view}, {found.view_age_ms} ms old; settings {found.settings}"
    )


def _refused(found: Explanation) -> Iterator[str]:
    filtered = found.filtered
    if filtered is None:
        return
    asked = len(filtered.verdicts)
    if not found.rejections:
        yield f"  filter     all {asked} pass"
        return
    refused = sum(rejection.refused for rejection in found.rejections)
    yield f"  filter     {asked - refused} of {asked} pass; {filtered.reason}:"
    for each in found.rejections:
        more = ", ..." if each.refused > len(each.nodes) else ""
        yield f"             {each.refused} {each.reason} ({', '.join(each.nodes)}{more})"


# As shown, and the term behind it.
_HEAD = {
    " score": "score",
    "headroom": "headroom",
    "cooling": "cooling",
    " trend": "trend",
    " bonus": "bonus",
    "pressure": "pressure",
    "draining": "draining",
    "adds watts": "marginal_w",
}


# Which rule gave the headroom, where it was not a fresh reading.
_RULES = {
    "predicted": (
        "no fresh power reading: headroom from caps and cooling, less what the model gives all "
        "pods there"
    ),
    "neutral": "no twin, or a stale one: the neutral score, never above the best known candidate",
    "undiscovered": (
        "no hardware facts, so no cap: the neutral score, never above the best known candidate"
    ),
}


def _scored(told: Told) -> Iterator[str]:
    scored = told.pod.scored
    if scored is None:
        return
    yield (
        f"  scores     of {told.candidates} candidates; cluster trend "
        f"{scored.cluster_trend_w_per_min:+.0f} W/min, pressure {scored.perf_pressure:.1f}"
    )
    lines = list(scored.top)
    if told.asked_for is not None and told.asked_for not in lines:
        lines.append(told.asked_for)
    width = max((len(terms.node) for terms in lines), default=0) + 1
    yield f"  {'':<{width}} " + "".join(f"{name:>{len(name) + 2}}" for name in _HEAD) + "  from"
    for terms in lines:
        yield _line(terms, told.outcome, width)
    yield from rules_behind(lines)


def rules_behind(lines: Sequence[Terms]) -> Iterator[str]:
    """Each once. Of a fresh reading the formula itself says it."""
    for source in dict.fromkeys(terms.source for terms in lines):
        if source in _RULES:
            yield f"  {source:<12} {_RULES[source]}"


def _line(terms: Terms, outcome: Outcome | None, width: int) -> str:
    mark = "*" if outcome is not None and outcome.node == terms.node else " "
    values = (f"{getattr(terms, field):>{len(name) + 2}.2f}" for name, field in _HEAD.items())
    return f"  {mark}{terms.node:<{width}}{''.join(values)}  {terms.source}"


def _became(told: Told) -> Iterator[str]:
    outcome = told.outcome
    if told.missing:
        yield f"  outcome    {told.missing}"
    elif outcome is None:
        yield "  outcome    not bound, as far as the log goes"
    elif outcome.rank is None:
        yield f"  outcome    bound to {outcome.node}, which we did not score"
    else:
        yield (
            f"  outcome    bound to {outcome.node}*, our number {outcome.rank} with "
            f"{outcome.score} (from {outcome.said_by}); kube-scheduler adds its own scores to ours"
        )


# --- a node, a plan ---------------------------------------------------------------------------


async def _node(args: argparse.Namespace, wires: Wiring, name: str) -> dict[str, Any]:
    async with facts_of(wires, archive_of(args, wires)) as (history, facts):
        require_facts(history)
        steps = await node_changes(history, facts, name)
        names = node_names(history)
        if not steps and name not in names.values():
            known = similar_names(name, names.values())
            raise NotInTheLog(f"Nothing is known of a node {name!r}. Known are {known}.")
        return {"node": name, "steps": [step._asdict() for step in steps[-SHOWN_STEPS:]]}


def _node_text(told: dict[str, Any]) -> str:
    steps = [NodeChange(**step) for step in told["steps"]]
    if not steps:
        return f"{told['node']}: no plan has ever touched it."
    lines = [f"{told['node']}: its last {len(steps)} steps"]
    lines += [f"{s.position:>9}  {shown(s.at)}  {s.what}\n{'':>11}{s.because}" for s in steps]
    return "\n".join(lines)


async def _plan(args: argparse.Namespace, wires: Wiring, which: str) -> dict[str, Any]:
    async with facts_of(wires, archive_of(args, wires)) as (history, facts):
        require_facts(history)
        found = plans.grouped([fact async for fact in plan_facts(history, facts)])
    for plan in found:
        if which in (plan["plan"], str(plan["position"])):
            return plan
    newest = ", ".join(plan["plan"] for plan in found[-3:]) or "none"
    raise NotInTheLog(f"There is no plan {which!r}. The newest are {newest}; see `joulie plans`.")


def _plan_text(plan: dict[str, Any]) -> str:
    lines = [
        f"{plan['plan']}   {shown(plan['at'])}   position {plan['position']}",
        f"  because    {plan['because']}",
        f"  looked at  position {plan['view']}: {plan['nodes']} nodes",
        "  inputs     " + ", ".join(f"{k} {v:g}" for k, v in plan.get("inputs", {}).items()),
        f"  changes    {len(plan['events'])}",
    ]
    hidden = ("type", "plan", "node", "because")
    for event in plan["events"]:
        what = ", ".join(f"{k} {v}" for k, v in event.items() if k not in hidden)
        kind = event["type"].removeprefix("plan.")
        lines.append(f"    {event['node']:<24} {kind} {what}  {event.get('because', '')}".rstrip())
    return "\n".join(lines)
