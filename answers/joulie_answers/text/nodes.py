"""Nodes as a table, and one node with its caps and what plans changed on it."""

from collections.abc import Iterator

from joulie_answers.schema.responses import NodeBrief, NodeCaps, NodeDetail, NodeList
from joulie_answers.text.tables import cell, table
from joulie_bus.core.times import utc_text

_HEAD = ("NODE", "CLASS", "POWER", "PODS", "GPUS", "WATTS", "CAP-W", "HEADROOM", "COOLING")
_KINDS = {"cpu": "CPU", "gpu": "GPU", "cards": "single cards", "clocks": "clocks"}


def nodes_text(found: NodeList) -> str:
    lines = table(_HEAD, [_row(node) for node in found.items])
    if len(found.items) < found.total:
        lines.append(f"{len(found.items)} of {found.total}; --limit")
    return "\n".join(lines)


def node_text(found: NodeDetail) -> str:
    moves = [
        (utc_text(each.at_ms), each.plan, each.kind, each.to, each.because)
        for each in found.transitions
    ]
    lines = [
        f"{found.node.name} at position {found.position} ({utc_text(found.at_ms)})",
        *_twin_lines(found),
    ]
    if moves:
        lines += ["", *table(("AT", "PLAN", "KIND", "TO", "BECAUSE"), moves)]
    return "\n".join(lines)


def _twin_lines(found: NodeDetail) -> Iterator[str]:
    node, caps = found.node, found.caps
    age = f"{(found.at_ms - node.sampled_at_ms) / 1000:.1f} s old"
    watts = "the last reading is" if node.measured_w is None else f"{node.measured_w:.1f} W,"
    measured = f"{watts} {age}" if node.sampled_at_ms else "never"
    yield f"  class      {node.node_class}, {node.power_state}"
    yield f"  measured   {measured}, trend {node.trend_w_per_min:+.1f} W/min"
    yield f"  may draw   {node.capped_w:.0f} W of {node.tdp_w:.0f} W ({_caps(caps)})"
    yield f"  can cap    {_settable(caps, found.at_ms)}"
    if caps.refused:
        yield f"  refused    its last caps: {caps.refused}"
    yield f"  cooling    {node.cooling:.1f}"
    yield f"  headroom   {cell(node.headroom)} ({node.headroom_basis})"
    yield f"  hardware   {node.cores:g} cores, {node.gpus} GPUs ({found.hardware})"
    yield f"  pods       {node.pods}, {node.performance_pods} of class performance"


def _caps(caps: NodeCaps) -> str:
    parts = [f"caps: CPU {_percent(caps.cpu_pct)}, GPU {_percent(caps.gpu_pct)}"]
    if caps.standard_gpu_pct is not None:
        held = f"cards of class standard {caps.standard_gpu_pct} %"
        parts.append(f"{held}: {caps.capped_cards} are capped")
    if caps.clock_mhz is not None:
        parts.append(f"clocks of cards at most {caps.clock_mhz} MHz")
    return ", ".join(parts)


def _settable(caps: NodeCaps, now_ms: int) -> str:
    """What the writer on the node reported last."""
    if not caps.reported_ms:
        return "nothing: no writer has reported (joulie agent --caps)"
    *kinds, last = [_KINDS.get(kind, kind) for kind in caps.settable] or ["nothing"]
    listed = f"{', '.join(kinds)} and {last}" if kinds else last
    silent = ", too long ago to count" if caps.silent else ""
    why = f" ({caps.because})" if caps.because else ""
    return f"{listed}, reported {(now_ms - caps.reported_ms) / 1000:.0f} s before{silent}{why}"


def _percent(cap: int | None) -> str:
    return "none" if cap is None else f"{cap} %"


def _row(node: NodeBrief) -> list[str]:
    places = (node.name, node.node_class, node.power_state, node.pods, node.gpus)
    values = (node.measured_w, node.capped_w, node.headroom, node.cooling)
    return [cell(value) for value in (*places, *values)]
