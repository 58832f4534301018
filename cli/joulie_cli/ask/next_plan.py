"""`joulie plans --next`: what the operator would plan, and which nodes save energy after that."""

import argparse
from collections.abc import Iterator
from typing import Any

import msgspec

from joulie_answers.text.plans import input_lines, transition_lines
from joulie_answers.text.times import rfc3339
from joulie_answers.views.plan_text import plain_inputs, power_shares, transition_of
from joulie_audit.questions.next_plan import NextPlan, next_plan
from joulie_bus.errors import NotInTheLog
from joulie_cli.display.times import MS, SECOND
from joulie_cli.log_access.past import archive_of, history_of, require_facts
from joulie_cli.wiring import Wiring
from joulie_operator.plugins import load_policy


def report_of(args: argparse.Namespace, wires: Wiring) -> dict[str, Any]:
    with history_of(wires, archive_of(args, wires)) as history:
        view = require_facts(history)
        cluster_state = history.cluster_state()
        newest = cluster_state.plan
        if newest is None:
            raise NotInTheLog("The operator has made no plan yet, so its settings are unknown.")
        at = history.committed_at(view) or newest.now
    try:
        policy = load_policy(newest.policy)
    except ValueError as error:
        raise NotInTheLog(f"The policy {newest.policy} of {newest.plan}: {error}") from error
    planned = next_plan(newest, cluster_state, policy, view, at + round(args.next * SECOND))
    return {"settings_of": newest.plan, "after_s": args.next, **as_json(planned, at)}


def as_json(planned: NextPlan, at: int) -> dict[str, Any]:
    made, events = planned.plan.made, planned.plan.events
    return {
        **msgspec.to_builtins(made),
        "at": rfc3339(at // MS),  # when the newest fact was committed
        "now": rfc3339(made.now // MS),
        "inputs": plain_inputs(made),
        "shares": power_shares(made),
        "transitions": [transition_of(event, 0, made.now // MS) for event in events],
        "held": planned.plan.held,
        "draining": planned.draining,
        "least_dense_first": planned.least_dense_first,
        "longest_empty_first": {  # in seconds
            node: max(0, at - since) // SECOND
            for node, since in planned.longest_empty_first.items()
        },
    }


def as_text(report: dict[str, Any], most: int) -> str:
    later = report["after_s"]
    until = f"; as if nothing else happened for {later:g} s" if later else ""
    lines = [
        f"The next plan, from the facts up to position {report['view']} ({report['at']}) "
        f"and the settings of {report['settings_of']}{until}",
        f"  because    {report['because']}",
        *input_lines(report["inputs"], report["shares"]),
        f"  changes    {len(report['transitions'])}",
        *transition_lines(report["transitions"]),
    ]
    draining = [f"{node} ({pods} left)" for node, pods in report["draining"].items()]
    held = [f"{node} ({why})" for node, why in report["held"].items()]
    since = [f"{node} ({seconds} s)" for node, seconds in report["longest_empty_first"].items()]
    lines += _row("draining", draining, most, "eco when their performance pods have ended")
    lines += _row("held", held, most, "not changed yet, and why")
    lines += _row("empty", since, most, "the longest empty ones sleep first, beyond the reserve")
    why = "eco in this order if fewer performance nodes are needed, the least dense first"
    lines += _row("then", report["least_dense_first"], most, why)
    return "\n".join(lines)


def _row(title: str, nodes: list[str], most: int, why: str) -> Iterator[str]:
    if nodes:
        more = ", ..." if len(nodes) > most else ""
        yield f"  {title:<10} {len(nodes)}: {why}"
        yield f"             {', '.join(nodes[:most])}{more}"
