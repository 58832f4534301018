"""Pods with devices count from their answer until the view has them, and not longer."""

import json
from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from bus_kit import NOON, hardware
from extender_kit import post, served
from joulie_bus.events import (
    DeviceAsk,
    DeviceClaim,
    DeviceSeen,
    InFlight,
    PodAsk,
    PrioritizeDecided,
    Ties,
)
from joulie_extender.answering import in_flight as module
from joulie_extender.answering.in_flight import KEPT_NS, NO_ROW, PodsInFlight, asks_devices
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.context import DecisionContext
from joulie_extender.decide.decide import again, answered_scores, decide_filter, decide_prioritize
from joulie_projections.state.cards import DRA, CardState
from joulie_projections.state.state import NodeState, PodState, Sample
from joulie_projections.twin.card_columns import Cards
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.view.view import ViewSnapshot

NODES = ("a", "b", "c")
CARDS, MB = 8, 81_559
ENERGY = Weights(scoring="energy")
SOME = 2  # devices of a pod


def claiming(uid: str = "p", *, devices: int = SOME, of: str = "template/some") -> PodAsk:
    return PodAsk(
        uid=uid,
        namespace="team",
        name=uid,
        cpu_milli=1000,
        gpu_milli=1000 * devices,
        gpu_cards=devices,
        devices=DeviceAsk(claims=(of,), milli=1000 * devices),
    )


def card(node: str, *holders: str) -> CardState:
    claims = tuple(
        DeviceClaim(uid=f"c-{uid}", namespace="team", name=uid, pods=(uid,)) for uid in holders
    )
    seen = DeviceSeen(card="g", node=node, pool=f"gpu.x/{node}", claims=claims)
    return CardState(
        at=NOON, node=node, model="H100", total_mb=MB, healthy=True, source=DRA, device=seen
    )


def view(*pods: PodState, held: Sequence[str] = (), on: str = "a") -> ViewSnapshot:
    """Three equal nodes; one device for each of `held`, on one of them."""
    nodes = {
        name: NodeState(
            ordinal=at,
            at=NOON,
            present=True,
            gpus=CARDS,
            cpu_milli=96_000,
            hardware=hardware(name, cores=96, watts=700, gpus=CARDS),
            samples=(Sample(NOON, 300_000),),
        )
        for at, name in enumerate(NODES)
    }
    columns = TwinColumns.of(nodes, 0)
    cards = {f"{name}-{at}": card(name) for name in NODES for at in range(CARDS)}
    cards |= {f"{on}-{at}": card(on, uid) for at, uid in enumerate(held)}
    columns = columns.with_cards(Cards.of(cards, columns.rows))
    return ViewSnapshot(7, columns, 0, pods={pod.pod.uid: pod for pod in pods})


def scored(pod: PodAsk, table: PodsInFlight, at: ViewSnapshot, among: Sequence[str] = NODES) -> str:
    """The node that the answer made the best."""
    context = DecisionContext(at.twin_columns, 7, 0, NOON, in_flight=table.at(at, NOON))
    decision = decide_prioritize(pod, among, context, ENERGY)
    table.scored(decision)
    assert again(decision, at.twin_columns, ENERGY) == decision
    return among[int(answered_scores(decision).argmax())]


def devices_on(table: PodsInFlight, at: ViewSnapshot, now: int = NOON) -> dict[str, int]:
    return {NODES[each.ordinal]: each.devices for each in table.at(at, now)}


def in_flight_on_a(at: ViewSnapshot) -> PodsInFlight:
    table = PodsInFlight()
    context = DecisionContext(at.twin_columns, 7, 0, NOON)
    table.filtered(decide_filter(claiming(), ["a"], context, ENERGY))
    return table


def test_pods_that_are_asked_for_at_once_fill_one_node_before_the_next() -> None:
    table, empty = PodsInFlight(), view()
    fit = CARDS // SOME

    first = [scored(claiming(f"p{at}"), table, empty) for at in range(fit)]
    left = tuple(name for name in NODES if name != first[0])  # kube-scheduler sends no full node
    then = [scored(claiming(f"q{at}"), table, empty, among=left) for at in range(fit)]

    assert [len(set(found)) for found in (first, then)] == [1, 1]


def test_without_them_each_of_the_same_pods_goes_to_any_node() -> None:
    """What the rule is for: the view alone has three equal nodes."""
    found = {scored(claiming(f"p{at}"), PodsInFlight(), view()) for at in range(8)}

    assert found == set(NODES)


def test_a_load_counts_until_the_pod_is_bound_and_devices_until_they_are_allocated() -> None:
    table = in_flight_on_a(view())
    bound = PodState(pod=claiming(), node="a")
    load = {"gpu_standard_milli": 2000, "cpu_milli": 1000, "warm_cpu_micro": 1_000_000}
    whole = InFlight(0, devices=SOME, **load)

    assert table.at(view(), NOON) == (whole,)
    assert table.at(view(bound), NOON) == (InFlight(0, devices=SOME),)
    assert table.at(view(held=["p"]), NOON) == (InFlight(0, **load),)
    assert table.at(view(bound, held=["p"]), NOON) == ()
    assert len(table) == 0


CONTRADICTIONS = {
    "it is bound elsewhere": view(PodState(pod=claiming(), node="b")),
    "its devices are allocated elsewhere": view(held=["p"], on="b"),
    "it has ended, with its devices": view(
        PodState(pod=claiming(), node="a", finished=True), held=["p"]
    ),
}


@pytest.mark.parametrize("seen", CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_a_pod_counts_no_more_once_the_view_contradicts(seen: ViewSnapshot) -> None:
    table = in_flight_on_a(view())

    assert devices_on(table, seen) == {}
    assert len(table) == 0


def test_a_pod_that_the_view_had_and_has_no_more_is_gone() -> None:
    table = in_flight_on_a(view())

    assert table.known({}) == {}
    assert len(table) == 1  # it was just created
    table.known({"p": PodState(pod=claiming()), "q": PodState(pod=claiming("q"))})
    table.known({})
    assert len(table) == 0


def test_a_pod_counts_for_twenty_seconds_at_most() -> None:
    table = in_flight_on_a(view())

    assert devices_on(table, view(), NOON + KEPT_NS - 1) == {"a": SOME}
    assert devices_on(table, view(), NOON + KEPT_NS) == {}


def test_pods_of_one_claim_count_its_devices_once() -> None:
    table, at = PodsInFlight(), view()
    context = DecisionContext(at.twin_columns, 7, 0, NOON)
    for uid in "pq":
        asked = claiming(uid, of="claim/shared")
        table.filtered(decide_filter(asked, ["a"], context, ENERGY))

    assert devices_on(table, at) == {"a": SOME}


def test_a_binding_says_on_which_node_a_pod_counts() -> None:
    table = in_flight_on_a(view())
    table.bound("p", NODES.index("c"))
    table.bound("unknown", 0)

    assert devices_on(table, view()) == {"c": SOME}


def test_a_pod_that_goes_to_a_node_without_a_row_counts_nowhere() -> None:
    table = in_flight_on_a(view())
    table.bound("p", NO_ROW)

    assert (devices_on(table, view()), len(table)) == ({}, 0)


def test_a_filter_that_leaves_several_nodes_says_nothing() -> None:
    table, at = PodsInFlight(), view()
    context = DecisionContext(at.twin_columns, 7, 0, NOON)
    table.filtered(decide_filter(claiming(), NODES, context, ENERGY))
    table.filtered(decide_filter(claiming(), ["stranger"], context, ENERGY))

    assert len(table) == 0


def test_a_filter_that_leaves_one_node_records_what_is_in_flight_there() -> None:
    """kube-scheduler then requests no scores, whose entry has it otherwise."""
    at = view()
    table = in_flight_on_a(at)
    context = DecisionContext(at.twin_columns, 7, 0, NOON, in_flight=table.at(at, NOON))

    one, several = (decide_filter(claiming("q"), among, context, ENERGY) for among in ("a", NODES))

    assert [each.devices for each in one.in_flight or ()] == [SOME]
    assert again(one, at.twin_columns, ENERGY) == one
    assert again(several, at.twin_columns, ENERGY) == several
    assert several.in_flight is None


def test_the_oldest_gives_way_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_IN_FLIGHT", 2)
    table, at = PodsInFlight(), view()
    for uid in "pqr":
        scored(claiming(uid), table, at)

    assert len(table) == 2


def test_extended_resources_count_where_the_cluster_has_devices_of_dra() -> None:
    asks = replace(claiming(), devices=DeviceAsk())
    with_dra, without = view().twin_columns.cards, Cards.empty()

    assert asks_devices(asks, with_dra)
    assert not asks_devices(asks, without)
    assert asks_devices(claiming(), without)
    assert not asks_devices(PodAsk(uid="p", namespace="team", name="p"), with_dra)


def test_another_attempt_of_a_member_ends_that_of_its_whole_group() -> None:
    """kube-scheduler has rolled all of it back."""
    table, at = PodsInFlight(), view()
    context = DecisionContext(at.twin_columns, 7, 0, NOON)
    for uid, group in (("p", "jobset/one"), ("q", "jobset/one"), ("r", "jobset/two"), ("s", "")):
        member = replace(claiming(uid), ties=Ties(group=group))
        table.filtered(decide_filter(member, ["a"], context, ENERGY))
    table.forget("p")

    assert devices_on(table, at) == {"a": 2 * SOME}
    table.forget("p")
    table.forget("s")
    assert devices_on(table, at) == {"a": SOME}


CLAIMS = {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "some"}]}
IN_GROUP = {"schedulingGroup": {"podGroupName": "train"}}


def request(uid: str, more: Mapping[str, object] = CLAIMS) -> bytes:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    spec = {"containers": containers, **more}
    pod = {"metadata": {"name": uid, "uid": uid, "namespace": "team"}, "spec": spec}
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": list(NODES)}).encode()


@pytest.mark.anyio
async def test_an_answer_counts_in_the_next_one_and_not_in_one_about_the_same_pod() -> None:
    at = view()._replace(gpus_asked=lambda _namespace, _claim: SOME)
    async with served(lambda: at, weights=ENERGY) as extender:
        for uid in ("p", "p", "q"):
            await post(extender.port, "/prioritize", request(uid))

    entries = [each for each in extender.recorded if isinstance(each, PrioritizeDecided)]
    flying = [[node.devices for node in each.in_flight or ()] for each in entries]
    assert flying == [[], [], [SOME]]
    best = [answered_scores(each) for each in entries]
    assert [int((scores == scores.max()).sum()) for scores in best] == [1, 1, 1]
    assert len({int(scores.argmax()) for scores in best}) == 1


@pytest.mark.anyio
async def test_of_equally_good_nodes_a_member_of_a_group_has_one_best_at_each_attempt() -> None:
    """The next member is then asked about with the same names as at the attempt before."""
    async with served(view, weights=ENERGY) as extender:
        for uid in ("p", "q", "p", "q"):
            await post(extender.port, "/prioritize", request(uid, IN_GROUP))

    entries = [each for each in extender.recorded if isinstance(each, PrioritizeDecided)]
    best = [answered_scores(each) for each in entries]
    assert [int((scores == scores.max()).sum()) for scores in best] == [1] * 4
    assert [scores.tolist() for scores in best[:2]] == [scores.tolist() for scores in best[2:]]
    assert [each.in_flight for each in entries] == [()] * 4
