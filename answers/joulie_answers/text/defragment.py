"""A plan of moves that make free GPUs usable, as text."""

from collections.abc import Iterator
from typing import Any

from joulie_extender.defragment.search import Summary


def defragment_text(report: dict[str, Any], most: int) -> str:
    before, after = Summary(**report["before"]), Summary(**report["after"])
    cost, moves = report["cost"], report["moves"]
    lines = [
        f"A plan to make free GPUs usable: {len(moves)} of {report['pods']} pods would move",
        f"  before     {_summary(before)}",
        f"  after      {_summary(after)}",
        f"  value      {before.unusable - after.unusable:.2f} GPUs of use that were of none; "
        f"{before.expected_loss - after.expected_loss:.2f} more that a pod like those that asked "
        f"could use; {after.cards - before.cards:+d} whole cards, "
        f"{after.groups - before.groups:+d} linked groups, {after.nodes - before.nodes:+d} nodes",
        f"  cost       {cost['pods']} pods begin again, with {cost['gpus']:.2f} GPUs and "
        f"{cost['cores']:.1f} cores",
    ]
    if not moves:
        lines[2:] = ["  no move gains a tenth of a GPU for each pod that it moves"]
    lines += list(_moves(moves, most))
    lines += list(_outcomes(moves))
    lines += [
        f"  stay       {each['pods']}: {each['because']} ({_named(each)})"
        for each in _stays(report)
    ]
    return "\n".join([*lines, *(f"  note       {note}." for note in report["notes"])])


def _summary(found: Summary) -> str:
    return (
        f"{found.free:.2f} GPUs free, {found.unusable:.2f} of no use to any pod like those that "
        f"asked; of use: {found.cards} whole cards, {found.groups} whole linked groups, "
        f"{found.nodes} nodes without any pod on their cards"
    )


def _moves(moves: list[dict[str, Any]], most: int) -> Iterator[str]:
    for number, move in enumerate(moves[:most], 1):
        yield (
            f"  {number:>3}. {move['pod']} from {move['node']}, would fit on {move['would_fit']} "
            f"(+{move['gains']:.2f} GPUs): {move['because']}"
        )
    if len(moves) > most:
        yield f"       and {len(moves) - most} more: --limit {len(moves)}"


def _outcomes(moves: list[dict[str, Any]]) -> Iterator[str]:
    """Of a plan that was carried out; nothing otherwise."""
    tried = [move for move in moves if "outcome" in move]
    if not tried:
        return
    moved = [move for move in tried if move["outcome"]["what"] == "moved"]
    planned = sum(move["outcome"]["node"] == move["would_fit"] for move in moved)
    yield f"  carried out {len(moved)} of {len(tried)} moves, {planned} to the planned node"
    yield from (f"       {outcome_text(move)}" for move in tried)


def outcome_text(move: dict[str, Any]) -> str:
    """What became of one move."""
    outcome = move["outcome"]
    if outcome["what"] != "moved":
        return f"{move['pod']} from {move['node']}: {outcome['what']}: {outcome['why']}"
    node = outcome["node"]
    return f"{move['pod']} from {move['node']}: moved to {node}{_instead(move, node)}"


def _instead(move: dict[str, Any], node: str) -> str:
    if node == move["would_fit"]:
        return ", as planned"
    return ": its node again" if node == move["node"] else f" instead of {move['would_fit']}"


def _stays(report: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = report["stays"]
    return found


def _named(each: dict[str, Any]) -> str:
    more = ", ..." if each["pods"] > len(each["examples"]) else ""
    return f"{', '.join(each['examples'])}{more}"
