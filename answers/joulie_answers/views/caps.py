"""The caps of a node as API values: those of plans, and what its writer can set."""

from joulie_answers.schema.responses import NodeCaps
from joulie_bus.core.times import MS
from joulie_operator.planning.power.consent import SIGN_OF_LIFE_S
from joulie_projections.state.state import NodeState


def caps_of(node: NodeState, now: int) -> NodeCaps:
    reported = node.settable
    return NodeCaps(
        cpu_pct=node.cpu_cap_pct,
        gpu_pct=node.gpu_cap_pct,
        standard_gpu_pct=node.standard_gpu_cap_pct,
        capped_cards=len(node.applied_card_mw),
        clock_mhz=node.applied_clock_mhz,
        settable=list(reported.kinds),
        because="; ".join(reported.because.splitlines()),
        reported_ms=reported.at // MS,
        silent=bool(reported.at) and now - reported.at > SIGN_OF_LIFE_S * 1e9,
        refused=node.refused_caps,
    )
