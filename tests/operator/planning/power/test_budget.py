"""A power target is divided by racks and nodes, and counts only on limits that are set."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from bus_kit import NOON, SECOND, ask, hardware
from joulie_bus.events import CapOrder, CapsSet
from joulie_bus.runtime.settings import Source
from joulie_operator.planning.cap_orders import cap_orders
from joulie_operator.planning.caps import Caps, caps_for, current_caps
from joulie_operator.planning.power.budget import PowerShare, shares_in
from joulie_operator.planning.reconcile import Plan, PlanBasis, plan
from joulie_operator.planning.rules import Rules, rules_of
from joulie_operator.plugins import load_policy
from joulie_operator.settings import OperatorSettings
from joulie_projections.fold.registry import evolve
from joulie_projections.pods.load import Load
from joulie_projections.state.cards import CardState
from joulie_projections.state.state import (
    ClusterState,
    NodeState,
    PodState,
    Sample,
    SettableCaps,
)
from joulie_projections.state.state_changes import Draft
from random_clusters import CASES, cluster

CONSENT = {"joulie.io/caps": "enforce"}
BOTH = SettableCaps(NOON - SECOND, ("cpu", "gpu"))
EACH = replace(BOTH, kinds=("cpu", "gpu", "cards"))
PERFORMS = Rules(static_hp_frac=1)
ECO = Rules(static_hp_frac=0, cpu_eco_pct=100, gpu_eco_pct=100, eco_without_caps=True)


def node(ordinal: int, watts: float = 1000, **fields: object) -> NodeState:
    """Busy, 1,000 W at most, with consent and a writer."""
    made = NodeState(
        ordinal=ordinal,
        at=NOON,
        present=True,
        ready=True,
        schedulable=True,
        labels={"joulie.io/managed": "true"} | CONSENT,
        hardware=hardware(f"n{ordinal}", cores=10, watts=1000),
        cpu_milli=10_000,
        profile="eco",
        cpu_cap_pct=100,
        pods=1,
        load=Load(10_000, 10_000_000, 0, 0),
        samples=(Sample(NOON - SECOND, round(watts * 1000)),),
        settable=BOTH,
    )
    return replace(made, **fields)


def state_of(*nodes: NodeState) -> ClusterState:
    state = ClusterState()
    state.nodes.update({f"n{each.ordinal}": each for each in nodes})
    return state


def planned(state: ClusterState, watts: float, rules: Rules = ECO, numbers: str = "") -> Plan:
    rules = rules._replace(policy_numbers=f"power_target_w={watts}{numbers}")
    return plan(state, load_policy(rules.policy), rules, PlanBasis(7, NOON))


def caps_of(made: Plan) -> dict[str, int | None]:
    return {event.node: event.cpu_cap_pct for event in made.events if isinstance(event, CapsSet)}


def in_rack(rack: str, of: NodeState) -> NodeState:
    return replace(of, labels={**of.labels, "joulie.io/rack": rack})


def test_each_rack_gets_what_its_nodes_are_expected_to_draw() -> None:
    state = state_of(in_rack("a", node(0)), in_rack("a", node(1)), in_rack("b", node(2)), node(3))

    made = planned(state, 3000)

    shares = {share.rack: share for share in shares_in(made.made.inputs)}
    assert {rack: share.nodes for rack, share in shares.items()} == {"a": 2, "b": 1, "": 1}
    assert all(share.capped == share.nodes for share in shares.values())
    given = sum(share.share_w for share in shares.values())
    assert 0.97 * 3000 < given <= 0.985 * 3000
    assert 0.9 < shares["a"].share_w / (2 * shares["b"].share_w) < 1.1


def test_a_target_of_a_rack_lowers_the_caps_of_its_nodes_alone() -> None:
    state = state_of(*(in_rack(rack, node(at)) for at, rack in enumerate("aabb")))
    rules = ECO._replace(policy_numbers="power_target_w.rack:a=1400")

    made = plan(state, load_policy(rules.policy), rules, PlanBasis(7, NOON))

    assert caps_of(made).keys() == {"n0", "n1"}
    assert made.made.inputs["target_w_rack:a"] == 1400
    assert 0.96 * 1400 < made.made.inputs["expected_w_rack:a"] <= 1400
    assert "rack a may draw 1.400 kW" in made.made.because
    assert sum(share.share_w for share in shares_in(made.made.inputs)) <= 1400


def test_the_targets_of_a_rack_and_of_all_hold_at_once() -> None:
    """Each node has the lower of both levels."""
    state = state_of(*(in_rack(rack, node(at)) for at, rack in enumerate("aabb")))
    numbers = ",power_target_w.rack:a=1000"

    both, alone = planned(state, 3200, numbers=numbers), planned(state, 3200)

    caps, without = caps_of(both), caps_of(alone)
    assert (caps["n2"], caps["n3"]) == (without["n2"], without["n3"])
    assert sum(10 * (caps[name] or 100) for name in ("n0", "n1")) <= 1000


def test_caps_that_one_target_keeps_are_not_raised_for_another_one() -> None:
    """The feed is as it should be; the rack needs less of one of its nodes than that."""
    settled = {"cpu_cap_pct": 80, "caps_at": NOON - 60 * SECOND}
    state = state_of(in_rack("a", node(0, 800, **settled)), node(1, 800, **settled))

    made = planned(state, 1610, numbers=",power_target_w.rack:a=700")

    assert 67 <= (caps_of(made)["n0"] or 100) <= 69
    assert "n1" not in caps_of(made)
    raised = planned(state, 1610, numbers=",power_target_w.rack:a=900")
    assert caps_of(raised) == {}


def test_racks_beyond_the_list_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joulie_operator.planning.power.budget.MOST_RACKS", 1)
    state = state_of(*(in_rack(rack, node(at)) for at, rack in enumerate("abc")))

    first, others = shares_in(planned(state, 2500).made.inputs)

    assert (first.rack, others.rack, others.nodes, others.drawn_w) == ("a", "others", 2, 2000)


def test_the_plan_does_not_count_on_a_node_whose_writer_is_silent() -> None:
    """The other one has to save what both would."""
    silent = replace(BOTH, at=NOON - 181 * SECOND)
    both = caps_of(planned(state_of(node(0), node(1)), 1600))
    one = caps_of(planned(state_of(node(0), node(1, settable=silent)), 1600))

    assert one["n0"] is not None
    assert both["n0"] is not None
    assert one["n0"] < both["n0"] - 15


@pytest.mark.parametrize("settable", [SettableCaps(), replace(BOTH, kinds=("gpu",))])
def test_a_node_that_opted_in_counts_by_the_report_of_its_writer(settable: SettableCaps) -> None:
    made = planned(state_of(node(0), node(1, settable=settable)), 1600)

    assert made.made.inputs["out_of_reach_w"] == 1000
    assert sum(share.capped for share in shares_in(made.made.inputs)) == 1


@pytest.mark.parametrize("assumed", [True, False])
def test_a_node_without_consent_counts_only_if_caps_are_assumed(assumed: bool) -> None:
    bare = node(1, labels={"joulie.io/managed": "true"}, settable=SettableCaps())
    rules = ECO._replace(eco_without_caps=assumed, cpu_eco_pct=95)
    made = planned(state_of(node(0), bare), 1600, rules)

    assert sum(share.capped for share in shares_in(made.made.inputs)) == 1 + assumed


def test_a_node_whose_readings_have_stopped_counts_with_what_its_caps_allow() -> None:
    """It was read at 400 W and may draw 1,000 W by now."""
    old = (Sample(NOON - 121 * SECOND, 400_000),)
    fresh = planned(state_of(node(0), node(1, watts=400)), 1450)
    stopped = planned(state_of(node(0), node(1, samples=old)), 1450)

    assert fresh.made.inputs["drawn_w"] == 1400
    assert stopped.made.inputs["drawn_w"] == 2000
    assert caps_of(stopped).keys() == {"n0", "n1"}


def test_readings_that_all_stop_lower_the_caps_to_the_safe_level() -> None:
    """So that the target holds whatever the nodes draw."""
    old = (Sample(NOON - 121 * SECOND, 400_000),)
    made = planned(state_of(*(node(at, samples=old) for at in range(10))), 6000)

    level = made.made.inputs["eco_cap_permille"]
    assert level == made.made.inputs["safe_cap_permille"]
    assert sum(cap * 10 for cap in caps_of(made).values() if cap) <= 6000


def test_no_more_is_expected_of_cards_than_the_lowest_cap_that_they_accept() -> None:
    """500 of 700 W: the plan tells what is left, and does not wait for a cap that no card takes."""
    found = replace(hardware("n0", cores=10, watts=100, gpus=8), gpu_min_mw=500_000)
    cards = node(0, watts=5700, hardware=found, gpus=8, load=Load(10_000, 10_000_000, 8000, 0))

    made = planned(state_of(cards), 3000)

    assert made.made.inputs["eco_cap_permille"] == 300
    assert made.made.inputs["expected_w"] >= 4000
    assert "caps cannot meet the target" in made.made.because


def test_an_empty_node_without_readings_counts_as_idle() -> None:
    old = (Sample(NOON - 121 * SECOND, 1_000_000),)
    empty = node(1, samples=old, pods=0, load=Load(0, 0, 0, 0))

    assert planned(state_of(node(0), empty), 900).made.inputs["drawn_w"] == 1500


def test_a_target_that_caps_cannot_meet_is_told_with_what_remains() -> None:
    """A node for class performance keeps its limits."""
    performs = node(1, profile="performance", performance_pods=1)
    made = planned(state_of(node(0), performs), 1100)

    assert "n1" not in caps_of(made)
    assert made.made.inputs["performance_w"] == 1000
    assert "caps cannot meet the target of the cluster: 0.4" in made.made.because
    assert "nodes for class performance draw 1.000 kW and keep their limits" in made.made.because


def test_no_cap_is_below_the_floor_of_the_settings() -> None:
    for floor, lowest in (("", 30), (",power_floor_pct=55", 55)):
        made = planned(state_of(*(node(at) for at in range(20))), 100, numbers=floor)
        assert min(cap for cap in caps_of(made).values() if cap) == lowest


@pytest.mark.parametrize("floor", ["0", "101", "-5"])
def test_a_floor_that_is_no_percentage_is_refused(floor: str) -> None:
    settings = Source.of(POLICY_NUMBERS=f"power_floor_pct={floor}").load(OperatorSettings)

    [wrong] = settings.contradictions()

    assert f"power_floor_pct={floor} is not a percentage from 1 to 100" in wrong


def cluster_and_plan(number: int) -> tuple[ClusterState, Plan]:
    """A random cluster, and its plan."""
    made = cluster(number)
    return made.state, plan(made.state, made.policy, made.rules, made.basis)


def shares_by_feed(made: Plan) -> Mapping[str, list[PowerShare]]:
    found = dict[str, list[PowerShare]]()
    for share in shares_in(made.made.inputs):
        found.setdefault(share.feed, []).append(share)
    return found


@pytest.mark.parametrize("first", range(0, CASES, 100))
def test_a_node_that_never_opted_in_is_never_touched(first: int) -> None:
    """And no node with pods of class performance gets a lower cap for a target."""
    for number in range(first, first + 100):
        state, made = cluster_and_plan(number)
        draft = Draft(state)
        for event in made.events:
            evolve(draft, event, NOON)
        draft.commit()
        for order in cap_orders(state, 7, NOON):
            assert state.nodes[order.node].labels.get("joulie.io/caps") == "enforce"


@pytest.mark.parametrize("first", range(0, CASES, 100))
def test_no_target_lowers_the_caps_of_a_node_on_which_performance_pods_run(first: int) -> None:
    for number in range(first, first + 100):
        made = cluster(number)
        rules = made.rules._replace(drain_deadline_s=0.0)
        found = plan(made.state, made.policy, rules, made.basis)
        for event in found.events:
            if isinstance(event, CapsSet) and made.state.nodes[event.node].performance_pods:
                node = made.state.nodes[event.node]
                allowed = (caps_for("performance", node, rules), current_caps(node))
                caps = (event.cpu_cap_pct, event.gpu_cap_pct)
                assert caps in {(each.cpu_pct, each.gpu_pct) for each in allowed}


@pytest.mark.parametrize("first", range(0, CASES, 500))
def test_no_order_caps_a_card_of_a_performance_pod(first: int) -> None:
    """Nor one whose pods are not known, on a node with such pods; whatever the plans
    before, and while plans stand still."""
    spared = capped = 0
    for number in range(first, first + 500):
        state, made = cluster_and_plan(number)
        draft = Draft(state)
        for event in (made.made, *made.events):
            evolve(draft, event, NOON)
        draft.commit()
        for order in cap_orders(state, 7, NOON):
            assert order.clock_pct is None  # no setting asks for it
            own = caps_for("performance", state.nodes[order.node], rules_of(made.made.settings))
            for uuid, card in cards_of(state, order.node):
                cap = order.card_mw.get(uuid, order.gpu_mw)
                if may_perform(state, card):
                    assert cap is None or cap >= lowest_mw(state.nodes[order.node], own)
                    spared += 1
                capped += cap is not None
    assert spared > 10
    assert capped > 10


def cards_of(state: ClusterState, node: str) -> list[tuple[str, CardState]]:
    return [(uuid, card) for uuid, card in state.gpus.items() if card.node == node]


def may_perform(state: ClusterState, card: CardState) -> bool:
    """By the words of the law, not by those of the plan."""
    if not state.nodes[card.node].performance_pods:
        return False
    uids = {card.owner, *card.claims} - {""}
    uids |= {uid for claim in (card.device.claims if card.device else ()) for uid in claim.pods}
    pods = [state.pods.get(uid) for uid in uids]
    return any(pod is None or (not pod.finished and is_performance(pod)) for pod in pods)


def is_performance(pod: PodState) -> bool:
    return pod.pod.workload == "performance"


def lowest_mw(node: NodeState, caps: Caps) -> int:
    """The cap of class performance."""
    if caps.gpu_mw is not None:
        return caps.gpu_mw
    assert node.hardware is not None
    return node.hardware.gpu_max_mw * (caps.gpu_pct or 100) // 100


def performing(**fields: object) -> ClusterState:
    """A node with a card of each class, a free one, and one that an unknown pod holds."""
    found = replace(hardware("n0", cores=10, watts=1000, gpus=4), gpu_min_mw=200_000)
    made = node(
        0, 3000, profile="performance", performance_pods=1, hardware=found, gpus=4, gpu_cap_pct=100
    )
    state = state_of(replace(made, settable=EACH, load=Load(10_000, 10_000_000, 1000, 1000)))
    state.nodes["n0"] = replace(state.nodes["n0"], **fields)
    for uid, performs in (("s", False), ("p", True)):
        pod = ask(uid, performance=performs, cores=5, gpus=1)
        state.pods[uid] = PodState(pod=pod, node="n0", bound_at=NOON)
    for at, owner in enumerate(("s", "p", "", "x")):
        state.gpus[f"g{at}"] = CardState(at=NOON, node="n0", healthy=True, owner=owner)
    return state


def folded(state: ClusterState, made: Plan) -> CapOrder:
    draft = Draft(state)
    for event in (made.made, *made.events):
        evolve(draft, event, NOON)
    draft.commit()
    [order] = cap_orders(state, 8, NOON)
    return order


def test_a_target_caps_the_cards_of_class_standard_beside_those_of_performance() -> None:
    state = performing()

    order = folded(state, planned(state, 2700, PERFORMS))

    assert order.gpu_mw is None
    assert order.cpu_mw_per_socket is None
    assert list(order.card_mw) == ["g0"]
    assert 200_000 <= (order.card_mw["g0"] or 0) < 600_000


def test_a_card_is_spared_as_soon_as_a_performance_pod_gets_it() -> None:
    """Without another plan."""
    state = performing()
    planned_before = folded(state, planned(state, 2700, PERFORMS))
    state.gpus["g0"] = replace(state.gpus["g0"], owner="p")

    [order] = cap_orders(state, 9, NOON)

    assert "g0" in planned_before.card_mw
    assert order.card_mw == {}


def test_no_cap_of_a_card_is_below_the_floor_nor_below_what_the_card_accepts() -> None:
    state = performing()
    assert folded(state, planned(state, 100, PERFORMS, numbers=",power_floor_pct=50")).card_mw == {
        "g0": 350_000
    }
    state = performing()
    assert folded(state, planned(state, 100, PERFORMS, numbers=",power_floor_pct=5")).card_mw == {
        "g0": 200_000
    }


@pytest.mark.parametrize(
    "fields",
    [{"labels": {"joulie.io/managed": "true"}}, {"settable": BOTH}],
    ids=["no consent", "a writer of an older version"],
)
def test_no_card_is_capped_by_itself_without_consent_and_a_writer(
    fields: dict[str, object],
) -> None:
    made = planned(performing(**fields), 2700, PERFORMS)

    assert all(event.TYPE != "plan.caps-set" for event in made.events)
    assert made.made.inputs["performance_w"] == 3000


def test_cards_are_given_back_when_the_target_ends() -> None:
    state = performing()
    folded(state, planned(state, 2700, PERFORMS))

    order = folded(state, plan(state, load_policy(PERFORMS.policy), PERFORMS, PlanBasis(9, NOON)))

    assert state.nodes["n0"].standard_gpu_cap_pct is None
    assert order.card_mw == {}


@pytest.mark.parametrize("first", range(0, CASES, 100))
def test_the_shares_of_racks_add_up_to_the_feed(first: int) -> None:
    found = 0
    for number in range(first, first + 100):
        _, made = cluster_and_plan(number)
        for feed, shares in shares_by_feed(made).items():
            suffix = f"_{feed}" if feed else ""
            inputs = made.made.inputs
            drawn = sum(share.drawn_w for share in shares)
            assert drawn == pytest.approx(inputs[f"drawn_w{suffix}"])
            given = sum(share.share_w for share in shares)
            assert given == pytest.approx(inputs[f"expected_w{suffix}"])
            found += 1
    assert found > 5
