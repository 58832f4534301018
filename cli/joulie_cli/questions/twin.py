"""`joulie twin`: the state of a node's twin, now or at an earlier position of the log."""

import argparse
import asyncio
import time
from typing import Any

import msgspec

from joulie_audit.questions.explain import similar_names
from joulie_audit.questions.time_travel import (
    NodeChange,
    TwinAt,
    cluster_state_at,
    node_changes,
    twin_at,
)
from joulie_bus.errors import NotInTheLog
from joulie_cli.display.output import show
from joulie_cli.display.time_arguments import position_at, shown
from joulie_cli.log_access.past import ArchivePlace, archive_of, facts_of, require_facts
from joulie_cli.wiring import Wiring
from joulie_operator.planning.power.consent import SIGN_OF_LIFE_S
from joulie_projections.history.history import History
from joulie_projections.state.rows import cluster_state_of
from joulie_projections.state.state import NodeState, SettableCaps

SETTINGS = (ArchivePlace,)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    twin, steps = asyncio.run(_look(args, wires))
    show(args, as_json(twin, steps), as_text(twin, steps))
    return 0


async def _look(args: argparse.Namespace, wires: Wiring) -> tuple[TwinAt, list[NodeChange]]:
    async with facts_of(wires, archive_of(args, wires)) as (history, facts):
        newest = require_facts(history)
        position = newest
        if args.at is not None:
            position = position_at(args.at, history, newest, time.time_ns())
        if position == newest:
            cluster_state = cluster_state_of(history.states("node", "facility"))
        else:
            cluster_state = await cluster_state_at(history, facts, position)
        found = twin_at(cluster_state, args.node, position, history.committed_at(position) or 0)
        if found is None:
            raise NotInTheLog(_unknown(args.node, list(cluster_state.nodes), position, history))
        steps = await node_changes(history, facts, args.node, position) if args.history else []
        return found, steps


def _unknown(node: str, names: list[str], position: int, history: History) -> str:
    at = f"at position {position} ({shown(history.committed_at(position) or 0)})"
    if not names:
        return f"There was no node {at}."
    return f"No node {node!r} was known {at}. Known were {similar_names(node, names)}."


def as_json(found: TwinAt, steps: list[NodeChange]) -> dict[str, Any]:
    twin = {name: _plain(getattr(found.twin, name)) for name in found.twin.__struct_fields__}
    return {
        "node": found.node,
        "position": found.position,
        "committed_at": found.committed_at,
        "twin": twin,
        "state": msgspec.to_builtins(found.state),
        "history": [step._asdict() for step in steps],
    }


def _plain(value: Any) -> Any:
    return value.name.lower() if hasattr(value, "name") else value


def as_text(found: TwinAt, steps: list[NodeChange]) -> str:
    twin, state = found.twin, found.state
    age = (found.committed_at - twin.sampled_at) / 1e9
    measured = f"{twin.measured_w:.1f} W, {age:.1f} s old" if twin.sampled_at else "never"
    refused = f"  refused    its last caps: {state.refused_caps}"
    lines = [
        f"{found.node} at position {found.position} ({shown(found.committed_at)})",
        f"  class      {twin.node_class.name.lower()}",
        f"  measured   {measured}, trend {twin.trend_w_per_min:+.1f} W/min",
        f"  may draw   {twin.capped_w:.0f} W of {twin.tdp_w:.0f} W "
        f"(caps: CPU {_percent(state.cpu_cap_pct)}, GPU {_percent(state.gpu_cap_pct)}"
        f"{_of_single_cards(state)}{_of_clocks(state)})",
        f"  can cap    {_settable(state.settable, found.committed_at)}",
        *([refused] if state.refused_caps else []),
        f"  cooling    {twin.cooling:.1f}",
        f"  headroom   {twin.headroom:.1f}, from caps and cooling alone",
        f"  hardware   {twin.cores:g} cores, {twin.gpus:g} GPUs ({twin.hardware.name.lower()})",
        f"  pods       {state.pods}, {state.performance_pods} of class performance",
    ]
    for step in steps:
        lines.append(f"  {step.position:>9}  {shown(step.at)}  {step.what}  ({step.because})")
    return "\n".join(lines)


_KINDS = {"cpu": "CPU", "gpu": "GPU", "cards": "single cards", "clocks": "clocks"}


def _settable(settable: SettableCaps, now: int) -> str:
    """What the writer on the node reported last. The reasons are one a line."""
    if not settable.at:
        return "nothing: no writer has reported (joulie agent --caps)"
    *kinds, last = [_KINDS.get(kind, kind) for kind in settable.kinds] or ["nothing"]
    listed = f"{', '.join(kinds)} and {last}" if kinds else last
    age_s = (now - settable.at) / 1e9
    silent = f", too long ago to count (over {SIGN_OF_LIFE_S:g} s)"
    why = "; ".join(settable.because.splitlines())
    return (
        f"{listed}, reported {age_s:.0f} s before{silent if age_s > SIGN_OF_LIFE_S else ''}"
        f"{f' ({why})' if why else ''}"
    )


def _of_clocks(state: NodeState) -> str:
    locked = state.applied_clock_mhz
    return "" if locked is None else f", clocks of cards at most {locked} MHz"


def _of_single_cards(state: NodeState) -> str:
    if state.standard_gpu_cap_pct is None:
        return ""
    held = f"cards of class standard {state.standard_gpu_cap_pct} %"
    return f", {held}: {len(state.applied_card_mw)} are capped"


def _percent(cap: int | None) -> str:
    return "none" if cap is None else f"{cap} %"
