"""Members of a group of pods come together: near bound ones, or where its name chooses."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from bus_kit import NOON, ask, hardware
from joulie_bus.events import PodAsk, Ties, named_values
from joulie_extender.catalogue.declaration import declaration, weights_of
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.context import DecisionContext
from joulie_extender.decide.decide import again, decide_prioritize
from joulie_projections.state.state import NodeState, Sample
from joulie_projections.twin.columns import TwinColumns

RACKS = ("r0", "r1", "r2")
GANG = "team/jobset/train"
THIRD = round(1 / 3, 9)
WEIGHTS = Weights(gang_levels="rack,zone")


def nodes_of(per_rack: int = 4, members: Mapping[str, int] | None = None) -> dict[str, NodeState]:
    """Equal nodes; `members` tells how many members of the gang run on a node."""
    found = dict[str, NodeState]()
    for ordinal in range(len(RACKS) * per_rack):
        name, rack = f"n{ordinal}", RACKS[ordinal // per_rack]
        gangs = {GANG: members[name]} if members and name in members else {}
        found[name] = NodeState(
            ordinal=ordinal,
            at=NOON,
            hardware=hardware(name),
            labels={"rack": rack, "zone": "z"},
            gangs=gangs,
        )
    return found


def member(uid: str = "p", group: str = "jobset/train") -> PodAsk:
    return replace(ask(uid), ties=Ties(group=group))


def nearness(
    nodes: Mapping[str, NodeState], pod: PodAsk, weights: Weights = WEIGHTS
) -> dict[str, float]:
    """Of the best candidates: 1 for the nearest; and the decision is the same again."""
    context = DecisionContext(TwinColumns.of(nodes, 0), 1, 0, NOON)
    decided = decide_prioritize(pod, list(nodes), context, weights)
    declared = weights_of(declaration(weights))
    assert declared is not None
    assert again(decided, context.twin_columns, declared) == decided
    part = weights.gang_points / 100
    found = dict[str, float]()
    for each in decided.top:
        change = named_values(each).get("gang")
        if change is not None:
            alone = (each.score - change) * (1 - part)
            found[each.node] = round((each.score - alone) / (100 * part), 9)
    return found


def nearest(nodes: Mapping[str, NodeState], pod: PodAsk) -> set[str]:
    """The racks of the best node."""
    found = nearness(nodes, pod)
    return {nodes[name].labels["rack"] for name, near in found.items() if near == 1}


@pytest.mark.parametrize("rack", range(len(RACKS)))
def test_a_member_goes_to_the_rack_where_members_are(rack: int) -> None:
    assert nearest(nodes_of(members={f"n{4 * rack}": 1}), member()) == {RACKS[rack]}


def test_the_node_of_a_member_is_nearer_than_its_rack_and_more_members_count_more() -> None:
    # The mean of the node, the rack and the zone: 3/4, 3/4, 1 against 1/4, 1/4, 1 and 0, 0, 1.
    assert nearness(nodes_of(1, {"n0": 3, "n1": 1}), member()) == {
        "n0": 1,
        "n1": round(1 - (2.5 - 1.5) / 3, 9),
        "n2": round(1 - (2.5 - 1) / 3, 9),
    }


def test_first_members_choose_one_rack_without_knowing_of_each_other() -> None:
    nodes = nodes_of()
    racks = {tuple(nearest(nodes, member(f"p{number}"))) for number in range(8)}

    assert len(racks) == 1
    assert len(racks.pop()) == 1


def test_groups_choose_different_racks() -> None:
    groups = [member(group=f"jobset/train-{number}") for number in range(20)]

    assert {rack for pod in groups for rack in nearest(nodes_of(), pod)} == set(RACKS)


def test_no_first_member_chooses_a_rack_with_little_room() -> None:
    nodes = nodes_of()
    crowded = {name: node for name, node in nodes.items() if name not in ("n0", "n1", "n2")}
    groups = [member(group=f"jobset/train-{number}") for number in range(20)]

    assert {rack for pod in groups for rack in nearest(crowded, pod)} == {"r1", "r2"}


def test_a_node_without_the_label_is_near_nothing() -> None:
    nodes = nodes_of(1, {"n0": 1})
    nodes["n2"] = replace(nodes["n2"], labels={})
    assert nearness(nodes, member()) == {"n0": 1, "n1": THIRD, "n2": 0}


@pytest.mark.parametrize("scoring", ["headroom", "energy"])
def test_both_ways_to_score_have_the_term(scoring: str) -> None:
    weights = Weights(scoring=scoring, gang_levels="rack,zone")
    found = nearness(nodes_of(1, {"n1": 1}), member(), weights)

    assert found == {"n1": 1, "n0": THIRD, "n2": THIRD}


def test_a_pod_in_no_group_is_scored_as_without_the_term() -> None:
    nodes, no_level = nodes_of(1, {"n1": 1}), Weights(gang_levels="none")

    assert nearness(nodes, ask("p")) == {}
    assert nearness(nodes, member(group="jobset/other"), no_level) == {}


def test_without_points_nearness_counts_for_nothing() -> None:
    without = Weights(gang_points=0.0, gang_levels="")

    assert nearness(nodes_of(1, {"n1": 1}), member(), without) == {}


def test_nodes_without_readings_are_told_apart_and_none_of_them_scores_best() -> None:
    nodes = nodes_of(1, {"n1": 1})
    late = DecisionContext(TwinColumns.of(nodes, 0), 1, 0, NOON + 10**15)
    decided = decide_prioritize(member(), list(nodes), late, WEIGHTS)

    assert (decided.top[0].node, decided.top[0].source) == ("n1", "neutral")
    assert [each.score for each in decided.top] == pytest.approx([70, *[70 - 40 * 2 / 3] * 2])
    for at in ("n0", "n2"):
        nodes[at] = replace(nodes[at], at=late.now, samples=(Sample(late.now, 700_000),))
    known = late._replace(twin_columns=TwinColumns.of(nodes, 0))
    scores = {
        each.node: (each.source, each.score)
        for each in decide_prioritize(member(), list(nodes), known, WEIGHTS).top
    }
    assert scores["n1"][0] == "neutral" != scores["n0"][0]
    assert scores["n1"][1] <= scores["n0"][1] < 50


@pytest.mark.parametrize("watts", [0, 100_000])
def test_the_distance_counts_where_all_nodes_have_no_points_or_all_have_many(watts: int) -> None:
    """Headroom alone gives a pod of eight cards on small nodes no point on any node."""
    nodes = nodes_of(1, {"n1": 1})
    heavy = replace(member(), gpu_milli=8000, gpu_cards=8) if watts else member()
    context = DecisionContext(TwinColumns.of(nodes, 0), 1, 0, NOON)
    best, *others = decide_prioritize(heavy, list(nodes), context, WEIGHTS).top

    assert best.node == "n1"
    assert all(best.score - each.score > 20 for each in others)
