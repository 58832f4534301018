"""Facts from the objects of DRA: cards, their holders, and what claims ask for."""

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulie_bus.errors import BadQuantity
from joulie_bus.events import (
    DeviceClaim,
    DeviceSeen,
    HardwareDiscovered,
    NodeSeen,
    PodAsk,
    PodBound,
)
from joulie_bus.events.bounds import MOST_CARD_MB, MOST_CARDS, MOST_GPU_MILLI
from joulie_operator.facts.device_claims import share_of
from joulie_operator.facts.devices import CardKind, CardsOnNode, DeviceObjects, logged_devices
from joulie_operator.facts.facts_from_objects import (
    ChangeFilter,
    Node,
    NodeFilter,
    NodeKind,
    PodFilter,
    PodKind,
)
from joulie_operator.facts.hardware_inventory import hardware_filters
from joulie_operator.resources.device_objects import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from joulie_projections.catalog_file import shipped_catalog
from joulie_projections.fold.registry import evolve
from joulie_projections.pods.kubernetes_pod import Pod
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from kube_devices import (
    DRIVER,
    MODEL,
    OF_TEMPLATE,
    claim,
    claiming,
    device,
    device_class,
    eight,
    resource_slice,
    taint_rule,
    template,
)

Tree = dict[str, Any]
H100_MB = 81_559
Put = Callable[[DeviceObjects], None]


def put_slice(tree: Tree) -> Put:
    return lambda objects: objects.put_slice(msgspec.convert(tree, ResourceSlice))


def put_claim(tree: Tree) -> Put:
    return lambda objects: objects.put_claim(msgspec.convert(tree, ResourceClaim))


def put_template(tree: Tree) -> Put:
    return lambda objects: objects.put_template(msgspec.convert(tree, ResourceClaimTemplate))


def put_class(tree: Tree) -> Put:
    return lambda objects: objects.put_class(msgspec.convert(tree, DeviceClass))


def objects_of(*puts: Put) -> DeviceObjects:
    objects = DeviceObjects()
    for put in puts:
        put(objects)
    return objects


def allocated(tree: Tree, *devices: str, node: str = "a", pods: Sequence[str] = ("p",)) -> Tree:
    """The claim with these devices of the pool of a node, reserved for these pods."""
    results = [{"request": "gpus", "driver": DRIVER, "pool": node, "device": d} for d in devices]
    reserved = [{"resource": "pods", "name": uid, "uid": uid} for uid in pods]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    named = tree["metadata"] | {"uid": f"uid-{tree['metadata']['name']}"}
    return tree | {"metadata": named, "status": status}


def of_template(tree: Tree) -> Tree:
    return tree | {"metadata": tree["metadata"] | {"annotations": {OF_TEMPLATE: "gpus"}}}


def pod(name: str, source: str, *, made: str = "", node: str = "") -> Pod:
    tree = claiming(name, source)
    tree["metadata"] |= {"uid": name}
    tree["spec"] |= {"nodeName": node} if node else {}
    if made:
        statuses = [{"name": "gpus", "resourceClaimName": made}]
        tree["status"] = {"phase": "Running", "resourceClaimStatuses": statuses}
    return msgspec.convert(tree, Pod)


def ask(objects: DeviceObjects, seen: Pod) -> PodAsk:
    fact = PodKind(devices=objects).fact(seen)
    assert isinstance(fact, PodBound)
    return fact.pod


class Facts(NamedTuple):
    cards: dict[str, DeviceSeen | None]
    nodes: list[CardsOnNode | None]
    asked: dict[tuple[str, str], int | None]


def facts(objects: DeviceObjects) -> Facts:
    cards = {name: objects.card(name) for name in sorted(objects.cards())}
    asked = {named: objects.asked(named) for named in sorted(objects.all_asked())}
    return Facts(cards, [objects.on_node(node) for node in ("a", "b")], asked)


def test_a_device_is_a_card_of_its_node_under_its_uuid() -> None:
    objects = objects_of(put_slice(resource_slice("a", eight("a"))))

    assert len(objects.cards()) == 8
    assert objects.card("GPU-a-3") == DeviceSeen(
        card="GPU-a-3", node="a", pool=f"{DRIVER}/a", model=MODEL, total_mb=H100_MB
    )
    assert objects.on_node("a") == CardsOnNode(MODEL, 8)


def test_a_device_without_a_uuid_is_named_by_driver_pool_and_device() -> None:
    objects = objects_of(put_slice(resource_slice("a", [device("gpu-0")])))

    assert objects.cards() == {f"{DRIVER}/a/gpu-0"}


def test_the_same_device_is_read_of_v1beta1() -> None:
    [tree] = [device("gpu-0", uuid="GPU-1")]
    basic = {"name": tree.pop("name"), "basic": tree}

    objects = objects_of(put_slice(resource_slice("a", [basic])))

    [seen] = [objects.card(name) for name in objects.cards()]
    assert seen is not None
    assert (seen.card, seen.model, seen.total_mb) == ("GPU-1", MODEL, H100_MB)


def test_devices_of_other_drivers_are_no_cards() -> None:
    nics = resource_slice("a", [device("nic-0")], driver="dra.net")

    assert objects_of(put_slice(nics)).cards() == set()


def test_a_generation_counts_only_once_all_its_slices_are_there() -> None:
    one, two = eight("a")[:1], eight("a")[1:3]
    objects = objects_of(put_slice(resource_slice("a", one)))

    put_slice(resource_slice("a", two, generation=2, of=2))(objects)
    before = objects.cards()
    put_slice(resource_slice("a", [], generation=2, number=1, of=2))(objects)

    assert before == {"GPU-a-0"}
    assert objects.cards() == {"GPU-a-1", "GPU-a-2"}


def test_a_pool_is_gone_with_its_last_slice() -> None:
    seen = resource_slice("a", eight("a"))
    objects = objects_of(put_slice(seen))

    objects.drop_slice(seen["metadata"]["name"])

    assert objects.cards() == set()
    assert objects.on_node("a") == CardsOnNode("", 0)


def put_rule(tree: Tree) -> Put:
    return lambda objects: objects.put_taint_rule(msgspec.convert(tree, DeviceTaintRule))


def taints(objects: DeviceObjects) -> list[str]:
    seen = [objects.card(name) for name in sorted(objects.cards())]
    return [each.taint for each in seen if each is not None]


RULES = {
    "all": ({}, ["fan", "fan"]),
    "its driver, pool and name": ({"driver": DRIVER, "pool": "a", "device": "gpu-1"}, ["", "fan"]),
    "another pool": ({"pool": "b"}, ["", ""]),
    "another driver": ({"driver": "gpu.example.com"}, ["", ""]),
    "a class, which is not evaluated": ({"deviceClassName": "x"}, ["", ""]),
    "an expression, which is not evaluated": ({"selectors": [{"cel": {}}]}, ["", ""]),
}


@pytest.mark.parametrize("rule_first", [True, False])
@pytest.mark.parametrize(("selector", "found"), RULES.values(), ids=RULES.keys())
def test_a_rule_taints_the_devices_that_it_selects(
    selector: Tree, found: list[str], rule_first: bool
) -> None:
    both = [device("gpu-0", uuid="GPU-0"), device("gpu-1", uuid="GPU-1")]
    puts = [put_slice(resource_slice("a", both)), put_rule(taint_rule("r", **selector))]
    objects = objects_of(*(reversed(puts) if rule_first else puts))

    assert taints(objects) == [text and f"example.com/repair={text}" for text in found]
    objects.take_touched()
    objects.drop_taint_rule("r")
    assert taints(objects) == ["", ""]
    assert objects.touched.cards == {"GPU-0", "GPU-1"}


def test_a_rule_without_a_selector_taints_nothing() -> None:
    rule = taint_rule("r")
    del rule["spec"]["deviceSelector"]
    objects = objects_of(put_slice(resource_slice("a", eight("a"))), put_rule(rule))

    assert taints(objects) == [""] * 8


def test_what_a_driver_says_of_its_device_comes_before_a_rule() -> None:
    sick = device("gpu-0", taints=[{"key": "xid", "effect": "NoExecute"}])
    objects = objects_of(put_slice(resource_slice("a", [sick])), put_rule(taint_rule("r")))

    assert taints(objects) == ["xid"]


def test_a_tainted_device_says_why_no_new_pod_gets_it() -> None:
    taint = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}
    sick = device("gpu-0", uuid="GPU-1", taints=[taint])
    informed = device("gpu-1", uuid="GPU-2", taints=[taint | {"effect": "None"}])

    objects = objects_of(put_slice(resource_slice("a", [sick, informed])))

    assert [objects.card(name).taint for name in ("GPU-1", "GPU-2")] == [  # type: ignore[union-attr]
        "gpu.nvidia.com/xid=79",
        "",
    ]


def test_partitions_that_consume_the_same_counters_are_parts_of_one_card() -> None:
    counters = [{"counterSet": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}]
    whole = device("gpu-0", uuid="GPU-1", consumesCounters=counters)
    half = device("gpu-0-half", uuid="MIG-1", consumesCounters=counters)
    half["capacity"] = {"memory": {"value": "40780Mi"}}

    objects = objects_of(
        put_slice(resource_slice("a", [whole, half])),
        put_claim(allocated(claim("c", 1), "gpu-0-half")),
    )

    assert objects.cards() == {"GPU-1"}
    assert objects.on_node("a") == CardsOnNode(MODEL, 1)
    seen = objects.card("GPU-1")
    assert seen is not None
    assert [held.milli for held in seen.claims] == [501]


def test_an_allocated_claim_holds_the_cards_for_the_pods_it_is_reserved_for() -> None:
    objects = objects_of(
        put_slice(resource_slice("a", eight("a"))),
        put_claim(allocated(claim("c", 2), "gpu-0", "gpu-1", pods=["q", "p"])),
    )

    seen = objects.card("GPU-a-1")
    assert seen is not None
    assert seen.claims == (
        DeviceClaim(uid="uid-c", namespace="default", name="c", pods=("p", "q")),
    )


def test_a_card_is_free_when_the_allocation_is_gone_and_when_the_claim_is() -> None:
    held = put_claim(allocated(claim("c", 1), "gpu-0"))
    objects = objects_of(put_slice(resource_slice("a", eight("a"))), held)

    def holders() -> int:
        seen = objects.card("GPU-a-0")
        assert seen is not None
        return len(seen.claims)

    counts = [holders()]
    put_claim(allocated(claim("c", 1)))(objects)
    counts.append(holders())
    held(objects)
    objects.drop_claim("uid-c")

    assert [*counts, holders()] == [1, 0, 0]


def test_administrative_access_holds_nothing() -> None:
    tree = allocated(claim("c", 1), "gpu-0")
    tree["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True

    objects = objects_of(put_slice(resource_slice("a", eight("a"))), put_claim(tree))

    assert objects.card("GPU-a-0") == replace_claims(objects, ())


def replace_claims(objects: DeviceObjects, claims: tuple[DeviceClaim, ...]) -> DeviceSeen:
    seen = objects.card("GPU-a-0")
    assert seen is not None
    return msgspec.structs.replace(seen, claims=claims)


def test_a_part_of_a_cards_capacity_is_that_part_of_the_card() -> None:
    tree = allocated(claim("c", 1), "gpu-0")
    tree["status"]["allocation"]["devices"]["results"][0]["consumedCapacity"] = {
        "memory": f"{H100_MB // 4}Mi"
    }

    objects = objects_of(put_slice(resource_slice("a", eight("a"))), put_claim(tree))

    seen = objects.card("GPU-a-0")
    assert seen is not None
    assert [held.milli for held in seen.claims] == [250]


WORLD: tuple[Put, ...] = (
    put_slice(resource_slice("a", eight("a")[:4], number=0, of=2)),
    put_slice(resource_slice("a", eight("a")[4:], number=1, of=2)),
    put_slice(resource_slice("b", eight("b"))),
    put_class(device_class()),
    put_class(device_class("fast")),
    put_template(template("eight", 8)),
    put_claim(allocated(claim("c", 2), "gpu-0", "gpu-7", pods=["p", "q"])),
    put_claim(of_template(allocated(claim("d", 1), "gpu-2", node="b", pods=["r"]))),
    put_claim(allocated(claim("elsewhere", 1), "gpu-0", node="unknown")),
)


@given(st.randoms(use_true_random=False), st.integers(0, len(WORLD)))
@settings(deadline=None)
def test_objects_in_any_order_and_repeated_give_the_same_facts(
    order: random.Random, repeated: int
) -> None:
    shuffled = [*WORLD, *WORLD[:repeated]]
    order.shuffle(shuffled)

    assert facts(objects_of(*shuffled)) == facts(objects_of(*WORLD))


@given(st.randoms(use_true_random=False))
@settings(deadline=None)
def test_what_was_published_after_each_object_folds_to_the_state_of_the_end(
    order: random.Random,
) -> None:
    """Only touched cards are compared, so no touch may be missing."""
    shuffled, objects, draft = [*WORLD], DeviceObjects(), Draft(ClusterState())
    order.shuffle(shuffled)
    cards = ChangeFilter[str](CardKind(objects), {})
    for put in shuffled:
        put(objects)
        for name in sorted(objects.take_touched().cards):
            fact = cards.seen_or_gone(name)
            if fact is not None:
                evolve(draft, fact, 1)
                evolve(draft, fact, 1)

    state = ClusterState()
    state.gpus = {name: card for name, card in draft.gpus.changes.items() if card is not None}
    assert logged_devices(state) == facts(objects).cards


def test_a_pod_counts_the_devices_of_its_claim_or_what_the_template_asks_for() -> None:
    objects = objects_of(put_template(template("eight", 8)), put_class(device_class()))
    waiting = ask(objects, pod("p", "template/eight", node="a"))

    put_slice(resource_slice("a", eight("a")))(objects)
    put_claim(of_template(allocated(claim("made", 8), "gpu-0", "gpu-1", pods=["p"])))(objects)
    placed = ask(objects, pod("p", "template/eight", made="made", node="a"))

    assert (waiting.gpu_milli, waiting.gpu_cards) == (8000, 8)
    assert (placed.gpu_milli, placed.devices.milli) == (2000, 2000)
    assert placed.gpu.given == ("GPU-a-0", "GPU-a-1")


def test_the_pods_of_a_shared_claim_hold_its_devices_once() -> None:
    names = ("p", "q", "r")
    objects = objects_of(
        put_slice(resource_slice("a", eight("a"))),
        put_claim(allocated(claim("shared", 2), "gpu-0", "gpu-1", pods=names)),
    )

    asked = [ask(objects, pod(name, "claim/shared", node="a")).gpu_milli for name in names]

    assert (asked, sum(asked)) == ([667, 667, 666], 2000)


@given(st.integers(0, 5000), st.sets(st.text(min_size=1), min_size=1, max_size=9))
def test_shares_add_up_to_the_whole(milli: int, pods: set[str]) -> None:
    named = tuple(sorted(pods))

    assert sum(share_of(uid, named, milli) for uid in named) == milli


def test_a_claim_for_other_devices_counts_nothing_and_is_not_named() -> None:
    nic = claim("nic", 1)
    nic["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "dra.net"

    asked = ask(objects_of(put_claim(nic)), pod("p", "claim/nic", node="a"))

    assert (asked.gpu_milli, asked.devices.claims) == (0, ())


def test_a_claim_that_is_not_known_yet_counts_nothing_and_is_named() -> None:
    asked = ask(DeviceObjects(), pod("p", "claim/late", node="a"))

    assert (asked.gpu_milli, asked.devices.claims) == (0, ("claim/late",))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"count": 3}, 3),
        ({"count": None}, 1),
        ({"allocationMode": "All"}, None),
        ({"adminAccess": True}, 0),
        ({"deviceClassName": "fast"}, 2),
        ({"deviceClassName": "unknown"}, 0),
    ],
)
def test_what_a_request_asks_for(changes: Tree, expected: int | None) -> None:
    tree = claim("c", 2)
    tree["spec"]["devices"]["requests"][0]["exactly"] |= changes

    objects = objects_of(put_claim(tree), put_class(device_class("fast")))

    assert objects.asked(("default", "claim/c")) == expected


def test_the_first_of_several_possible_requests_counts() -> None:
    tree = claim("c", 1)
    either = [{"deviceClassName": DRIVER, "count": 4}, {"deviceClassName": DRIVER, "count": 1}]
    tree["spec"]["devices"]["requests"] = [{"name": "gpus", "firstAvailable": either}]

    assert objects_of(put_claim(tree)).asked(("default", "claim/c")) == 4


def test_a_pod_that_was_seen_before_its_claim_is_published_again() -> None:
    objects = objects_of(put_slice(resource_slice("a", eight("a"))))
    kind = PodKind(devices=objects)
    pods = PodFilter(kind, {})
    first = pods.seen(pod("p", "template/eight", made="made", node="a"))
    objects.take_touched()

    put_claim(of_template(allocated(claim("made", 2), "gpu-0", "gpu-1")))(objects)
    touched = objects.take_touched().pods
    again = [pods.renewed(uid) for uid in touched]

    assert isinstance(first, PodBound)
    assert first.pod.gpu_milli == 0
    assert [fact.pod.gpu_milli for fact in again if isinstance(fact, PodBound)] == [2000]
    assert pods.renewed("p") is None


def test_a_node_has_the_cards_of_its_drivers_and_of_its_plugin_once() -> None:
    objects = DeviceObjects()
    nodes = NodeFilter(NodeKind(devices=objects), {})
    for name, gpus in (("a", "0"), ("b", "8"), ("c", "9")):
        room = {"cpu": "96", "nvidia.com/gpu": gpus}
        tree = {"metadata": {"name": name, "uid": name}, "status": {"allocatable": room}}
        nodes.seen(msgspec.convert(tree, Node))

    for name in ("a", "b", "c"):
        put_slice(resource_slice(name, eight(name)))(objects)
    again = [nodes.renewed(name) for name in ("a", "b", "c")]

    assert [fact.gpus for fact in again if isinstance(fact, NodeSeen)] == [8]
    assert nodes.renewed("unknown") is None


def test_the_hardware_of_a_node_has_its_devices_with_the_figures_of_the_catalog() -> None:
    objects = DeviceObjects()
    catalog = shipped_catalog()
    hardware, _ = hardware_filters(catalog, ClusterState(), devices=objects)
    tree = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "96"}}}
    before = hardware.seen(msgspec.convert(tree, Node))

    put_slice(resource_slice("a", eight("a")))(objects)
    found = hardware.renewed("a")
    objects.drop_slice(resource_slice("a", [])["metadata"]["name"])
    after = hardware.renewed("a")

    assert before is None
    assert isinstance(found, HardwareDiscovered)
    assert (found.gpu_count, found.gpu_max_mw, found.cpu_cores) == (8, 700_000, 96)
    assert isinstance(after, HardwareDiscovered)
    assert after.gpu_count == 0


def test_a_pod_that_is_gone_is_not_published_again() -> None:
    objects = objects_of(put_template(template("eight", 8)))
    pods = PodFilter(PodKind(devices=objects), {})
    pods.seen(pod("p", "template/eight", node="a"))

    pods.deleted(pod("p", "template/eight"))
    objects.take_touched()
    put_template(template("eight", 4))(objects)

    assert objects.take_touched().pods == set()
    assert pods.renewed("p") is None


def in_order(*puts: Put) -> DeviceObjects:
    """With a server whose kube-scheduler takes devices in order."""
    objects = DeviceObjects()
    objects.pools.order(is_kept=True)
    for put in puts:
        put(objects)
    return objects


def turns(objects: DeviceObjects) -> list[tuple[str, str, int]]:
    found = (objects.card(name) for name in sorted(objects.cards()))
    return [(each.device, each.slice_name, each.place) for each in found if each is not None]


def test_a_device_has_its_place_in_its_slice_where_it_decides_who_gets_it() -> None:
    made = resource_slice("a", [device("gpu-1"), device("gpu-0")])
    of = made["metadata"]["name"]

    assert turns(in_order(put_slice(made))) == [("gpu-0", of, 1), ("gpu-1", of, 0)]
    assert turns(objects_of(put_slice(made))) == [("", "", 0)] * 2


def test_a_device_that_is_no_whole_card_has_no_turn() -> None:
    part = [{"counterSet": "card", "counters": {}}]
    parts = [device(name, consumesCounters=part) for name in ("half-0", "half-1")]
    shared = device("shared", allowMultipleAllocations=True)
    objects = in_order(put_slice(resource_slice("a", [*parts, shared])))

    assert turns(objects) == [("", "", 0)] * 2


@pytest.mark.parametrize(
    "changes",
    [
        {"selectors": [{"cel": {"expression": "true"}}]},
        {"tolerations": [{"operator": "Exists"}]},
        {"capacity": {"requests": {"memory": "1Gi"}}},
        {"allocationMode": "All"},
        {"deviceClassName": "fast"},
        {"deviceClassName": "unknown"},
    ],
)
def test_a_request_that_chooses_devices_names_no_driver(changes: Tree) -> None:
    tree = claim("c", 2)
    fast = device_class("fast")
    fast["spec"]["selectors"].append({"cel": {"expression": "device.capacity['x'] > 1"}})
    classes = put_class(device_class()), put_class(fast)
    plain = objects_of(put_claim(tree), *classes).driver_asked(("default", "claim/c"))
    changed = msgspec.json.decode(msgspec.json.encode(tree))
    changed["spec"]["devices"]["requests"][0]["exactly"] |= changes
    objects = objects_of(put_claim(changed), *classes)

    assert plain == DRIVER
    assert objects.driver_asked(("default", "claim/c")) == ""


def test_devices_that_must_match_each_other_name_no_driver() -> None:
    tree = claim("c", 2)
    tree["spec"]["devices"]["constraints"] = [{"matchAttribute": "x/numa"}]
    objects = objects_of(put_claim(tree), put_class(device_class()))

    assert objects.driver_asked(("default", "claim/c")) == ""


# --- objects as no driver and no scheduler write them ------------------------------------------


def with_memory(name: str, amount: object) -> Tree:
    return device(name, uuid=f"GPU-{name}") | {"capacity": {"memory": {"value": amount}}}


@pytest.mark.parametrize("amount", ["-5Gi", "NaN", "", -5, "0x10"])
def test_nothing_is_kept_of_a_slice_with_a_wrong_quantity(amount: object) -> None:
    """Otherwise each later change of its pool would fail, also that another slice is gone."""
    objects = objects_of(put_slice(resource_slice("a", eight("a"))))
    bad = resource_slice("a", [with_memory("bad", amount)])
    bad["metadata"]["name"] = "bad"
    with pytest.raises(BadQuantity):
        put_slice(bad)(objects)

    objects.drop_slice(resource_slice("a", [])["metadata"]["name"])

    assert objects.cards() == set()


def test_nothing_is_kept_of_a_claim_that_consumes_a_wrong_quantity() -> None:
    """Before the devices of its pool are known, too: the others of the pool are held then."""
    bad, good = allocated(claim("x", 1), "gpu-0"), allocated(claim("y", 1), "gpu-1")
    [result] = bad["status"]["allocation"]["devices"]["results"]
    result["consumedCapacity"] = {"memory": "-1Gi"}
    objects = objects_of(put_claim(good))
    with pytest.raises(BadQuantity):
        put_claim(bad)(objects)

    put_slice(resource_slice("a", eight("a")))(objects)

    held = {name for name in objects.cards() if (seen := objects.card(name)) and seen.claims}
    assert held == {"GPU-a-1"}


@pytest.mark.parametrize("amount", ["9" * 5000, "1e999", "1" * 30 + "Ei"])
def test_a_memory_beyond_the_bound_is_the_bound(amount: str) -> None:
    objects = objects_of(put_slice(resource_slice("a", [with_memory("gpu-0", amount)])))
    seen = objects.card("GPU-gpu-0")
    assert seen is not None
    assert seen.total_mb == MOST_CARD_MB


@pytest.mark.parametrize("uuid", ["GPU-b-3", "gpu-B-3"])
def test_no_driver_of_another_node_takes_a_card(uuid: str) -> None:
    """By a slice of its own pool with the UUID of that card, in any case. It is on neither node,
    and the cards beside it are as before."""
    taken = resource_slice("a", [device("gpu-0", uuid=uuid)])
    for slices in itertools.permutations([resource_slice("b", eight("b")), taken]):
        objects = objects_of(*map(put_slice, slices))
        seen, beside = objects.card("GPU-b-3"), objects.card("GPU-b-4")
        assert seen is not None
        assert (seen.node, seen.taint) == ("", "published for several nodes: a, b")
        assert beside is not None
        assert (beside.node, beside.taint) == ("b", "")


def test_ten_thousand_claims_for_all_cards_count_with_the_bound() -> None:
    trees = [claim(f"c{n}", 2**63 - 1) for n in range(10_000)]
    for tree in trees:
        tree["metadata"]["uid"] = f"uid-{tree['metadata']['name']}"
    objects = objects_of(*map(put_claim, trees))
    assert {objects.asked(named) for named in objects.all_asked()} == {MOST_CARDS}
    assert len(objects.all_asked()) == 10_000
    seen = ask(objects, pod("p", "claim/c1", node="a"))
    assert seen.gpu_milli == MOST_GPU_MILLI
