"""What is found to be written, over a world and the objects of an API server. Pure."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from joulie_bus.events import Fact
from joulie_bus.testing import (
    bound,
    caps,
    draining,
    eco,
    hardware,
    node_seen,
    noon,
    performance,
    polled,
)
from joulie_bus.testing import power as reads
from joulie_operator.apply import pending_writes
from joulie_operator.apply.desired import labels_of, spec_of
from joulie_operator.apply.pending_writes import Clock, Differences, Step, Wishes
from joulie_operator.kube.custom_resources import (
    MANAGER,
    ManagedFields,
    NodeTwin,
    NodeTwinSpec,
    NodeTwinStatus,
    ObjectMeta,
)
from joulie_operator.kube.object_cache import Mirror
from joulie_operator.observe.facts_from_objects import Node
from joulie_projections.fold.registry import evolve
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft

WISHES = Wishes(selector={"joulie.io/managed": "true"}, status_s=60)
MANAGED = {"joulie.io/managed": "true"}


class Place:
    """A world, the objects beside it, and a clock that a test moves."""

    def __init__(self, *facts: Fact) -> None:
        self.cluster_state = ClusterState()
        self.nodes = Mirror[Node](lambda it: it.metadata)
        self.twins = Mirror[NodeTwin](lambda it: it.metadata)
        self.differences = Differences(self.nodes, self.twins, WISHES)
        self.now_s = 0.0
        self.version = 0
        self.tell(*facts)

    def tell(self, *facts: Fact) -> None:
        draft = Draft(self.cluster_state)
        for fact in facts:
            evolve(draft, fact, noon(self.now_s))
            if (name := getattr(fact, "node", "")) and self.nodes.get(name) is None:
                self.show(name, MANAGED)
        draft.commit()

    def show(self, name: str, labels: dict[str, str]) -> None:
        self.nodes.put(Node(metadata=self._meta(name, labels)))

    def settle(self) -> None:
        """Everything is written, as the API server would have it."""
        self.look()
        for name, node in self.cluster_state.nodes.items():
            spec = spec_of(name, node, "")
            twin = NodeTwin(metadata=self._meta(name, generation=1), spec=spec)
            status = self.differences.status(twin, node, noon(self.now_s))
            self.twins.put(msgspec.structs.replace(twin, status=status))
            self.show(name, MANAGED | labels_of(node))
            kept = self.differences.kept(name)
            kept.told, kept.status, kept.status_at = spec, status, self.now_s

    def write(self, name: str, spec: NodeTwinSpec) -> None:
        """Somebody else's hand."""
        known = self.twins.get(name)
        status = known.status if known else None
        self.twins.put(NodeTwin(metadata=self._meta(name, generation=1), spec=spec, status=status))

    def status(self, name: str) -> NodeTwinStatus:
        twin = self.twins.get(name)
        assert twin is not None
        return self.differences.status(twin, self.cluster_state.nodes[name], noon(self.now_s))

    def look(self) -> dict[str, list[str]]:
        return {name: [step.what for step in steps] for name, steps in self.errands()}

    def errands(self) -> list[tuple[str, list[Step]]]:
        clock = Clock(self.now_s, noon(self.now_s))
        found = self.differences.look(self.cluster_state, clock)
        return [(errand.name, list(errand.steps)) for errand in found]

    def _meta(self, name: str, labels: Any = None, *, generation: int = 0) -> ObjectMeta:
        self.version += 1
        return ObjectMeta(
            name=name,
            resource_version=str(self.version),
            generation=generation,
            labels=labels,
            managed_fields=[ManagedFields(manager=MANAGER)],
        )


def one(*facts: Fact) -> Place:
    """One node, settled."""
    place = Place(node_seen("n1"), hardware("n1", watts=1000), *facts)
    place.settle()
    assert place.look() == {}
    return place


def test_caps_in_watts_stand_beside_the_percentages_and_alone_where_there_are_none() -> None:
    both = replace(caps("n1", 50, 60), cpu_cap_mw_per_socket=180_000, gpu_cap_mw=210_500)
    alone = replace(caps("n2"), cpu_cap_mw_per_socket=120_000)
    place = Place(node_seen("n1"), eco("n1"), both, node_seen("n2"), eco("n2"), alone)
    specs = {name: spec_of(name, node, "") for name, node in place.cluster_state.nodes.items()}

    assert msgspec.to_builtins(specs) == {
        "n1": {
            "nodeName": "n1",
            "profile": "eco",
            "cpu": {"packagePowerCapPctOfMax": 50, "packagePowerCapWatts": 180},
            "gpu": {
                "powerCap": {"scope": "perGpu", "capPctOfMax": 60, "capWattsPerGpu": 210.5},
            },
        },
        "n2": {"nodeName": "n2", "profile": "eco", "cpu": {"packagePowerCapWatts": 120}},
    }


def test_a_status_knows_the_room_and_the_rack() -> None:
    place = one(
        replace(node_seen("n1"), labels={"joulie.io/rack": "r1"} | MANAGED),
        reads("n1", 15_000),
        replace(polled(it_w=1000), cooling_mw=250_000),
    )
    place.look()
    told = place.status("n1")

    assert told.predicted_psu_stress_score == 30
    assert (told.estimated_pue, told.estimated_pue_source) == (1.25, "facility")


def test_without_a_facility_the_efficiency_is_assumed() -> None:
    told = one().status("n1")

    assert (told.estimated_pue, told.estimated_pue_source) == (1.0, "assumed")


@pytest.mark.parametrize(
    ("facts", "source", "watts"),
    [
        ([reads("n1", 412.3)], "kepler", 412.3),
        ([bound("p", "n1")], "utilization", 7.3),
        ([], "static", 1000),
    ],
    ids=["a reading", "the model of its pods", "its caps"],
)
def test_a_status_says_who_says_so(facts: list[Fact], source: str, watts: float) -> None:
    power = one(*facts).status("n1").power_measurement

    assert power is not None
    assert (power.source, power.measured_node_power_w) == (source, watts)
    assert bool(power.measured_at) == (source == "kepler")


@pytest.mark.parametrize(
    ("labels", "status", "reason"),
    [
        ({}, "False", "Guessed"),
        ({"joulie.io/hw.gpu-count": "8"}, "False", "Guessed"),
        ({"joulie.io/hw.gpu-count": "eight"}, "False", "UnreadableLabel"),
    ],
)
def test_a_typing_error_in_a_label_stands_where_people_look(
    labels: dict[str, str], status: str, reason: str
) -> None:
    place = Place(replace(node_seen("n1"), labels=labels | MANAGED), eco("n1"))
    place.settle()
    [known] = [it for it in place.status("n1").conditions or [] if it.type == "HardwareKnown"]

    assert (known.status, known.reason) == (status, reason)


@pytest.mark.parametrize(
    ("changes", "status", "told"),
    [
        ({}, "True", ""),
        ({"gpu_max_mw": 0}, "False", "GPU 'NVIDIA H100 SXM5': 350 W are assumed for each; add"),
        ({"gpu_max_mw": 0, "gpu_vendor": "amd"}, "False", "400 W are assumed for each"),
        ({"cpu_max_mw_per_socket": 0}, "False", "CPU 'AMD EPYC 9654': 336 W are assumed for all"),
        ({"gpu_max_mw": 0, "gpu_count": 0}, "True", ""),
    ],
    ids=["known", "card", "card of AMD", "processor", "no card"],
)
def test_watts_that_are_assumed_are_told_with_the_model(
    changes: dict[str, int | str], status: str, told: str
) -> None:
    found = replace(hardware("n1", gpus=8), **changes)
    place = Place(replace(node_seen("n1"), labels=MANAGED), found, eco("n1"))
    place.settle()
    [known] = [it for it in place.status("n1").conditions or [] if it.type == "HardwareKnown"]

    assert known.status == status
    assert told in known.message


@pytest.mark.slow
def test_five_thousand_nodes_that_do_nothing_need_nothing_and_a_hundred_changes_a_hundred() -> None:
    names = [f"n{number:04}" for number in range(5000)]
    place = Place(*[fact for name in names for fact in (node_seen(name), eco(name))])
    place.settle()
    idle = [place.look() for _ in range(3)]
    place.tell(*[performance(name) for name in names[::50]])

    assert idle == [{}, {}, {}]
    assert place.look() == {name: ["spec", "status", "label"] for name in names[::50]}
    assert place.look() == {}, "what is on its way is not found twice"


@pytest.mark.parametrize(
    ("fact", "steps"),
    [
        (eco("n1"), ["label", "spec", "status"]),
        (performance("n1"), ["spec", "status", "label"]),
    ],
    ids=["to save: no new pods before less power", "to perform: power before new pods"],
)
def test_the_order_protects_the_pods(fact: Fact, steps: list[str]) -> None:
    place = Place(node_seen("n1"), fact)

    assert place.look() == {"n1": steps}


def test_a_node_that_drains_gets_its_class_and_keeps_its_label() -> None:
    place = one(performance("n1"), caps("n1", 100))
    place.tell(draining("n1"))

    assert place.look() == {"n1": ["spec", "status"]}


def test_a_node_without_a_plan_is_left_alone() -> None:
    assert Place(node_seen("n1"), hardware("n1")).look() == {}


def test_a_reading_that_breathes_is_not_written() -> None:
    place = one(eco("n1"), reads("n1", 500))
    place.now_s = 70.0
    place.tell(reads("n1", 540))

    assert place.look() == {}


def test_a_reading_that_has_moved_is_written_when_its_time_has_come() -> None:
    place = one(eco("n1"), reads("n1", 500))
    place.tell(reads("n1", 700))
    at_once = place.look()
    place.now_s = 61.0

    assert (at_once, place.look()) == ({}, {"n1": ["status"]})


def test_many_nodes_follow_their_readings_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_writes, "BREATHS_PER_S", 0.01)
    place = one(eco("n1"), reads("n1", 500))
    place.tell(reads("n1", 700))
    place.now_s = 99.0
    early = place.look()
    place.now_s = 101.0

    assert (early, place.look()) == ({}, {"n1": ["status"]})


def test_an_operator_that_starts_lets_them_take_turns() -> None:
    names = [f"n{number}" for number in range(64)]
    place = Place(*(fact for name in names for fact in (node_seen(name), hardware(name))))
    place.tell(*(eco(name) for name in names), *(reads(name, 500) for name in names))
    place.settle()
    for name in names:
        place.differences.kept(name).status_at = None
    place.tell(*(reads(name, 700) for name in names))
    written = list[int]()
    for place.now_s in (0.0, 30.0, 60.0):
        written.append(len(place.look()))

    first, half, everybody = written
    assert (first < 10, 20 < half < 44, everybody) == (True, True, 64)


def test_a_reading_that_has_grown_old_is_said_to_be() -> None:
    place = one(eco("n1"), reads("n1", 500))
    place.now_s = 290.0
    young = place.look()
    place.now_s = 400.0

    assert (young, place.look()) == ({}, {"n1": ["status"]})


def test_a_status_that_somebody_changes_is_not_raced_for() -> None:
    place = one(eco("n1"))
    twin = place.twins.get("n1")
    assert twin is not None
    assert twin.status is not None
    other = msgspec.structs.replace(twin.status, schedulable_class="performance")
    meta = msgspec.structs.replace(twin.metadata, resource_version="999")
    place.twins.put(msgspec.structs.replace(twin, metadata=meta, status=other))
    place.differences.kept("n1").status_at = 0.0
    place.now_s = 30.0
    early = place.look()
    place.now_s = 61.0

    assert (early, place.look()) == ({}, {"n1": ["status"]})


def test_who_writes_his_own_again_and_again_is_overruled_at_a_growing_pace() -> None:
    place, gaps, last = one(eco("n1")), list[float](), 0.0
    for _ in range(3):
        place.write("n1", NodeTwinSpec(node_name="n1", profile="performance"))
        while "n1" not in place.look():
            place.now_s += 0.5
        gaps, last = [*gaps, place.now_s - last], place.now_s
        place.settle()

    assert gaps == sorted(gaps)
    assert gaps[0] >= 2


@pytest.mark.parametrize(
    ("labels", "steps"),
    [
        (MANAGED | {"joulie.io/reserved": "true"}, ["delete"]),
        ({}, ["delete"]),
        ({"joulie.io/power-profile": "eco"}, ["label", "delete"]),
    ],
    ids=["reserved", "not managed any more", "still labelled"],
)
def test_a_node_that_leaves_loses_what_is_ours(labels: dict[str, str], steps: list[str]) -> None:
    place = one(eco("n1"))
    place.show("n1", labels)

    assert place.look() == {"n1": steps}


def test_a_node_that_is_gone_takes_its_twin_along() -> None:
    place = one(eco("n1"))
    place.nodes.drop("n1")

    assert place.look() == {"n1": ["delete"]}


def test_a_twin_that_somebody_made_for_no_node_stays() -> None:
    place = Place()
    spec = NodeTwinSpec(node_name="theirs")
    place.twins.put(NodeTwin(metadata=ObjectMeta(name="theirs"), spec=spec))

    assert place.look() == {}


def test_a_cluster_state_that_has_not_heard_of_a_node_takes_nothing_from_it() -> None:
    place = one(eco("n1"))
    place.cluster_state = ClusterState()

    assert place.look() == {}


def test_nobody_is_always_last() -> None:
    names = [f"n{number}" for number in range(20)]
    place = Place(*[fact for name in names for fact in (node_seen(name), eco(name))])
    firsts = set[str]()
    for _ in range(40):
        found = place.errands()
        firsts.add(found[0][0])
        for name, _steps in found:
            place.differences.kept(name).look_again = 0.0

    assert len(firsts) > 5


def test_one_that_has_failed_waits_and_the_others_do_not() -> None:
    place = Place(node_seen("n1"), node_seen("n2"), eco("n1"), eco("n2"))
    place.differences.kept("n1").not_before = 5.0
    early = set(place.look())
    place.now_s = 6.0

    assert (early, set(place.look())) == ({"n2"}, {"n1"})
