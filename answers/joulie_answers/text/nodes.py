"""Nodes as a table, and one node with what plans changed on it."""

from joulie_answers.schema.responses import NodeBrief, NodeDetail, NodeList
from joulie_answers.text.tables import cell, table
from joulie_answers.text.times import shown

_HEAD = ("NODE", "CLASS", "POWER", "PODS", "GPUS", "WATTS", "CAP-W", "HEADROOM", "COOLING")


def nodes_text(found: NodeList) -> str:
    lines = table(_HEAD, [_row(node) for node in found.items])
    if len(found.items) < found.total:
        lines.append(f"{len(found.items)} of {found.total}; --limit")
    return "\n".join(lines)


def node_text(found: NodeDetail) -> str:
    moves = [
        (shown(each.at_ms), each.plan, each.kind, each.to, each.because)
        for each in found.transitions
    ]
    lines = table(_HEAD, [_row(found.node)])
    if moves:
        lines += ["", *table(("AT", "PLAN", "KIND", "TO", "BECAUSE"), moves)]
    return "\n".join(lines)


def _row(node: NodeBrief) -> list[str]:
    places = (node.name, node.node_class, node.power_state, node.pods, node.gpus)
    values = (node.measured_w, node.capped_w, node.headroom, node.cooling)
    return [cell(value) for value in (*places, *values)]
