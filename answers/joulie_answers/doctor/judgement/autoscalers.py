"""cluster-autoscaler beside nodes that sleep: to it they are nodes that broke.

It stops when more nodes are not ready than two of its flags allow, and removes a node of its groups
that has not been ready for long.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from joulie_answers.doctor.judgement.findings import Finding, Unseen, not_seen, ok, warn

NAME = "cluster-autoscaler"
HALTS, REMOVES = f"{NAME} stops", f"{NAME} removes nodes"
PROTECTED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
COMPARE = "If it runs, compare its flags with docs/sleeping-nodes.md."
# Its defaults.
PERCENT, COUNT, LOST_AFTER = "45", "3", "20m"


class Autoscaler(NamedTuple):
    name: str
    flags: Mapping[str, str]


class Sleepers(NamedTuple):
    """The nodes of a cluster in which a policy lets nodes sleep."""

    nodes: int
    most: int  # that may sleep at once
    unprotected: Sequence[str]  # names of those without the annotation that keeps them


class BesideSleepers(NamedTuple):
    autoscalers: Sequence[Autoscaler]
    nodes: Sleepers = Sleepers(0, 0, ())


def flags_in(words: Sequence[str]) -> dict[str, str]:
    """Of a command, or of a command line in one word; a flag without a value is true."""
    parts, found, name = " ".join(words).split(), dict[str, str](), ""
    for part in parts:
        if part.startswith("-"):
            name, is_given, value = part.lstrip("-").partition("=")
            found[name] = value.strip("\"'") if is_given else "true"
            name = "" if is_given else name
        elif name:
            found[name], name = part.strip("\"'"), ""
    return found


def judged(seen: BesideSleepers | Unseen | None) -> list[Finding]:
    """None: no node sleeps."""
    if seen is None:
        return []
    if isinstance(seen, Unseen):
        return [not_seen(NAME, seen, COMPARE)]
    if not seen.autoscalers:
        return [ok(NAME, "no Deployment of it")]
    nodes = seen.nodes
    found = ((_halts(each, nodes), _removes(each, nodes)) for each in seen.autoscalers)
    return [finding for both in found for finding in both]


def _halts(seen: Autoscaler, nodes: Sleepers) -> Finding:
    """It stops if both limits are exceeded."""
    given = seen.flags.get("max-total-unready-percentage", PERCENT)
    allowed = seen.flags.get("ok-total-unready-count", COUNT)
    try:
        percent, count = float(given), int(allowed)
    except ValueError:
        unknown = Unseen(f"{seen.name} gets {given!r} and {allowed!r} from elsewhere")
        return not_seen(HALTS, unknown, COMPARE)
    shown = f"{seen.name}: above {percent:g} % and {count} nodes that are not ready"
    shown = f"{shown}; {nodes.most} of {nodes.nodes} may sleep"
    if nodes.most <= max(count, percent / 100 * nodes.nodes):
        return ok(HALTS, shown)
    advice = f"Set --ok-total-unready-count={nodes.most + count}, unless it removes what sleeps."
    return warn(HALTS, shown, advice)


def _removes(seen: Autoscaler, nodes: Sleepers) -> Finding:
    switches = ("scale-down-enabled", "scale-down-unready-enabled")
    if any(seen.flags.get(name, "true").lower() in ("false", "f", "0") for name in switches):
        return ok(REMOVES, f"{seen.name}: none that is not ready")
    if not nodes.unprotected:
        return ok(REMOVES, f"{seen.name}: none, all that may sleep have {PROTECTED}")
    after = seen.flags.get("scale-down-unready-time", LOST_AFTER)
    shown = f"{seen.name}: of its groups, those not ready for {after}"
    shown = f"{shown}; {len(nodes.unprotected)} that may sleep lack {PROTECTED}, such as"
    advice = (
        f'Annotate nodes of its groups that a BMC or a program switches: {PROTECTED}: "true"; '
        "or set --scale-down-unready-enabled=false."
    )
    return warn(REMOVES, f"{shown} {nodes.unprotected[0]}", advice)
