"""Which candidates a pod may have, as far as energy is concerned. Pure.

Only two kinds of pods are ever refused anything: those that want performance, on nodes that save or
are about to; and those that can run only on eco, on nodes that are draining.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from joulie_bus.events import PodAsk
from joulie_extender.scoring import Bools, Weights, fresh_rows
from joulie_projections.board import Board, Ints
from joulie_projections.twins import NodeClass

Codes = npt.NDArray[np.uint8]


class Verdict(IntEnum):
    """Why a node was refused; the decision log keeps one per candidate."""

    PASSED = 0
    ECO = 1
    DRAINING = 2
    ECO_LABEL = 3  # no class that can be trusted; the label decided


# Fixed sentences without names, numbers or "%": kube-scheduler compares, counts and formats them.
WANTS_PERFORMANCE = "the node is reserved for saving energy and the pod asks for performance"
WANTS_ECO = "the node is draining and the pod runs only on eco nodes"


class Filtered(NamedTuple):
    verdicts: Codes
    reason: str  # the one text for all refused nodes; it depends on the pod alone


def filter_nodes(
    pod: PodAsk, board: Board, rows: Ints, now: int, view_age_ms: int, weights: Weights
) -> Filtered:
    if pod.exempt:
        return Filtered(np.zeros(len(rows), np.uint8), "")
    fresh = fresh_rows(board, now, view_age_ms, weights)[rows]
    if pod.workload == "performance":
        return Filtered(_refuse_saving(board, rows, fresh), WANTS_PERFORMANCE)
    if pod.placement == "eco-only":
        classes = board.columns["node_class"][rows]
        leaving = fresh & (classes == NodeClass.DRAINING)
        return Filtered(
            np.where(leaving, Verdict.DRAINING, Verdict.PASSED).astype(np.uint8), WANTS_ECO
        )
    return Filtered(np.zeros(len(rows), np.uint8), "")


def _refuse_saving(board: Board, rows: Ints, fresh: Bools) -> Codes:
    """The class decides while it is fresh; the label, which outlives us, when it is not."""
    classes = board.columns["node_class"][rows]
    trusted = fresh & (classes != NodeClass.UNKNOWN)
    labelled = board.columns["eco_label"][rows] & ~trusted
    return np.select(
        [
            trusted & (classes == NodeClass.ECO),
            trusted & (classes == NodeClass.DRAINING),
            labelled.astype(np.bool_),
        ],
        [Verdict.ECO, Verdict.DRAINING, Verdict.ECO_LABEL],
        Verdict.PASSED,
    ).astype(np.uint8)
