"""Which candidates a pod may have, as far as energy is concerned. Pure.

Only two kinds of pods are ever refused anything: those that want performance, on nodes that save or
are about to; and those that can run only on eco, on nodes that are draining.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from joulie_bus.events import PodAsk
from joulie_extender.moment import Moment
from joulie_extender.standing import Bools, Weights, standing_of
from joulie_projections.board import Ints
from joulie_projections.twins import NodeClass

Codes = npt.NDArray[np.uint8]


class Verdict(IntEnum):
    """Why a node was refused; the decision log keeps one per candidate."""

    PASSED = 0
    ECO = 1
    DRAINING = 2
    ECO_LABEL = 3  # no class that can be trusted; the label decided
    STALE = 4  # no class that can be trusted, and the settings say that this is not enough


# Fixed sentences without names, numbers or "%": kube-scheduler compares, counts and formats them.
WANTS_PERFORMANCE = "the node is reserved for saving energy and the pod asks for performance"
WANTS_FRESH = "the node is not known to be free for a pod that asks for performance"
WANTS_ECO = "the node is draining and the pod runs only on eco nodes"


class Filtered(NamedTuple):
    verdicts: Codes
    reason: str  # the one text for all refused nodes; it depends on the pod alone


class Look(NamedTuple):
    """What the rules look at, candidate by candidate."""

    classes: Codes
    fresh: Bools  # is the class one that somebody has kept up to date?
    known: Bools  # is there a twin at all?
    labelled: Bools  # does the label say eco?


def filter_nodes(
    pod: PodAsk, moment: Moment, rows: Ints, weights: Weights, eco_labels: bytes = b""
) -> Filtered:
    """`eco_labels` are those of the nodes that were sent; else the label is the one we know."""
    if not can_refuse(pod):
        return Filtered(np.zeros(len(rows), np.uint8), "")
    board = moment.board
    fresh = standing_of(board, moment.now, moment.view_age_ms, weights).fresh[rows]
    labels = board.columns["eco_label"][rows]
    look = Look(
        board.columns["node_class"][rows],
        fresh if weights.filter_stale != "twin" else np.ones(len(rows), np.bool_),
        rows > 0,
        np.frombuffer(eco_labels, np.bool_) if eco_labels else labels,
    )
    if pod.workload == "performance":
        reason = WANTS_FRESH if weights.filter_stale == "closed" else WANTS_PERFORMANCE
        return Filtered(_refuse_saving(look, weights), reason)
    return Filtered(_refuse_draining(look, weights), WANTS_ECO)


def can_refuse(pod: PodAsk) -> bool:
    """Is there any node at all that this pod might be refused?"""
    return not pod.exempt and (pod.workload == "performance" or pod.placement == "eco-only")


def _refuse_saving(look: Look, weights: Weights) -> Codes:
    """The class decides while it is fresh; the label, which outlives us, when it is not."""
    trusted = look.fresh & (look.classes != NodeClass.UNKNOWN)
    return np.select(
        [
            trusted & (look.classes == NodeClass.ECO),
            trusted & (look.classes == NodeClass.DRAINING),
            look.labelled & ~trusted,
            _is_stale(look, weights),
        ],
        [Verdict.ECO, Verdict.DRAINING, Verdict.ECO_LABEL, Verdict.STALE],
        Verdict.PASSED,
    ).astype(np.uint8)


def _refuse_draining(look: Look, weights: Weights) -> Codes:
    leaving = look.fresh & (look.classes == NodeClass.DRAINING)
    return np.select(
        [leaving, _is_stale(look, weights)], [Verdict.DRAINING, Verdict.STALE], Verdict.PASSED
    ).astype(np.uint8)


def _is_stale(look: Look, weights: Weights) -> Bools:
    """A twin that was once known and is too old, where the settings want it refused."""
    if weights.filter_stale != "closed":
        return np.zeros(len(look.known), np.bool_)
    return look.known & ~look.fresh
