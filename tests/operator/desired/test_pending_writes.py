"""The writes that a cluster state needs, given the objects of an API server. Pure."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from bus_kit import (
    asleep,
    bound,
    caps,
    completed,
    draining,
    eco,
    hardware,
    node_seen,
    noon,
    performance,
    polled,
)
from bus_kit import power as reads
from joulie_bus.events import Fact
from joulie_operator.desired import pending_writes
from joulie_operator.desired.objects import labels_of, spec_of
from joulie_operator.desired.pending_writes import (
    NodeWrites,
    Now,
    WriteOptions,
    WritePlanner,
    WriteStep,
)
from joulie_operator.facts.facts_from_objects import Node
from joulie_operator.kube.object_cache import ObjectCache
from joulie_operator.resources.custom_resources import (
    MANAGER,
    ManagedFields,
    NodeTwin,
    NodeTwinSpec,
    NodeTwinStatus,
    ObjectMeta,
)
from joulie_projections.fold.registry import evolve
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.state.state_changes import Draft

OPTIONS = WriteOptions(selector={"joulie.io/managed": "true"}, status_s=60)
MANAGED = {"joulie.io/managed": "true"}


class Place:
    """A cluster state, the objects of an API server, and a clock set by the test."""

    def __init__(self, *facts: Fact) -> None:
        self.cluster_state = ClusterState()
        self.nodes = ObjectCache[Node](lambda it: it.metadata)
        self.twins = ObjectCache[NodeTwin](lambda it: it.metadata)
        self.planner = WritePlanner(self.nodes, self.twins, OPTIONS)
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
        """Applies every pending write to the objects, until every status is whole."""
        self.apply()
        self.apply()

    def apply(self) -> None:
        """Applies every pending write to the objects; a new NodeTwin gets its first status."""
        self.pending_writes()
        for name, node in self.cluster_state.nodes.items():
            spec = spec_of(name, node, "")
            known = self.twins.get(name)
            before = known.status if known else None
            twin = NodeTwin(metadata=self._meta(name, generation=1), spec=spec, status=before)
            status = self.planner.status(twin, node, noon(self.now_s))
            self.twins.put(msgspec.structs.replace(twin, status=status))
            self.show(name, MANAGED | labels_of(node))
            state = self.planner.state(name)
            state.written_spec, state.status, state.status_at = spec, status, self.now_s

    def write(self, name: str, spec: NodeTwinSpec) -> None:
        """Writes the spec of a NodeTwin as another writer."""
        known = self.twins.get(name)
        status = known.status if known else None
        self.twins.put(NodeTwin(metadata=self._meta(name, generation=1), spec=spec, status=status))

    def status(self, name: str) -> NodeTwinStatus:
        twin = self.twins.get(name)
        assert twin is not None
        return self.planner.status(twin, self.cluster_state.nodes[name], noon(self.now_s))

    def pending_writes(self) -> dict[str, list[str]]:
        return {name: [step.what for step in steps] for name, steps in self.pending()}

    def pending(self) -> list[tuple[str, list[WriteStep]]]:
        clock = Now(self.now_s, noon(self.now_s))
        found = self.planner.pending_writes(self.cluster_state, clock)
        return [(node_writes.name, list(node_writes.steps)) for node_writes in found]

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
    """One node without pending writes."""
    place = Place(node_seen("n1"), hardware("n1", watts=1000), *facts)
    place.settle()
    assert place.pending_writes() == {}
    return place


def test_caps_in_watts_are_written_with_or_without_percentages() -> None:
    both = replace(caps("n1", 50, 60), cpu_cap_mw_per_socket=180_000, gpu_cap_mw=210_500)
    alone = replace(caps("n2"), cpu_cap_mw_per_socket=120_000)
    guessed = replace(caps("n3", 35), cpu_cap_mw_per_socket=120_000)  # of no known maximum
    place = Place(node_seen("n1"), hardware("n1"), eco("n1"), both, node_seen("n2"), eco("n2"))
    place.tell(alone, node_seen("n3"), eco("n3"), guessed)
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
        "n3": {"nodeName": "n3", "profile": "eco", "cpu": {"packagePowerCapWatts": 120}},
    }


def test_a_status_includes_the_facility_and_the_rack() -> None:
    place = one(
        replace(node_seen("n1"), labels={"joulie.io/rack": "r1"} | MANAGED),
        reads("n1", 15_000),
        replace(polled(it_w=1000), cooling_mw=250_000),
    )
    place.pending_writes()
    status = place.status("n1")

    assert status.predicted_psu_stress_score == 30
    assert (status.cooling_model, status.cooling_power) == ("linear", "cap")
    assert (status.estimated_pue, status.estimated_pue_source) == (1.25, "facility")


def test_without_a_facility_the_efficiency_is_assumed() -> None:
    status = one().status("n1")

    assert (status.estimated_pue, status.estimated_pue_source) == (1.0, "assumed")


@pytest.mark.parametrize(
    ("facts", "source", "watts"),
    [
        ([reads("n1", 412.3)], "kepler", 412.3),
        ([bound("p", "n1")], "utilization", 507.3),
        ([], "static", 1000),
    ],
    ids=["a reading", "the model of its pods", "its caps"],
)
def test_a_status_names_the_source_of_its_power(
    facts: list[Fact], source: str, watts: float
) -> None:
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
def test_an_unreadable_label_is_reported_in_a_condition(
    labels: dict[str, str], status: str, reason: str
) -> None:
    place = Place(replace(node_seen("n1"), labels=labels | MANAGED), eco("n1"))
    place.settle()
    [known] = [it for it in place.status("n1").conditions or [] if it.type == "HardwareKnown"]

    assert (known.status, known.reason) == (status, reason)


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({}, "True", ""),
        ({"gpu_max_mw": 0}, "False", "GPU 'NVIDIA H100 SXM5': 350 W are assumed for each; add"),
        ({"gpu_max_mw": 0, "gpu_vendor": "amd"}, "False", "400 W are assumed for each"),
        ({"cpu_max_mw_per_socket": 0}, "False", "CPU 'AMD EPYC 9654': 336 W are assumed for all"),
        ({"gpu_max_mw": 0, "gpu_count": 0}, "True", ""),
    ],
    ids=["known", "card", "card of AMD", "processor", "no card"],
)
def test_assumed_watts_are_reported_with_their_model(
    changes: dict[str, int | str], status: str, message: str
) -> None:
    found = replace(hardware("n1", gpus=8), **changes)
    place = Place(replace(node_seen("n1"), labels=MANAGED), found, eco("n1"))
    place.settle()
    [known] = [it for it in place.status("n1").conditions or [] if it.type == "HardwareKnown"]

    assert known.status == status
    assert message in known.message


@pytest.mark.slow
def test_five_thousand_idle_nodes_need_no_writes_and_a_hundred_changes_a_hundred() -> None:
    names = [f"n{number:04}" for number in range(5000)]
    place = Place(*[fact for name in names for fact in (node_seen(name), eco(name))])
    place.settle()
    idle = [place.pending_writes() for _ in range(3)]
    place.tell(*[performance(name) for name in names[::50]])

    assert idle == [{}, {}, {}]
    assert place.pending_writes() == {name: ["spec", "status", "label"] for name in names[::50]}
    assert place.pending_writes() == {}, "writes in progress are not found twice"


@pytest.mark.parametrize(
    ("fact", "steps"),
    [
        (eco("n1"), ["label", "spec", "status"]),
        (performance("n1"), ["spec", "status", "label"]),
    ],
    ids=["eco: label before caps", "performance: caps before label"],
)
def test_the_order_protects_the_pods(fact: Fact, steps: list[str]) -> None:
    place = one(draining("n1"), caps("n1", 100))
    place.tell(fact, caps("n1", 60))

    assert place.pending_writes() == {"n1": steps}


def test_a_new_twin_gets_its_class_before_its_label_and_its_caps() -> None:
    place = Place(node_seen("n1"), eco("n1"), caps("n1", 60))

    uncapped = NodeTwinSpec(node_name="n1", profile="eco")
    [(_, steps)] = place.pending()
    assert [(step.what, step.spec) for step in steps] == [("spec", uncapped), ("status", None)]

    place.write("n1", uncapped)
    assert place.pending_writes() == {"n1": ["label", "spec", "status"]}


def test_a_new_twin_of_a_labelled_node_gets_its_caps_at_once() -> None:
    place = Place(node_seen("n1"), eco("n1"), caps("n1", 60))
    place.show("n1", MANAGED | labels_of(place.cluster_state.nodes["n1"]))

    [(_, [first, _])] = place.pending()
    assert first.spec == spec_of("n1", place.cluster_state.nodes["n1"], "")


def test_a_new_twin_gets_its_class_first_and_a_whole_status_later() -> None:
    place = Place(node_seen("n1"), eco("n1"))
    place.apply()
    twin = place.twins.get("n1")
    assert twin is not None
    assert twin.status is not None

    assert (twin.status.schedulable_class, twin.status.conditions) == ("eco", None)
    place.now_s = 1.0
    assert place.pending_writes() == {"n1": ["status"]}
    assert place.status("n1").conditions


def test_whole_statuses_of_new_twins_are_spread_over_time() -> None:
    names = [f"n{number}" for number in range(1000)]
    place = Place(*[fact for name in names for fact in (node_seen(name), eco(name))])
    place.apply()
    place.now_s = len(names) / pending_writes.COMPLETIONS_PER_S / 2

    assert 400 < len(place.pending_writes()) < 600


def test_a_new_class_does_not_wait_for_a_whole_status() -> None:
    names = [f"n{number}" for number in range(1000)]
    place = Place(*[fact for name in names for fact in (node_seen(name), eco(name))])
    place.apply()
    place.tell(performance("n1"), draining("n2"))

    written = place.pending_writes()
    assert written["n1"] == ["spec", "status", "label"]
    assert written["n2"] == ["label", "spec", "status"]


@pytest.mark.parametrize(
    ("plans", "profile", "drains"),
    [
        ((performance("n1"),), "performance", "false"),
        ((eco("n1"),), "eco", "false"),
        ((performance("n1"), draining("n1")), "performance", "true"),
        ((performance("n1"), draining("n1"), performance("n1")), "performance", "false"),
        ((performance("n1"), draining("n1"), completed("n1")), "eco", "false"),
        ((draining("n1"),), "performance", "true"),
    ],
    ids=["performance", "eco", "draining", "wanted again", "drained", "first plan drains"],
)
def test_a_change_touches_a_node_once_with_its_profile_and_whether_it_drains(
    plans: tuple[Fact, ...], profile: str, drains: str
) -> None:
    place = one(*plans[:-1])
    place.tell(plans[-1])

    labels = [step.labels for _, steps in place.pending() for step in steps if step.what == "label"]

    expected = {"joulie.io/power-profile": profile, "joulie.io/draining": drains}
    assert labels == [expected]


def test_a_node_whose_first_plan_drains_it_is_planned() -> None:
    place = one(draining("n1"))
    place.now_s += 600
    place.settle()

    conditions = {each.type: each for each in place.status("n1").conditions or []}
    planned, drains = conditions["Planned"], conditions["Draining"]
    assert (planned.status, planned.reason, drains.status) == ("True", "Assigned", "True")


def test_a_draining_node_gets_its_class_and_then_its_label() -> None:
    place = one(performance("n1"), caps("n1", 100))
    place.tell(draining("n1"))

    assert place.pending_writes() == {"n1": ["spec", "status", "label"]}


def test_a_node_without_a_plan_needs_no_writes() -> None:
    assert Place(node_seen("n1"), hardware("n1")).pending_writes() == {}


def test_a_small_change_of_a_reading_is_not_written() -> None:
    place = one(eco("n1"), reads("n1", 500))
    place.now_s = 70.0
    place.tell(reads("n1", 540))

    assert place.pending_writes() == {}


def test_a_changed_reading_is_written_once_per_interval() -> None:
    place = one(eco("n1"), reads("n1", 500))
    place.tell(reads("n1", 700))
    at_once = place.pending_writes()
    place.now_s = 61.0

    assert (at_once, place.pending_writes()) == ({}, {"n1": ["status"]})


def test_statuses_of_many_nodes_are_written_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_writes, "STATUS_UPDATES_PER_S", 0.01)
    place = one(eco("n1"), reads("n1", 500))
    place.tell(reads("n1", 700))
    place.now_s = 99.0
    early = place.pending_writes()
    place.now_s = 101.0

    assert (early, place.pending_writes()) == ({}, {"n1": ["status"]})


def test_a_started_operator_spreads_statuses_over_time() -> None:
    names = [f"n{number}" for number in range(64)]
    place = Place(*(fact for name in names for fact in (node_seen(name), hardware(name))))
    place.tell(*(eco(name) for name in names), *(reads(name, 500) for name in names))
    place.settle()
    for name in names:
        place.planner.state(name).status_at = None
    place.tell(*(reads(name, 700) for name in names))
    written = list[int]()
    for place.now_s in (0.0, 30.0, 60.0):
        written.append(len(place.pending_writes()))

    first, half, everybody = written
    assert (first < 10, 20 < half < 44, everybody) == (True, True, 64)


def test_a_stale_reading_is_reported_as_stale() -> None:
    place = one(eco("n1"), reads("n1", 500))
    place.now_s = 290.0
    young = place.pending_writes()
    place.now_s = 400.0

    assert (young, place.pending_writes()) == ({}, {"n1": ["status"]})


def test_a_status_that_another_writer_changes_waits_for_the_interval() -> None:
    place = one(eco("n1"))
    twin = place.twins.get("n1")
    assert twin is not None
    assert twin.status is not None
    other = msgspec.structs.replace(twin.status, schedulable_class="performance")
    meta = msgspec.structs.replace(twin.metadata, resource_version="999")
    place.twins.put(msgspec.structs.replace(twin, metadata=meta, status=other))
    place.planner.state("n1").status_at = 0.0
    place.now_s = 30.0
    early = place.pending_writes()
    place.now_s = 61.0

    assert (early, place.pending_writes()) == ({}, {"n1": ["status"]})


def test_another_writer_of_specs_is_overwritten_with_growing_backoff() -> None:
    place = one(eco("n1"))
    gaps = [overwritten(place) for _ in range(8)]

    assert gaps == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def overwritten(place: Place) -> float:
    """Another writer replaces the spec; the seconds until it is written again."""
    place.now_s += 1
    begun = place.now_s
    place.write("n1", NodeTwinSpec(node_name="n1", profile="performance"))
    while "n1" not in place.pending_writes():
        place.now_s += 0.5
    place.apply()
    return place.now_s - begun


def test_the_backoff_starts_again_for_another_spec_and_after_a_rest() -> None:
    place = one(eco("n1"))
    before = [overwritten(place) for _ in range(3)]
    place.now_s += pending_writes.FORGOTTEN_S
    rested = [overwritten(place) for _ in range(2)]
    place.tell(caps("n1", 70))
    place.settle()

    assert (before, rested, overwritten(place)) == ([2.0, 4.0, 8.0], [2.0, 4.0], 2.0)


@pytest.mark.parametrize(
    ("labels", "steps"),
    [
        (MANAGED | {"joulie.io/reserved": "true"}, ["delete"]),
        ({}, ["delete"]),
        ({"joulie.io/power-profile": "eco"}, ["label", "delete"]),
    ],
    ids=["reserved", "no longer managed", "still labelled"],
)
def test_an_unmanaged_node_loses_the_objects_of_the_operator(
    labels: dict[str, str], steps: list[str]
) -> None:
    place = one(eco("n1"))
    place.show("n1", labels)

    assert place.pending_writes() == {"n1": steps}


def test_the_twin_of_a_deleted_node_is_deleted() -> None:
    place = one(eco("n1"))
    place.nodes.drop("n1")

    assert place.pending_writes() == {"n1": ["delete"]}


def test_a_twin_of_another_manager_without_a_node_stays() -> None:
    place = Place()
    spec = NodeTwinSpec(node_name="theirs")
    place.twins.put(NodeTwin(metadata=ObjectMeta(name="theirs"), spec=spec))

    assert place.pending_writes() == {}


def test_a_node_that_the_view_does_not_contain_loses_nothing() -> None:
    place = one(eco("n1"))
    place.cluster_state = ClusterState()

    assert place.pending_writes() == {}


def test_no_node_is_always_last() -> None:
    names = [f"n{number}" for number in range(20)]
    place = Place(*[fact for name in names for fact in (node_seen(name), eco(name))])
    firsts = set[str]()
    for _ in range(40):
        found = place.pending()
        firsts.add(found[0][0])
        for name, _steps in found:
            place.planner.state(name).next_check_at = 0.0

    assert len(firsts) > 5


def with_due_status() -> tuple[Place, NodeWrites]:
    """A node whose status is to be written."""
    place = one(reads("n1", 500))
    place.now_s += 100
    place.tell(reads("n1", 900))
    [due] = place.planner.pending_writes(place.cluster_state, Now(place.now_s, noon(place.now_s)))
    return place, due


def test_writes_that_are_left_are_found_again_without_a_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place, due = with_due_status()
    computed: list[object] = []
    monkeypatch.setattr(pending_writes, "status_of", lambda *given: computed.append(given))

    place.planner.leave(due)

    assert (place.pending(), computed) == ([(due.name, list(due.steps))], [])


def test_writes_that_are_left_do_not_outlive_the_next_plan() -> None:
    place, due = with_due_status()
    place.planner.leave(due)

    place.tell(eco("n1"))

    assert place.pending_writes() == {"n1": ["label", "spec", "status"]}


def test_writes_that_are_left_wait_while_the_node_does() -> None:
    place, due = with_due_status()
    place.planner.leave(due)
    place.planner.state("n1").not_before = place.now_s + 5

    waiting = place.pending_writes()
    place.now_s += 6

    assert (waiting, place.pending_writes()) == ({}, {"n1": ["status"]})


def test_a_failed_node_waits_and_the_others_do_not() -> None:
    place = Place(node_seen("n1"), node_seen("n2"), eco("n1"), eco("n2"))
    place.planner.state("n1").not_before = 5.0
    early = set(place.pending_writes())
    place.now_s = 6.0

    assert (early, set(place.pending_writes())) == ({"n2"}, {"n1"})


def test_a_condition_says_that_a_node_sleeps_or_wakes_up() -> None:
    place = Place(replace(node_seen("n1"), labels=MANAGED, ready=False), eco("n1"), asleep("n1"))
    place.settle()
    [awake] = [it for it in place.status("n1").conditions or [] if it.type == "Awake"]

    assert (awake.status, awake.reason) == ("False", "Asleep")


@pytest.mark.parametrize(
    ("ready", "schedulable", "reasons"),
    [(True, True, []), (False, True, ["NotReady"]), (True, False, ["Cordoned"])],
)
def test_a_condition_says_that_a_node_is_lost_or_drained(
    ready: bool, schedulable: bool, reasons: list[str]
) -> None:
    seen = replace(node_seen("n1"), labels=MANAGED, ready=ready, schedulable=schedulable)
    place = Place(seen, eco("n1"))
    place.settle()
    found = [it for it in place.status("n1").conditions or [] if it.type == "Schedulable"]

    assert [it.reason for it in found] == reasons
    assert {it.status for it in found} <= {"False"}


def test_a_node_of_which_only_numbers_changed_is_checked_when_they_may_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = one(eco("n1"), reads("n1", 500))
    checked = list[float]()
    status = place.planner.status

    def counted(twin: NodeTwin, node: NodeState, now_ns: int) -> NodeTwinStatus:
        checked.append(place.now_s)
        return status(twin, node, now_ns)

    monkeypatch.setattr(place.planner, "status", counted)
    for place.now_s in range(5, 60, 5):
        place.tell(reads("n1", 500 + place.now_s))
        place.pending_writes()
    before = list(checked)
    place.now_s = 61.0

    assert len(before) <= 1
    assert place.pending_writes() == {"n1": ["status"]}


def test_a_reading_after_a_long_silence_is_reported_at_once() -> None:
    place = one(eco("n1"), reads("n1", 500))
    place.now_s = 400.0
    place.settle()
    place.tell(reads("n1", 500))

    assert place.pending_writes() == {"n1": ["status"]}


def test_other_facts_do_not_hide_the_end_of_a_silence() -> None:
    place = one(eco("n1"), reads("n1", 500))
    place.now_s = 400.0
    place.settle()
    place.tell(node_seen("n1"))
    place.pending_writes()
    place.now_s = 401.0
    place.tell(reads("n1", 500))

    assert place.pending_writes() == {"n1": ["status"]}


def test_a_changed_class_is_written_at_once_beside_changed_numbers() -> None:
    place = one(eco("n1"), reads("n1", 500))
    place.tell(reads("n1", 510), performance("n1"))

    assert place.pending_writes() == {"n1": ["spec", "status", "label"]}
