"""Nodes as a table, and one node with its caps and what plans changed on it."""

from collections.abc import Iterator

from joulie_answers.schema.responses import NodeBrief, NodeCaps, NodeDetail, NodeList
from joulie_answers.text.tables import TextTable, TextWithTables, cell
from joulie_bus.core.times import utc_text

_HEAD = ("NODE", "CLASS", "STATE", "PODS", "GPUS", "WATTS", "CAP-W", "HEADROOM", "COOLING")
_KINDS = {"cpu": "CPU", "gpu": "GPU", "cards": "single cards", "clocks": "clocks"}


def nodes_text(found: NodeList) -> str:
    lines: list[str | TextTable] = [TextTable(_HEAD, [_row(node) for node in found.items])]
    if len(found.items) < found.total:
        lines.append(f"{len(found.items)} of {found.total}; --limit")
    return TextWithTables.of(lines)


def node_text(found: NodeDetail) -> str:
    moves = [(utc_text(each.at_ms), each.plan, each.text) for each in found.transitions]
    lines: list[str | TextTable] = [
        f"{found.node.name} at position {found.position} ({utc_text(found.at_ms)})",
        *_twin_lines(found),
    ]
    if moves:
        lines += ["", TextTable(("AT", "PLAN", "WHAT"), moves)]
    return TextWithTables.of(lines)


def _twin_lines(found: NodeDetail) -> Iterator[str]:
    node, caps = found.node, found.caps
    age = f"{(found.at_ms - node.sampled_at_ms) / 1000:.1f} s old"
    watts = "the last reading is" if node.measured_w is None else f"{node.measured_w:.1f} W,"
    measured = f"{watts} {age}" if node.sampled_at_ms else "never"
    slope = node.trend_w_per_min
    trend = "not known" if slope is None else f"{slope:+.1f} W/min over at most 5 min"
    yield f"  class      {node.node_class}, {node.state}"
    yield f"  measured   {measured}, trend {trend}"
    yield f"  may draw   {_number(node.capped_w)} W of {_number(node.tdp_w)} W ({_caps(caps)})"
    yield f"  can cap    {_settable(caps, found.at_ms)}"
    if caps.refused:
        yield f"  refused    its last caps: {caps.refused}"
    yield f"  cooling    {cell(node.cooling)}"
    yield f"  headroom   {cell(node.headroom)} ({node.headroom_basis})"
    cores = "-" if node.cores is None else f"{node.cores:g}"
    yield f"  hardware   {cores} cores, {_gpus(node)} ({found.hardware})"
    yield f"  pods       {node.pods}, {node.performance_pods} of class performance"
    if found.awake_because:
        yield f"  awake      {found.awake_because}"


def _gpus(node: NodeBrief) -> str:
    if node.gpu_unit == 1:
        return f"{cell(node.gpus)} GPUs"
    return f"{cell(node.gpus)} units of shared cards, {node.gpu_unit:g} of a card each"


def _number(watts: float | None) -> str:
    return "-" if watts is None else f"{watts:.0f}"


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
    places = (node.name, node.node_class, node.state, node.pods, node.gpus)
    values = (node.measured_w, node.capped_w, node.headroom, node.cooling)
    return [cell(value) for value in (*places, *values)]
