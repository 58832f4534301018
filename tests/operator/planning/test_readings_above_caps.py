"""Power targets and nodes that draw more than their caps allow."""

from bus_kit import NOON, SECOND, hardware
from joulie_operator.planning.caps import Caps
from joulie_operator.planning.power_target import PowerLimits, power_limits
from joulie_operator.planning.rules import Rules
from joulie_projections.state.state import ClusterState, NodeState, Sample

CAP = 80  # percent of 100 W


def limits_of(drawn_mw: int) -> PowerLimits:
    """A target of 70 W for a node with a cap of 80 W."""
    state, rules = ClusterState(), Rules(policy_numbers="power_target_w=70")
    state.nodes["n"] = NodeState(
        ordinal=0,
        at=NOON,
        present=True,
        hardware=hardware("n", cores=10, watts=100),
        profile="eco",
        cpu_cap_pct=CAP,
        caps_at=NOON - 60 * SECOND,
        samples=(Sample(NOON, drawn_mw),),
    )
    return power_limits(state, rules, NOON, lambda: {"n": Caps(cpu_pct=CAP)}, tuple)


def test_a_tenth_above_its_cap_is_what_a_node_draws_beside_it() -> None:
    """Such as its fans: a lower cap lowers both, so that 62 % and a tenth meet the target."""
    assert limits_of(88_000).percent == {"n": 62}


def test_more_than_a_tenth_above_its_cap_is_what_a_node_draws_whatever_its_cap() -> None:
    """No cap meets the target: the lowest one is ordered, and the rest has to come from others."""
    found = limits_of(88_100)

    assert found.percent == {"n": 30}
    assert found.headroom_mw == {"": 70_000 - 88_100}
