"""`joulie explain`: why a pod was placed where it is; also `node NAME` and `plan ID|POSITION`."""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from joulie_audit.archive.fact_source import FactSource, newest_plan_facts
from joulie_audit.questions.explain import (
    Explanation,
    Outcome,
    explain_pod,
    outcome_of,
    recompute_terms,
    similar_names,
    weights_in,
)
from joulie_audit.questions.gang import GangNow, gang_now, in_words
from joulie_audit.questions.time_travel import (
    NodeChange,
    binding_of,
    cluster_state_at,
    node_changes,
)
from joulie_bus.errors import BusError, DataDirectoryError, NotInTheLog
from joulie_bus.events import Terms, named_values
from joulie_cli.display import plan_changes
from joulie_cli.display.output import show
from joulie_cli.display.time_arguments import shown
from joulie_cli.log_access.past import ArchivePlace, archive_of, facts_of, require_facts
from joulie_cli.questions import plans
from joulie_cli.wiring import Wiring
from joulie_extender.catalogue.terms import ENERGY, FIRST, HEADROOM
from joulie_extender.decide.decide import candidate_names
from joulie_extender.decide.explained import explained
from joulie_extender.terms.freshness import SOURCE_SENTENCES
from joulie_projections.history.history import History
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.row_names import RowNames

SETTINGS = (ArchivePlace,)
SHOWN_STEPS = 20
ONE_GPU = 1000  # thousandths
UNKNOWN_NAMES = "Nodes were removed since then, and the names of some are unknown:"


class PodReport(msgspec.Struct):
    """The explanation of a pod from the log, plus the parts that require facts."""

    pod: Explanation
    asked_for: Terms | None
    outcome: Outcome | None
    missing: str = ""  # why the outcome is missing
    preset: str | None = None  # of these settings; None: they are not in the log
    gang: GangNow | None = None  # its group


def run(args: argparse.Namespace, wires: Wiring) -> int:
    match args.what:
        case ["node", name]:
            return _print(args, asyncio.run(_node(args, wires, name)), _node_text)
        case ["plan", which]:
            return _print(args, asyncio.run(_plan(args, wires, which)), _plan_text)
        case [pod] | ["pod", pod]:
            report = asyncio.run(_pod(args, wires, pod))
            show(args, pod_json(report), pod_text(report))
            return 0
        case _:
            raise NotInTheLog(
                "Nothing to explain. Give a pod (namespace/name or uid), `node NAME` or `plan ID`."
            )


def _print(args: argparse.Namespace, report: dict[str, Any], text: Any) -> int:
    show(args, report, text(report))
    return 0


# --- a pod ------------------------------------------------------------------------------------


async def _pod(args: argparse.Namespace, wires: Wiring, pod: str) -> PodReport:
    async with facts_of(wires, archive_of(args, wires)) as (history, facts):
        explanation = explain_pod(history, pod)
        names = await _names_at(history, facts, explanation)
        explanation = explain_pod(history, pod, names)
        report = PodReport(explanation, None, explanation.outcome)
        weights = weights_in(history, explanation.settings)
        report.preset = weights.preset if weights else None
        report.gang = gang_now(explanation.pod, history.cluster_state())
        if args.node is not None:
            report.asked_for = await _terms_of(history, facts, explanation, args.node)
        if report.outcome is None:
            try:
                report.outcome = await _binding(history, facts, explanation, names)
            except (BusError, NotInTheLog, DataDirectoryError) as error:
                report.missing = f"the node is unknown: {error}"
        return report


async def _names_at(history: History, facts: FactSource, explanation: Explanation) -> RowNames:
    """The names at the view: from the database, or from the facts if it does not have them all."""
    view, names = explanation.view, history.row_names(explanation.view)
    decisions = [each for each in (explanation.filtered, explanation.scored) if each is not None]
    if not view or all(names.at(view).include(each.candidates) for each in decisions):
        return names
    try:
        cluster_state = await cluster_state_at(history, facts, view)
    except (BusError, NotInTheLog, DataDirectoryError) as error:
        print(f"joulie explain: {UNKNOWN_NAMES} {error}", file=sys.stderr)
        return names
    return RowNames.of_state(view, cluster_state)


async def _terms_of(
    history: History, facts: FactSource, explanation: Explanation, node: str
) -> Terms:
    scored = explanation.scored
    if scored is None:
        raise NotInTheLog("This attempt ended with the filter: no node was scored.")
    listed = next((terms for terms in scored.top if terms.node == node), None)
    if listed is not None:
        return listed
    weights = weights_in(history, explanation.settings)
    if weights is None:
        raise NotInTheLog(f"The settings {explanation.settings} are not in the log.")
    cluster_state = await cluster_state_at(history, facts, explanation.view)
    terms = recompute_terms(scored, node, TwinColumns.of_state(cluster_state), weights)
    if terms is None:
        raise NotInTheLog(_no_candidate(history, explanation, node))
    return terms


def _no_candidate(history: History, explanation: Explanation, node: str) -> str:
    names = history.row_names(explanation.view)
    filtered = explanation.filtered
    if filtered and node in candidate_names(filtered, names):
        return f"{node} was refused by the filter, so it was not scored: {filtered.reason}."
    known = "is an unknown node" if node not in names.nodes() else "was no candidate"
    return (
        f"{node} {known}: kube-scheduler did not send it (it filters nodes before it calls the "
        "extender, and samples the nodes of large clusters)."
    )


async def _binding(
    history: History, facts: FactSource, explanation: Explanation, names: RowNames
) -> Outcome | None:
    bound = await binding_of(history, facts, explanation.pod.uid, explanation.view)
    return outcome_of(explanation.scored, bound.node, names) if bound else None


def pod_json(report: PodReport) -> dict[str, Any]:
    explanation = report.pod
    return {
        "pod": msgspec.to_builtins(explanation.pod),
        "attempts": explanation.attempts,
        "entries": explanation.entries,
        "decided_at": explanation.decided_at,
        "view": explanation.view,
        "view_age_ms": explanation.view_age_ms,
        "behind_ms": explanation.behind_ms,
        "view_text": explanation.view_text,
        "settings": explanation.settings,
        "preset": report.preset,
        "gang": report.gang._asdict() if report.gang else None,
        "candidates": report.pod.candidates,
        "top": msgspec.to_builtins(explanation.scored.top) if explanation.scored else [],
        "asked_for": msgspec.to_builtins(report.asked_for),
        "rejections": [rejection._asdict() for rejection in explanation.rejections],
        "reason": explanation.filtered.reason if explanation.filtered else "",
        "outcome": report.outcome._asdict() if report.outcome else None,
        "missing": report.missing,
    }


def pod_text(report: PodReport) -> str:
    return "\n".join(
        [
            *_request_lines(report),
            *_filter_lines(report.pod),
            *_score_lines(report),
            *_outcome_lines(report),
        ]
    )


def _request_lines(report: PodReport) -> Iterator[str]:
    explanation, pod = report.pod, report.pod.pod
    entries = " and ".join(map(str, explanation.entries))
    tries = f", attempt {explanation.attempts}" if explanation.attempts > 1 else ""
    yield f"{pod.namespace}/{pod.name}   {shown(explanation.decided_at)}{tries}   (entry {entries})"
    yield f"  class      {pod.workload}, {pod.placement} (rule: {pod.rule})" + (
        f"; never refused: {pod.exempt}" if pod.exempt else ""
    )
    many = "" if pod.gpu_milli == ONE_GPU else "s"
    gpus = f", {pod.gpu_milli / ONE_GPU:g} GPU{many}" if pod.gpu_milli else ""
    memory = f", {pod.memory_bytes / 2**30:.3g} GiB" if pod.memory_bytes else ""
    yield f"  requests   {pod.cpu_milli / 1000:g} cores{memory}{gpus}"
    if report.gang is not None:
        yield f"  group      {in_words(report.gang)}"
    preset = f" (preset {report.preset})" if report.preset else ""
    yield f"  view       {explanation.view_text}; settings {explanation.settings}{preset}"


def _filter_lines(explanation: Explanation) -> Iterator[str]:
    filtered = explanation.filtered
    if filtered is None:
        return
    yield f"  filter     {explained(filtered).line}{':' if explanation.rejections else ''}"
    for each in explanation.rejections:
        more = ", ..." if each.refused > len(each.nodes) else ""
        yield f"             {each.refused} {each.reason} ({', '.join(each.nodes)}{more})"


def columns_of(lines: Sequence[Terms]) -> dict[str, str]:
    """Column title -> term: those of the formula, without the ones that apply to no line."""
    sources = [terms.source for terms in lines]
    formula = ENERGY if "energy" in sources else HEADROOM
    applying = {name for terms in lines for name, value in named_values(terms).items() if value}
    shown = (
        term
        for term in formula.shown
        if term.name in applying or term.name in FIRST or not term.is_summand
    )
    return {" score": "score", **{term.head: term.name for term in shown}}


def _score_lines(report: PodReport) -> Iterator[str]:
    scored = report.pod.scored
    if scored is None:
        return
    yield (
        f"  scores     of {report.pod.candidates} candidates; cluster trend "
        f"{scored.cluster_trend_w_per_min:+.0f} W/min, pressure {scored.perf_pressure:.1f}"
    )
    lines = list(scored.top)
    if report.asked_for is not None and report.asked_for not in lines:
        lines.append(report.asked_for)
    width = max((len(terms.node) for terms in lines), default=0) + 1
    head = columns_of(lines)
    yield f"  {'':<{width}} " + "".join(f"{name:>{len(name) + 2}}" for name in head) + "  from"
    for terms in lines:
        yield _line(terms, report.outcome, width, head)
    yield from rules_behind(lines)


def rules_behind(lines: Sequence[Terms]) -> Iterator[str]:
    """One line per source that occurs; a fresh reading requires no explanation."""
    for source in dict.fromkeys(terms.source for terms in lines):
        if source in SOURCE_SENTENCES:
            yield f"  {source:<12} {SOURCE_SENTENCES[source]}"


def _line(terms: Terms, outcome: Outcome | None, width: int, head: Mapping[str, str]) -> str:
    mark = "*" if outcome is not None and outcome.node == terms.node else " "
    values = named_values(terms)
    cells = (
        f"{_shown(values.get(term, 0.0)):>{len(title) + 2}.2f}" for title, term in head.items()
    )
    return f"  {mark}{terms.node:<{width}}{''.join(cells)}  {terms.source}"


def _shown(value: float) -> float:
    """Two places, and no minus before a zero."""
    return round(value, 2) + 0.0


def _outcome_lines(report: PodReport) -> Iterator[str]:
    outcome = report.outcome
    if report.missing:
        yield f"  outcome    {report.missing}"
    elif outcome is None:
        yield "  outcome    not bound, as far as the log goes"
    elif outcome.rank is None:
        yield f"  outcome    bound to {outcome.node}, which was not scored"
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
        names = history.row_names().nodes()
        if not steps and name not in names:
            known = similar_names(name, names)
            raise NotInTheLog(f"There is no node {name!r}. Known are {known}.")
        return {"node": name, "steps": [step._asdict() for step in steps[-SHOWN_STEPS:]]}


def _node_text(report: dict[str, Any]) -> str:
    steps = [NodeChange(**step) for step in report["steps"]]
    if not steps:
        return f"{report['node']}: no plan has changed it."
    lines = [f"{report['node']}: its last {len(steps)} steps"]
    lines += [f"{s.position:>9}  {shown(s.at)}  {s.what}\n{'':>11}{s.because}" for s in steps]
    return "\n".join(lines)


async def _plan(args: argparse.Namespace, wires: Wiring, which: str) -> dict[str, Any]:
    async with facts_of(wires, archive_of(args, wires)) as (history, facts):
        require_facts(history)
        explanation = list[dict[str, Any]]()
        async for found in newest_plan_facts(history, facts):
            explanation = plans.whole_plans(found)
            for plan in explanation:
                if which in (plan["plan"], str(plan["position"])):
                    return plan
    newest = ", ".join(plan["plan"] for plan in explanation[-3:]) or "none"
    raise NotInTheLog(f"There is no plan {which!r}. The newest are {newest}; see `joulie plans`.")


def _plan_text(plan: dict[str, Any]) -> str:
    lines = [
        f"{plan['plan']}   {shown(plan['at'])}   position {plan['position']}",
        f"  because    {plan['because']}",
        f"  looked at  position {plan['view']}: {plan['nodes']} nodes",
        *plan_changes.input_lines(plan.get("inputs", {})),
        f"  changes    {len(plan['events'])}",
        *plan_changes.as_lines(plan["events"]),
    ]
    return "\n".join(lines)
