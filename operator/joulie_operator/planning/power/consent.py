"""Whose limits may be set: nodes that opted in, and of these what their writers can set.

A node opts in by a label. Its pods of class performance never do: plans cap no card and no
processor that one of them uses.
"""

from joulie_projections.state.state import NodeState

CLOCKS = "joulie.io/clocks"  # of nodes with `OPT_IN`: whether clocks may be locked as well
OPT_IN = "joulie.io/caps"  # the label of nodes on which caps may be set: "enforce"
SIGN_OF_LIFE_S = 180.0  # three reports of a writer
CPU, GPU = "cpu", "gpu"
CARDS = "cards"  # each card by itself
KINDS = frozenset((CPU, GPU))
_NOTHING = frozenset[str]()
_SECOND = 1_000_000_000


def is_opted_in(node: NodeState) -> bool:
    return node.labels.get(OPT_IN) == "enforce"


def kinds_set(node: NodeState, now: int) -> frozenset[str]:
    """The kinds of limits that are set on this node when they are ordered: it opted in, and its
    writer reported them a short while ago."""
    is_fresh = now - node.settable.at <= SIGN_OF_LIFE_S * _SECOND
    return frozenset(node.settable.kinds) if is_fresh and is_opted_in(node) else _NOTHING


def kinds_expected(node: NodeState, now: int, *, assumed: bool) -> frozenset[str]:
    """The kinds of limits that a plan may count on. Where Joulie has no writer, another program may
    carry out what the NodeTwin says: with `assumed`, all kinds count there."""
    if node.settable.at or is_opted_in(node):
        return kinds_set(node, now)
    return KINDS if assumed else _NOTHING
