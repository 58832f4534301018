"""What single facts change: those of operators of a cluster, of meters, and of writers of caps."""

from msgspec.structs import replace

from bus_kit import (
    asleep,
    bound,
    hardware,
    node_seen,
    noon,
    one_of_each,
    power,
    waking,
)
from bus_kit.plans import closed, evicting, opened
from joulie_bus.events import (
    CapsApplied,
    CapsRefused,
    FacilityPolled,
    Fact,
    GridPriced,
    NamespaceSeen,
    PodFinished,
    TargetSet,
    WorkloadClass,
)
from joulie_projections.fold.registry import evolve
from joulie_projections.state.state import (
    MOST_TARGETS,
    ClusterRow,
    ClusterState,
    FacilityReading,
    FacilityState,
    NodeState,
    Target,
)
from joulie_projections.state.state_changes import Draft


def after(*facts: Fact) -> ClusterState:
    """The first at noon, each other one a second after the one before."""
    cluster_state = ClusterState()
    draft = Draft(cluster_state)
    for second, fact in enumerate(facts):
        evolve(draft, fact, noon(second))
    draft.commit()
    return cluster_state


def node_after(*facts: Fact) -> NodeState:
    return after(*facts).nodes["n"]


def cluster_after(*facts: Fact) -> ClusterRow:
    [row] = after(*facts).cluster.values()
    return row


# --- hardware -----------------------------------------------------------------------------------


def test_hardware_from_labels_never_replaces_a_discovery() -> None:
    labelled = replace(hardware("n", watts=300), source="labels")
    newer = replace(labelled, cpu_cores=8)
    found = hardware("n")

    assert node_after(labelled).hardware == labelled
    assert node_after(node_seen("n"), labelled).hardware == labelled
    assert node_after(labelled, newer).hardware == newer
    assert node_after(labelled, found).hardware == found
    assert node_after(found, labelled).hardware == found


# --- orders -------------------------------------------------------------------------------------


def test_a_writer_reports_the_caps_that_it_applied_or_why_it_did_not() -> None:
    applied = CapsApplied(node="n", cpu_mw_per_socket=200_000, gpu_mw=None)
    refused = CapsRefused(node="n", because="read-only")

    node = node_after(node_seen("n"), applied)
    assert (node.applied_at, node.applied_cpu_mw, node.applied_gpu_mw) == (noon(1), 200_000, None)
    node = node_after(applied, refused)
    assert (node.applied_at, node.refused_caps) == (noon(), "read-only")
    assert node_after(refused, applied).refused_caps == ""


def test_a_node_is_closed_to_pods_until_it_is_opened() -> None:
    assert node_after(node_seen("n"), closed("n")).closed_at == noon(1)
    assert node_after(closed("n"), opened("n")).closed_at == 0


def test_an_order_to_evict_ends_with_the_sleep_that_it_belongs_to() -> None:
    asleep_now = (node_seen("n"), asleep("n"), evicting("n"))

    assert node_after(*asleep_now).evict_at == noon(2)
    assert node_after(*asleep_now, waking("n")).evict_at == 0
    assert node_after(*asleep_now, asleep("n")).evict_at == 0


def test_a_node_wakes_at_once_only_if_it_is_still_in_use() -> None:
    seen = node_seen("n")
    for unusable in (replace(seen, ready=False), replace(seen, schedulable=False)):
        woken = node_after(unusable, asleep("n"), waking("n"))
        assert (woken.power_state, woken.power_at) == ("waking", noon(2))
        assert node_after(unusable, asleep("n"), waking("n"), unusable).power_state == "waking"
        assert node_after(unusable, asleep("n"), waking("n"), seen).power_state == ""

    woken = node_after(seen, asleep("n"), waking("n"))
    assert (woken.power_state, woken.power_at) == ("", noon(2))


# --- the cluster --------------------------------------------------------------------------------


def of_namespace(name: str, workload: WorkloadClass | None) -> NamespaceSeen:
    return NamespaceSeen(namespace=name, workload=workload)


def test_a_namespace_has_the_class_that_it_named_last() -> None:
    facts = (of_namespace("a", "performance"), of_namespace("b", "standard"))

    assert cluster_after(*facts).namespaces == {"a": "performance", "b": "standard"}
    changed = of_namespace("a", "standard")
    assert cluster_after(*facts, changed).namespaces == {"b": "standard", "a": "standard"}
    assert cluster_after(*facts, of_namespace("a", None)).namespaces == {"b": "standard"}


def target(name: str, watts: int | None, ends_s: float = 3600) -> TargetSet:
    power_mw = None if watts is None else watts * 1000
    return TargetSet(
        target=name, power_mw=power_mw, feed="f", starts_at=noon(9), ends_at=noon(ends_s),
        because="a call",
    )  # fmt: skip


def test_a_target_holds_until_it_is_withdrawn_or_has_ended() -> None:
    first, short = target("first", 100), target("short", 50, ends_s=2)

    assert cluster_after(first).targets == {
        "first": Target(100_000, noon(9), noon(3600), "f", "a call")
    }
    assert set(cluster_after(first, short).targets) == {"first", "short"}
    assert set(cluster_after(short, first, first).targets) == {"first"}  # at the end of the other
    assert cluster_after(first, target("first", 70)).targets["first"].power_mw == 70_000
    assert cluster_after(first, target("first", None)).targets == {}


def test_of_too_many_targets_those_go_that_end_first() -> None:
    given = [target(f"{number}", 100, ends_s=3600 + number) for number in range(MOST_TARGETS + 1)]

    kept = cluster_after(*given).targets

    assert set(kept) == {each.target for each in given[1:]}


def test_what_caps_save_is_kept_for_each_class_with_its_time() -> None:
    [measured] = [each for each in one_of_each() if each.TYPE == "caps.measured"]
    other = replace(measured, workload="performance", mid_permille=7)

    effects = cluster_after(measured, other, measured).cap_effects  # type: ignore[arg-type]

    assert {name: (of.at, of.measured) for name, of in effects.items()} == {
        "standard": (noon(2), measured),
        "performance": (noon(1), other),
    }


# --- facilities ---------------------------------------------------------------------------------


def poll(it_mw: int | None = None, cooling_mw: int | None = None) -> FacilityPolled:
    return FacilityPolled(facility="hall", it_mw=it_mw, cooling_mw=cooling_mw)


def hall_after(*facts: Fact) -> FacilityState:
    return after(*facts).facilities["hall"]


def test_powers_of_a_hall_with_an_implausible_ratio_are_discarded() -> None:
    plausible, wrong = poll(1000, 500), poll(1000, 2001)

    assert hall_after(plausible, poll(1000, 2000)).cooling_mw == FacilityReading(noon(1), 2000)
    for later in (wrong, poll(cooling_mw=2001), poll(it_mw=200)):
        after_wrong = hall_after(plausible, later)
        assert after_wrong.it_mw == FacilityReading(noon(), 1000)
        assert after_wrong.cooling_mw == FacilityReading(noon(), 500)
    assert hall_after(wrong) == FacilityState()
    assert hall_after(poll(it_mw=1000)).it_mw == FacilityReading(noon(), 1000)
    assert hall_after(poll(cooling_mw=9)).cooling_mw == FacilityReading(noon(), 9)


def test_the_grid_changes_no_state() -> None:
    [priced] = [each for each in one_of_each() if isinstance(each, GridPriced)]

    assert after(priced).facilities == {}


# --- arrivals -----------------------------------------------------------------------------------


def arrivals_after(*facts: tuple[float, Fact]) -> list[str]:
    """The pods that the newest reading may not include."""
    cluster_state = ClusterState()
    draft = Draft(cluster_state)
    for second, fact in facts:
        evolve(draft, fact, noon(second))
    draft.commit()
    return [arrival.uid for arrival in cluster_state.nodes["n"].arrivals]


def test_a_reading_includes_a_pod_once_it_ran_for_ten_seconds() -> None:
    read, pod = (0, power("n", 100)), (5, bound("p", "n"))

    assert arrivals_after(read, pod) == ["p"]
    assert arrivals_after(read, pod, (14.9, power("n", 100))) == ["p"]
    assert arrivals_after(read, pod, (15, power("n", 100))) == []
    assert arrivals_after(read, pod, (10, bound("q", "n")), (16, power("n", 100))) == ["q"]
    assert arrivals_after(pod, (6, bound("q", "n")), (15.5, bound("r", "n"))) == ["q", "r"]
    assert arrivals_after(read, pod, (6, PodFinished(uid="p"))) == []


def test_a_late_reading_includes_what_ran_when_it_was_made() -> None:
    late = replace(power("n", 100), late_ms=4_000)

    assert arrivals_after((5, bound("p", "n")), (18, late)) == ["p"]
    assert arrivals_after((5, bound("p", "n")), (19, late)) == []
