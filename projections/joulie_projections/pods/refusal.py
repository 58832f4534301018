"""A pod that the extender refused every node of a request."""

from typing import NamedTuple

# Verdicts for which a node outside of the sample would not help: the pod would take capacity that
# is kept free, or asks for too many cores per card.
REFUSED_FOR_RESERVE, REFUSED_FOR_CORES = 6, 7
_OF_THE_POD = {REFUSED_FOR_RESERVE, REFUSED_FOR_CORES}


class Refusal(NamedTuple):
    """The newest answer about a pod, if it refused every node."""

    uid: str
    pos: int  # the answer's position in the decision log
    since: int  # nanoseconds; when the extender first filtered nodes for this pod
    candidates: int  # nodes in the request


def refused_nodes(verdicts: bytes) -> int:
    """The number of candidates if all were refused because of what they are, otherwise 0."""
    return len(verdicts) if all(verdicts) and _OF_THE_POD.isdisjoint(verdicts) else 0
