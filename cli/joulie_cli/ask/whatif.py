"""recompute past decisions with other settings; changes nothing.

joulie whatif --set scoring=headroom
joulie whatif --policy queue_aware_v1 --from-position 1000
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_answers.text.tables import TextTable
    from joulie_audit.questions.whatif import Overrides
    from joulie_audit.recompute.score_changes import Comparison, Group, ScoreChange
    from joulie_extender.catalogue.weights import Weights
    from joulie_operator.planning.rules import Rules
    from joulie_projections.component.wiring import Wiring


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="change a setting"
    )
    parser.add_argument("--policy", metavar="NAME", help="change the operator's policy")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="plot the differences (SVG)")
    shared.span(parser, "position")
    parser.add_argument(
        "--sample", type=shared.count, default=0, metavar="N", help="only about N scored pods"
    )
    shared.archive(parser)


SHOWN = 10
N = TypeVar("N", bound=NamedTuple)


def program() -> Program:
    from joulie_audit.access.past import ArchivePlace

    return Program((ArchivePlace,), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    import asyncio

    from joulie_answers.text import whatif_plot
    from joulie_cli.display.output import require_writable, show, write

    require_writable("--plot", args.plot)
    given = pairs(args.set, args.policy)
    other = other_of(given)
    found = asyncio.run(_compare(args, wires, other))
    if args.plot is not None:
        title = "what if " + ", ".join(f"{name}={value}" for name, value in given.items())
        write("--plot", args.plot, whatif_plot.of(found, title))
    show(args, as_json(given, found), as_text(given, found))
    return 0


async def _compare(args: argparse.Namespace, wires: Wiring, other: Overrides) -> Comparison:
    from joulie_audit.access.past import archive_of, facts_of, require_facts, span_of
    from joulie_audit.questions.whatif import Period, what_if
    from joulie_cli.display.progress import progress

    async with facts_of(wires, archive_of(args, wires)) as (history, facts):
        newest = require_facts(history)
        period = Period(*span_of(args, newest, "position"), args.sample)
        end = min(period.last, newest)
        with progress("whatif", args.output != "table") as tell:
            told = partial(tell, total=end) if tell is not None else None
            return await what_if(history, facts, other, period, told)


def pairs(texts: list[str], policy: str | None) -> dict[str, str]:
    from joulie_bus.errors import SettingsError

    given: dict[str, str] = {}
    wrong = [text for text in texts if "=" not in text]
    if wrong:
        raise SettingsError([f"--set {text}: write it as NAME=VALUE" for text in wrong])
    for text in texts:
        name, _, value = text.partition("=")
        given[name.strip()] = value.strip()
    if policy is not None:
        given["POLICY_TYPE"] = policy
    if not given:
        raise SettingsError(["no change is given: give --set NAME=VALUE or --policy NAME"])
    return given


def other_of(given: Mapping[str, str]) -> Overrides:
    """The changed settings of scoring and planning; raises SettingsError for any other name."""
    from joulie_audit.questions.whatif import Overrides
    from joulie_bus.core.similar_names import similar_names
    from joulie_bus.errors import SettingsError
    from joulie_bus.runtime.settings import Source
    from joulie_extender.settings import ScoringSettings
    from joulie_operator.settings import OperatorSettings

    scoring, planning = _fields(ScoringSettings), _fields(OperatorSettings)
    known = {**scoring, **planning}
    if unknown := [name for name in given if name not in known]:
        why = "not a setting of scores or plans, so nothing was computed; similar names are"
        raise SettingsError([f"{name}: {why} {similar_names(name, known)}" for name in unknown])
    source = Source(given, said_by="the command line", gives_numbers=True)
    weights, rules = source.load(ScoringSettings).weights(), source.load(OperatorSettings).rules()
    source.finish()
    named = {scoring[name] for name in given if name in scoring}
    if "trend_scale" in named:
        named |= weights.scaled().keys()
    planned = {planning[name] for name in given if name in planning}
    return Overrides(
        weights=(lambda then: revalued(then, weights, named)) if named else None,
        rules=(lambda then: reruled(then, rules, planned)) if planned else None,
    )


def revalued(then: Weights, other: Weights, named: set[str]) -> Weights:
    """The replica's weights at that time, with the named settings replaced."""
    from dataclasses import fields, replace

    from joulie_extender.catalogue.weights import ScoreSettings
    from joulie_extender.terms.preferences import Preferences

    same = {each.name: getattr(other, each.name) for each in fields(ScoreSettings)}
    own, others = then.preferences, other.preferences
    return replace(
        then,
        **{name: value for name, value in same.items() if name in named},
        coefficients=_renewed(then.coefficients, other.coefficients, named),
        gpu=_renewed(then.gpu, other.gpu, named, "gpu_"),
        preferences=Preferences(
            others.all_pods if "label_scores" in named else own.all_pods,
            others.teams if "teams" in named else own.teams,
        ),
    )


def _renewed(then: N, other: N, named: set[str], prefix: str = "") -> N:

    return then._replace(**{f: getattr(other, f) for f in then._fields if prefix + f in named})


def reruled(then: Rules, other: Rules, named: set[str]) -> Rules:
    """The operator's rules at that time, with the named settings replaced."""
    from joulie_operator.planning.rules import Rules

    fields = {field: field for field in Rules._fields} | {"selector": "node_selector"}
    return then._replace(**{f: getattr(other, f) for f, name in fields.items() if name in named})


def _fields(settings: type) -> dict[str, str]:
    """The name of a setting, or that in a preset -> field."""
    from joulie_bus.runtime.settings import named

    return {field.metadata["name"]: field.name for field in named(settings)}


def as_json(given: Mapping[str, str], found: Comparison) -> dict[str, Any]:
    from joulie_audit.questions.whatif import OPEN_LOOP

    return {
        "set": dict(given),
        "open_loop": OPEN_LOOP,
        "each_nth": found.step,
        "all": found.all._asdict(),
        "by_class": {name: group._asdict() for name, group in found.by_class.items()},
        "by_namespace": {name: group._asdict() for name, group in found.by_namespace.items()},
        "left_out": dict(found.left_out),
        "changes": [
            {
                "entry": shift.entry,
                "pod": shift.pod,
                "before": shift.before.node,
                "after": shift.after.node,
                "score_before": shift.before.score,
                "score_after": shift.after.score,
                "same_scale": shift.same_scale,
                "watts_before": shift.watts_before,
                "watts_after": shift.watts_after,
            }
            for shift in found.changes
        ],
    }


def as_text(given: Mapping[str, str], found: Comparison) -> str:
    from joulie_answers.text.tables import TextWithTables
    from joulie_audit.questions.whatif import OPEN_LOOP

    named = ", ".join(f"{name}={value}" for name, value in given.items())
    left_out = [f"{count} scored pods were left out: {why}." for why, count in _left_out(found)]
    if not found.all.decisions:
        nothing = f"With {named}: no score in this part of the log could be recomputed."
        return "\n".join([nothing, *left_out])
    asked = f"With {named}, of {found.all.decisions} scored pods:"
    changes = [_change(each) for each in found.changes[:SHOWN]]
    if len(found.changes) > SHOWN:
        changes.append(f"  ... and {len(found.changes) - SHOWN} more (-o json has all)")
    return TextWithTables.of(
        [asked, _groups(found), *changes, *_notes(found), *left_out, OPEN_LOOP]
    )


def _left_out(found: Comparison) -> list[tuple[str, int]]:
    return sorted(found.left_out.items())


_NUMBERS = (
    *("pods", "cores", "GPUs", "other winner", "score", "watts then", "now"),
    *("over cap then", "now"),
)


def _groups(found: Comparison) -> TextTable:
    from joulie_answers.text.tables import TextTable

    groups = {
        "all": found.all,
        **{f"class {name}": group for name, group in found.by_class.items()},
        **{f"namespace {name}": group for name, group in found.by_namespace.items()},
    }
    rows = [(name, *_cells(group)) for name, group in groups.items()]
    return TextTable(("", *_NUMBERS), rows, {*_NUMBERS}, indent=2)


def _cells(group: Group) -> tuple[str, ...]:
    return (
        *(str(group.decisions), f"{group.cores:.0f}", f"{group.gpus:.0f}", str(group.changed)),
        "-" if group.score_shift is None else f"{group.score_shift:+.2f}",
        *(f"{group.watts_before:.0f}", f"{group.watts_after:.0f}"),
        *(str(group.over_cap_before), str(group.over_cap_after)),
    )


def _change(shift: ScoreChange) -> str:
    if shift.same_scale:
        before, after = f" {shift.before.score:.1f}", f" {shift.after.score:.1f}"
    else:
        before, after = (_in_watts(each) for each in (shift.watts_before, shift.watts_after))
    return f"  {shift.pod}: {shift.before.node}{before} -> {shift.after.node}{after}"


def _in_watts(watts: float | None) -> str:
    return " (watts unknown)" if watts is None else f" {watts:.0f} W"


def _notes(found: Comparison) -> Iterator[str]:
    if found.step > 1:
        share, count = found.all.changed / found.all.decisions, found.all.decisions
        within = 1.96 * (share * (1 - share) / count) ** 0.5
        yield (
            f"This is a sample: one of each {found.step} scored pods. {share:.1%} of its pods have "
            f"another winner, of all pods {max(share - within, 0):.1%} to "
            f"{min(share + within, 1):.1%} (95 %)."
        )
    yield (
        "Watts are what the pods add to the best nodes and keep on there, by the energy score for "
        "both nodes, without its prices for GPUs that later pods lose."
    )
    if found.all.watts_unknown:
        yield f"{found.all.watts_unknown} pods are not in the watts: a best node had no fresh data."
    if (other := found.all.decisions - len(found.score_deltas)) > 0:
        yield (
            f"The scores of {other} pods are not compared: each value of scoring has a scale of "
            "its own."
        )
