"""A pod that the extender refused every node of a request. A value without code."""

from typing import NamedTuple


class Refusal(NamedTuple):
    """The newest answer about a pod, if it refused every node."""

    uid: str
    pos: int  # the answer's position in the decision log
    since: int  # nanoseconds; when the extender first filtered nodes for this pod
    candidates: int  # nodes in the request
