"""Only nodes that opted in get an order; a cap in per cent is one of the hardware's maximum."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bus_kit import NOON, SECOND, caps, hardware, node_seen, records
from joulie_bus.events import (
    CapOrder,
    DeviceClaim,
    DeviceSeen,
    Fact,
    PlanMade,
    PodAsk,
    Profile,
    SafeCard,
)
from joulie_bus.events.pods import WorkloadClass
from joulie_operator.planning.cap_orders import cap_orders
from joulie_operator.planning.power_target import NEVER
from joulie_operator.planning.rules import Rules, values_of
from joulie_projections.fold.sequence import fold
from joulie_projections.state.cards import CardState
from joulie_projections.state.state import (
    CLUSTER,
    ClusterRow,
    ClusterState,
    NodeState,
    PodState,
    SettableCaps,
    Target,
)
from joulie_projections.state.state_changes import Draft


def orders(*facts: Fact) -> list[CapOrder]:
    draft = Draft(state := ClusterState())
    fold(draft, records(*facts), 0)
    draft.commit()
    return list(cap_orders(state, 7, NOON))


def test_a_node_that_never_opted_in_gets_no_order() -> None:
    assert orders(node_seen("n1"), hardware("n1", gpus=2), caps("n1", 60, 60)) == []


def test_another_value_of_the_label_is_no_consent() -> None:
    seen = node_seen("n1", gpus=2, caps="true")
    assert orders(seen, hardware("n1", gpus=2), caps("n1", 60, 60)) == []


def test_a_cap_in_per_cent_becomes_watts_of_the_hardware() -> None:
    (order,) = orders(
        node_seen("n1", caps="enforce"), hardware("n1", watts=700, gpus=2), caps("n1", 60, 50)
    )
    assert (order.cpu_mw_per_socket, order.gpu_mw, order.view) == (420_000, 350_000, 7)


def test_without_a_cap_the_order_has_none() -> None:
    for facts in ((), (caps("n1", 100, 100),)):
        (order,) = orders(node_seen("n1", caps="enforce"), hardware("n1", gpus=2), *facts)
        assert (order.cpu_mw_per_socket, order.gpu_mw) == (None, None)


def test_a_cap_of_unknown_hardware_is_not_ordered() -> None:
    (order,) = orders(node_seen("n1", caps="enforce"), caps("n1", 60, 60))
    assert (order.cpu_mw_per_socket, order.gpu_mw) == (None, None)


def test_a_node_that_is_gone_gets_no_order() -> None:
    draft = Draft(state := ClusterState())
    fold(draft, records(node_seen("n1", caps="enforce")), 0)
    draft.commit()
    state.nodes["n1"] = replace(state.nodes["n1"], present=False)
    assert list(cap_orders(state, 7, NOON)) == []


HOUR = 3600 * SECOND


def under_target(
    *, at: int = NOON, ends_at: int = NOON + HOUR, safe: int = 450, profile: Profile = "eco"
) -> ClusterState:
    """An eco node of 700 W with a cap of 80 %, planned under a target."""
    state = ClusterState()
    state.nodes["n1"] = NodeState(
        ordinal=0,
        at=NOON,
        present=True,
        labels={"joulie.io/caps": "enforce", "joulie.io/feed": "a"},
        hardware=hardware("n1", watts=700, gpus=2),
        profile=profile,
        cpu_cap_pct=80,
        gpu_cap_pct=80,
    )
    made = PlanMade(
        plan="p1",
        policy="static_partition",
        view=7,
        nodes=1,
        performance=0,
        changes=0,
        inputs={"safe_cap_permille_a": safe},
        settings=values_of(Rules()),
        now=NOON,
    )
    target = Target(1_000_000, NOON - HOUR, ends_at, "a")
    state.cluster[CLUSTER] = ClusterRow(planned_at=at, plan=made, targets={"t": target})
    return state


def order_of(state: ClusterState, now: int = NOON) -> CapOrder:
    (order,) = cap_orders(state, 7, now)
    return order


def test_an_order_under_a_target_has_the_safe_caps_until_the_target_ends() -> None:
    order = order_of(under_target())
    assert (order.cpu_mw_per_socket, order.gpu_mw) == (560_000, 560_000)
    assert order.safe_cpu_mw_per_socket == order.safe_gpu_mw == 700_000 * 45 // 100
    assert order.safe_s == 3600


def test_a_target_without_an_end_leaves_its_safe_caps_for_a_day() -> None:
    assert order_of(under_target(ends_at=NEVER)).safe_s == 86_400


def test_a_safe_cap_is_never_above_that_of_the_plan() -> None:
    order = order_of(under_target(safe=990))
    assert order.safe_cpu_mw_per_socket == order.cpu_mw_per_socket


def test_no_safe_cap_is_left_without_a_target_in_force() -> None:
    order = order_of(under_target(ends_at=NOON))
    assert (order.safe_cpu_mw_per_socket, order.safe_gpu_mw, order.safe_s) == (None, None, 0)
    assert order.cpu_mw_per_socket == 560_000


def performing(state: ClusterState, **fields: object) -> ClusterState:
    state.nodes["n1"] = replace(state.nodes["n1"], **fields)
    return state


def test_a_node_that_performance_pods_use_has_no_safe_cap() -> None:
    for state in (
        under_target(profile="performance"),
        performing(under_target(), performance_pods=1),
        performing(under_target(), draining=True),
    ):
        assert (order_of(state).safe_cpu_mw_per_socket, order_of(state).safe_s) == (None, 0)


def test_a_plan_that_only_shows_leaves_no_safe_cap() -> None:
    state = under_target()
    row = state.cluster[CLUSTER]
    assert row.plan is not None
    state.cluster[CLUSTER] = replace(row, plan=replace(row.plan, dry_run=True))
    assert order_of(state).safe_s == 0


def test_the_safe_caps_are_ordered_once_plans_have_stopped() -> None:
    """An interval and a minute after the last one: the operator still has a view, and no plan."""
    state = under_target()
    stops = NOON + (60 + 60) * SECOND
    assert order_of(state, stops).cpu_mw_per_socket == 560_000
    late = order_of(state, stops + 1)
    assert late.cpu_mw_per_socket == late.safe_cpu_mw_per_socket == 315_000


def test_caps_without_a_target_stay_as_they_are_when_plans_stop() -> None:
    state = under_target(ends_at=NOON)
    assert order_of(state, NOON + HOUR).cpu_mw_per_socket == 560_000


def eco_with_clocks(**fields: object) -> ClusterState:
    """An eco node that agreed to locked clocks, planned with 70 % of the highest clock."""
    state = under_target()
    rules = Rules(gpu_eco_clock_pct=70)
    made = replace(state.plan, settings=values_of(rules)) if state.plan else None
    state.cluster[CLUSTER] = replace(state.cluster[CLUSTER], plan=made)
    labels = {"joulie.io/caps": "enforce", "joulie.io/clocks": "enforce"}
    state.nodes["n1"] = replace(state.nodes["n1"], **{"labels": labels, **fields})
    return state


def clock_of(state: ClusterState) -> int | None:
    (order,) = cap_orders(state, 7, NOON)
    return order.clock_pct


def test_the_cards_of_an_eco_node_that_agreed_are_locked() -> None:
    assert clock_of(eco_with_clocks()) == 70


def test_consent_to_caps_is_no_consent_to_locked_clocks() -> None:
    labels = {"joulie.io/caps": "enforce"}
    assert clock_of(eco_with_clocks(labels=labels)) is None
    only = eco_with_clocks(labels={"joulie.io/clocks": "enforce"})
    assert list(cap_orders(only, 7, NOON)) == []


def test_no_clock_is_locked_where_pods_of_class_performance_may_run() -> None:
    assert clock_of(eco_with_clocks(performance_pods=1)) is None
    assert clock_of(eco_with_clocks(profile="performance")) is None
    assert clock_of(eco_with_clocks(draining=True)) is None
    assert clock_of(eco_with_clocks(class_at=NOON - SECOND)) is None  # pods are in flight


def test_a_dry_run_locks_no_clock() -> None:
    state = eco_with_clocks()
    assert state.plan is not None
    made = replace(state.plan, dry_run=True)
    state.cluster[CLUSTER] = replace(state.cluster[CLUSTER], plan=made)
    assert clock_of(state) is None


def mixed(
    *,
    pods: Mapping[str, WorkloadClass] | None = None,
    plan_pct: int | None = 60,
    **fields: object,
) -> ClusterState:
    """A node of class performance under a target, and a card for each of these pods."""
    state = under_target(profile="performance")
    assert state.plan is not None
    made = replace(state.plan, settings=values_of(Rules()))
    state.cluster[CLUSTER] = replace(state.cluster[CLUSTER], plan=made)
    usual: dict[str, WorkloadClass] = {"s": "standard", "p": "performance"}
    classes = usual if pods is None else pods
    for name, workload in classes.items():
        ask = PodAsk(uid=name, namespace="team", name=name, workload=workload)
        state.pods[name] = PodState(pod=ask, node="n1")
        state.gpus[f"GPU-{name}"] = CardState(at=NOON, node="n1", owner=name)
    performing = sum(workload == "performance" for workload in classes.values())
    settable = SettableCaps(NOON, ("cards", "cpu", "gpu"))
    given = {
        "settable": settable,
        "performance_pods": performing,
        "gpu_cap_pct": 100,
        "cpu_cap_pct": 100,
        "standard_gpu_cap_pct": plan_pct,
    }
    state.nodes["n1"] = replace(state.nodes["n1"], **{**given, **fields})
    return state


def test_cards_of_class_standard_have_safe_caps_that_name_their_pods() -> None:
    order = order_of(mixed())
    assert order.card_mw == {"GPU-s": 420_000}
    assert order.safe_cards == {"GPU-s": SafeCard(mw=315_000, pods=("team/s",))}
    assert (order.safe_gpu_mw, order.safe_s) == (None, 3600)


def test_a_card_without_a_cap_has_the_safe_one_too() -> None:
    """It may draw more by then."""
    assert order_of(mixed(plan_pct=None)).safe_cards["GPU-s"].mw == 315_000


def test_a_safe_cap_of_a_card_is_not_above_the_plans_nor_below_the_lowest() -> None:
    assert order_of(mixed(plan_pct=40)).safe_cards["GPU-s"].mw == 280_000
    hard = replace(hardware("n1", watts=700, gpus=2), gpu_min_mw=350_000)
    assert order_of(mixed(hardware=hard)).safe_cards["GPU-s"].mw == 350_000


PLACE = "gpu.nvidia.com/n1"
CONSENT = {"joulie.io/caps": "enforce", "joulie.io/feed": "a"}


def given_out(
    classes: Mapping[str, WorkloadClass],
    *,
    device: str = "gpu-0",
    labels: Mapping[str, str] = CONSENT,
) -> ClusterState:
    """A node with one card that DRA gave out to a ResourceClaim of these pods."""
    state = mixed(pods=classes, labels=labels)
    claim = DeviceClaim(uid="c", namespace="team", name="c", pods=tuple(sorted(classes)))
    seen = DeviceSeen(card="GPU-d", node="n1", pool=PLACE, device=device, claims=(claim,))
    state.gpus.clear()
    state.gpus["GPU-d"] = CardState(at=NOON, node="n1", device=seen)
    return state


@given(
    st.dictionaries(
        st.sampled_from("abc"), st.sampled_from(["standard", "performance"]), min_size=1
    ),
    st.booleans(),
    st.booleans(),
)
def test_a_card_of_dra_has_a_cap_only_if_all_pods_of_its_claim_are_known_and_standard(
    classes: dict[str, WorkloadClass], is_known: bool, has_consent: bool
) -> None:
    """A pod that is not known yet may be of class performance, and so may a claim without pods."""
    state = given_out(classes, labels=CONSENT if has_consent else {"joulie.io/feed": "a"})
    if not is_known:
        del state.pods[min(classes)]
    found = list(cap_orders(state, 7, NOON))
    assert bool(found) == has_consent
    is_standard = is_known and set(classes.values()) == {"standard"}
    for order in found:
        names = tuple(f"team/{name}" for name in sorted(classes))
        card = SafeCard(mw=315_000, pods=names, device=f"{PLACE}/gpu-0")
        assert order.safe_cards == ({"GPU-d": card} if is_standard else {})
        assert order.card_mw == ({"GPU-d": 420_000} if is_standard else {})


def test_a_claim_that_no_pod_is_reserved_for_spares_its_card() -> None:
    state = given_out({"s": "standard"})
    card = state.gpus["GPU-d"]
    assert card.device is not None
    nobody = tuple(replace(claim, pods=()) for claim in card.device.claims)
    state.gpus["GPU-d"] = replace(card, device=replace(card.device, claims=nobody))
    assert not order_of(state).safe_cards
    assert not order_of(state).card_mw


def test_a_card_in_parts_is_not_named_as_a_device() -> None:
    order = order_of(given_out({"s": "standard"}, device=""))
    assert order.safe_cards["GPU-d"].device == ""


def test_no_single_card_has_a_safe_cap_where_a_plan_caps_none() -> None:
    """Without a report that single cards can be set, or a target, or consent."""
    assert not order_of(mixed(settable=SettableCaps(NOON, ("cpu", "gpu")))).safe_cards
    assert not order_of(mixed(labels={"joulie.io/caps": "enforce"})).safe_cards
    assert not list(cap_orders(mixed(labels={"joulie.io/feed": "a"}), 7, NOON))
    assert not order_of(mixed(), NOON + HOUR).safe_cards


def test_single_cards_have_their_safe_caps_once_plans_have_stopped() -> None:
    stopped = order_of(mixed(), NOON + 121 * SECOND)
    assert stopped.card_mw == {"GPU-s": 315_000}


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["standard", "performance"])),
    st.sampled_from([None, 30, 60, 100]),
    st.integers(300, 1000),
    st.sampled_from([0, 121]),
)
def test_a_safe_cap_is_of_a_card_that_pods_of_class_standard_alone_have(
    pods: dict[str, WorkloadClass], plan_pct: int | None, level: int, late_s: int
) -> None:
    state = mixed(pods=pods, plan_pct=plan_pct)
    assert state.plan is not None
    made = replace(state.plan, inputs={"safe_cap_permille_a": level})
    state.cluster[CLUSTER] = replace(state.cluster[CLUSTER], plan=made)
    free = CardState(at=NOON, node="n1")
    state.gpus |= {"GPU-free": free, "GPU-unknown": replace(free, holder="?")}

    order = order_of(state, NOON + late_s * SECOND)

    standard = {f"GPU-{name}" for name, of in pods.items() if of == "standard"}
    assert order.safe_cards.keys() <= standard
    assert order.card_mw.keys() <= standard
    assert order.safe_gpu_mw is None
    for uuid, card in order.safe_cards.items():
        assert card.mw <= (order.card_mw.get(uuid) or 700_000)
