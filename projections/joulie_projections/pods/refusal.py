"""A pod that the extender refused every node of a request."""

from typing import NamedTuple

# The verdict for nodes where the pod would take capacity that is kept free.
REFUSED_FOR_RESERVE = 6


class Refusal(NamedTuple):
    """The newest answer about a pod, if it refused every node."""

    uid: str
    pos: int  # the answer's position in the decision log
    since: int  # nanoseconds; when the extender first filtered nodes for this pod
    candidates: int  # nodes in the request


def refused_nodes(verdicts: bytes) -> int:
    """The number of candidates if all of them were refused because of what they are, otherwise 0.

    The reserve concerns the whole cluster: a node outside of the sample would not help.
    """
    return len(verdicts) if all(verdicts) and REFUSED_FOR_RESERVE not in verdicts else 0
