"""The plan of moves over the state: which pods stay and why, and what becomes usable."""

import pytest
from msgspec.structs import replace

from bus_kit import NOON, hardware
from gpu_kit import MB, a_card, a_claim, wanting
from joulie_bus.events import GpuAsk, PodAsk, Ties
from joulie_extender.defragment.movable_pods import Judged, movable
from joulie_extender.defragment.plan import DefragmentationPlan, defragmentation_plan
from joulie_extender.defragment.search import Budget
from joulie_extender.gpu.unusable import free_gpus
from joulie_projections.pods.load import Load, load_of
from joulie_projections.state.cards import CardState
from joulie_projections.state.state import ClusterState, NodeState, PodState
from joulie_projections.twin.columns import TwinColumns

GIB = 2**30


def a_node(ordinal: int, *, load: Load = Load(), gpus: int = 4) -> NodeState:  # noqa: B008
    return NodeState(
        ordinal=ordinal,
        at=NOON,
        present=True,
        ready=True,
        schedulable=True,
        cpu_milli=95_000,
        memory_bytes=500 * GIB,
        gpus=gpus,
        hardware=hardware(f"n{ordinal}", cores=96, gpus=gpus),
        load=load,
    )


def moving(uid: str = "p", *, cores: int = 94, share_milli: int = 0) -> PodAsk:
    """A pod that takes nearly all cores of its node."""
    pod = wanting(uid, cards=0, share_milli=share_milli)
    return replace(
        pod, cpu_milli=cores * 1000, memory_bytes=GIB, ties=Ties(replaced_by="ReplicaSet")
    )


def cluster(pod: PodAsk, **cards: CardState) -> ClusterState:
    """n0 has cards and the pod, n1 has nothing."""
    state = ClusterState()
    state.nodes = {"n0": a_node(0, load=load_of(pod)), "n1": a_node(1, gpus=0)}
    state.pods = {pod.uid: PodState(pod=pod, node="n0", bound_at=NOON)}
    state.gpus = cards or {f"g{at}": a_card("n0", model="H100") for at in range(4)}
    return state


def planned(state: ClusterState, judged: Judged = Judged()) -> DefragmentationPlan:  # noqa: B008
    return defragmentation_plan(state, (), 10, judged)


def test_a_pod_that_strands_cards_is_moved_with_the_reason_and_the_place() -> None:
    plan = planned(cluster(moving()))
    [move] = plan.moves

    assert (move.pod, move.node, move.would_fit) == ("team/p", "n0", "n1")
    assert move.because == (
        "n0 4.00 free, 4.00 of no use, 0 whole before, 4.00 free, 0.00 of no use, 4 whole after; "
        "n1 0.00 free, 0.00 of no use, 0 whole before, 0.00 free, 0.00 of no use, 0 whole after"
    )
    assert (plan.before.unusable, plan.after.unusable, plan.after.nodes) == (4, 0, 1)
    assert (plan.cores, plan.gpus) == (94, 0)


def test_what_is_of_no_use_is_what_the_metric_counts() -> None:
    state = cluster(moving())
    of_metric = free_gpus(TwinColumns.of_state(state), ())["H100"]
    before = planned(state).before

    assert (before.free, before.unusable) == (of_metric.free, of_metric.unusable)


def test_cards_in_units_are_neither_free_nor_a_place_and_their_pods_stay() -> None:
    state = cluster(moving())
    state.nodes["n0"] = replace(state.nodes["n0"], gpu_units=16)
    onto_shared = cluster(moving())
    onto_shared.nodes["n1"] = replace(a_node(1), gpu_units=16)
    onto_shared.gpus |= {f"s{at}": a_card("n1", model="L4") for at in range(4)}

    plan, other = planned(state), planned(onto_shared)

    assert (plan.moves, plan.before.free, other.moves) == ([], 0, [])
    assert [stays.because for stays in plan.stays] == [
        "pods request units of the cards of its node"
    ]
    assert "L4" not in free_gpus(TwinColumns.of_state(onto_shared), ()), "unknown is not 0"
    assert (other.before.free, other.before.unusable) == (4, 4)


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        pytest.param(replace(moving(), ties=Ties()), "no controller", id="bare"),
        pytest.param(replace(moving(), workload="performance"), "of class performance", id="class"),
        pytest.param(replace(moving(), exempt="daemonset"), "stays with its node", id="daemon"),
        pytest.param(replace(moving(), placement="eco-only"), "one profile only", id="profile"),
        pytest.param(replace(moving(), gpu=GpuAsk(topology="nvlink")), "linked", id="linked"),
        pytest.param(moving(share_milli=250), "cards that it holds are not known", id="cards"),
    ],
)
def test_a_pod_that_may_not_move_stays_with_the_reason(pod: PodAsk, why: str) -> None:
    plan = planned(cluster(pod))

    assert plan.moves == []
    [stays] = plan.stays
    assert why in stays.because
    assert (stays.pods, stays.examples) == (1, ("team/p",))


def test_the_api_server_adds_reasons_and_budgets() -> None:
    state = cluster(moving())

    assert planned(state, Judged(stays={"p": "it has data"})).stays[0].because == "it has data"
    assert not planned(state, Judged(budgets=[Budget("team/b", 0, frozenset("p"))])).moves
    assert planned(state, Judged(budgets=[Budget("team/b", 1, frozenset("p"))])).moves


@pytest.mark.parametrize(
    "closed",
    [
        {"ready": False},
        {"schedulable": False},
        {"power_state": "asleep"},
        {"draining": True},
        {"closed_at": NOON},
        {"memory_bytes": 0},
        {"cpu_milli": 0},
        {"present": False},
    ],
)
def test_nothing_moves_to_a_node_that_takes_no_pods_or_is_unknown(
    closed: dict[str, object],
) -> None:
    state = cluster(moving())
    state.nodes["n1"] = replace(state.nodes["n1"], **closed)

    assert planned(state).moves == []


def test_the_cards_of_a_pod_are_those_of_its_claims() -> None:
    pod = moving(cores=4, share_milli=500)
    claim = replace(a_claim(MB // 2, confirmed=True), name="p")
    state = cluster(pod, a=a_card("n0"), b=a_card("n0", claims={"p": claim}))
    [occupant] = movable(state, ()).occupants
    fleet = movable(state, ()).fleet

    assert [state.gpus["b"].claims["p"].mb * 1000 // MB] == [occupant.need.shares[0]]
    assert fleet.rest[occupant.row, occupant.cards[0]] == 500
    assert fleet.whole[occupant.row].tolist() == [1000, 1000]
    _, rest = fleet.without([occupant])
    assert rest.tolist() == [[1000, 1000]]


def test_a_card_with_a_stranger_on_it_keeps_its_pods() -> None:
    pod = moving(cores=4, share_milli=500)
    claim = replace(a_claim(MB // 2, confirmed=True), name="p")
    state = cluster(pod, b=a_card("n0", owner="stranger", claims={"p": claim}))

    assert planned(state).stays[0].because == "a pod without a claim is on its card"


def test_an_empty_cluster_has_an_empty_plan() -> None:
    plan = planned(ClusterState())

    assert (plan.pods, list(plan.moves), plan.before.free) == (0, [], 0)
