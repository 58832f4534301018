"""Dispatches a fact to the function that folds it.

The same facts in the same order give the same state, live and in a
replay.
"""

from typing import assert_never

from msgspec.structs import replace

from joulie_bus.events import (
    CapsApplied,
    CapsMeasured,
    CapsRefused,
    CapsSet,
    CapsSettable,
    CardClaimed,
    CardFact,
    ClaimConfirmed,
    ClaimEvent,
    ClaimReleased,
    DeviceGone,
    DevicesAsked,
    DeviceSeen,
    DrainingBegun,
    EvictionOrdered,
    FacilityPolled,
    Fact,
    GpuGone,
    GpuSeen,
    GridFact,
    GridIntensity,
    GridPriced,
    HardwareDiscovered,
    InventoryRead,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    NodeUse,
    PlacementClosed,
    PlacementOpened,
    PlanEvent,
    PlanMade,
    PodBound,
    PodFinished,
    PodGone,
    PodPending,
    PodsUsed,
    ProfileAssigned,
    Resized,
    ResizeOrdered,
    ResizeRefused,
    SleepOrdered,
    TargetSet,
    TelemetrySampled,
    TransitionCompleted,
    WakeOrdered,
)
from joulie_projections.fold.inventory import drop_cards, read_inventory
from joulie_projections.fold.node_facts import (
    change_node,
    cluster_of,
    evolve_node,
    sampled_power,
    settable_caps,
    wake_node,
)
from joulie_projections.fold.pod_facts import evolve_pod
from joulie_projections.state.cards import CardState, after_claim, after_device, after_sighting
from joulie_projections.state.state import (
    CLUSTER,
    MOST_TARGETS,
    CapEffect,
    ClusterRow,
    FacilityReading,
    FacilityState,
    Target,
    asked_key,
)
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.facility import is_plausible


def evolve(draft: Draft, fact: Fact, at: int) -> None:
    """Folds one fact. `at` is when the broker stored it, the only time that a fold uses."""
    match fact:
        case TelemetrySampled():  # first, because most facts are
            sampled_power(draft, fact, at)
        case NodeSeen() | NodeGone() | HardwareDiscovered():
            _evolve_node(draft, fact, at)
        case PodPending() | PodBound() | PodFinished() | PodGone():
            evolve_pod(draft, fact, at)
        case FacilityPolled() | GridPriced() | GridIntensity() | PodsUsed():
            _polled(draft, fact, at)
        case NamespaceSeen() | TargetSet() | CapsMeasured() | DevicesAsked():
            _evolve_cluster(draft, fact, at)
        case (
            GpuSeen()
            | GpuGone()
            | DeviceSeen()
            | DeviceGone()
            | CardClaimed()
            | ClaimConfirmed()
            | ClaimReleased()
        ):
            _evolve_card(draft, fact, at)
        case InventoryRead() | CapsApplied() | CapsRefused() | CapsSettable():
            _evolve_by_agent(draft, fact, at)
        case _:
            _evolve_plan(draft, fact, at)


def _evolve_node(draft: Draft, fact: NodeSeen | NodeGone | HardwareDiscovered, at: int) -> None:
    if isinstance(fact, NodeGone):
        drop_cards(draft, fact.node, at)
    evolve_node(draft, fact, at)


def _evolve_by_agent(
    draft: Draft, fact: InventoryRead | CapsApplied | CapsRefused | CapsSettable, at: int
) -> None:
    match fact:
        case InventoryRead():
            read_inventory(draft, fact, at)
        case CapsApplied():
            change_node(
                draft,
                fact.node,
                at,
                applied_at=at,
                applied_cpu_mw=fact.cpu_mw_per_socket,
                applied_gpu_mw=fact.gpu_mw,
                applied_card_mw=fact.card_mw,
                applied_clock_mhz=fact.clock_mhz,
                refused_caps="",
            )
        case CapsRefused():
            change_node(draft, fact.node, at, refused_caps=fact.because)
        case CapsSettable():
            settable_caps(draft, fact, at)
        case _:
            assert_never(fact)


def _evolve_cluster(
    draft: Draft, fact: NamespaceSeen | TargetSet | CapsMeasured | DevicesAsked, at: int
) -> None:
    match fact:
        case NamespaceSeen():
            _namespace_seen(draft, fact)
        case TargetSet():
            _target_set(draft, fact, at)
        case CapsMeasured():
            cluster = cluster_of(draft)
            effects = cluster.cap_effects | {fact.workload: CapEffect(at, fact)}
            draft.cluster.put(CLUSTER, replace(cluster, cap_effects=effects))
        case DevicesAsked():
            _devices_asked(draft, fact)
        case _:
            assert_never(fact)


def _evolve_plan(draft: Draft, fact: PlanEvent, at: int) -> None:
    match fact:
        case PlanMade():
            draft.cluster.put(CLUSTER, replace(cluster_of(draft), planned_at=at, plan=fact))
        case ProfileAssigned() | TransitionCompleted():
            change_node(draft, fact.node, at, profile=fact.profile, draining=False, class_at=at)
        case DrainingBegun():
            change_node(draft, fact.node, at, draining=True, class_at=at)
        case CapsSet():
            change_node(
                draft,
                fact.node,
                at,
                cpu_cap_pct=fact.cpu_cap_pct,
                gpu_cap_pct=fact.gpu_cap_pct,
                cpu_cap_mw_per_socket=fact.cpu_cap_mw_per_socket,
                gpu_cap_mw=fact.gpu_cap_mw,
                standard_gpu_cap_pct=fact.standard_gpu_cap_pct,
                caps_at=at,
            )
        case ResizeOrdered() | Resized() | ResizeRefused():
            pass  # what a pod requests from then on is part of facts about the pod
        case _:
            _evolve_use(draft, fact, at)


def _evolve_use(draft: Draft, fact: NodeUse, at: int) -> None:
    match fact:
        case SleepOrdered():
            change_node(draft, fact.node, at, power_state="asleep", power_at=at, evict_at=0)
        case WakeOrdered():
            wake_node(draft, fact.node, at)
        case EvictionOrdered():
            change_node(draft, fact.node, at, evict_at=at)
        case PlacementClosed():
            change_node(draft, fact.node, at, closed_at=at)
        case PlacementOpened():
            change_node(draft, fact.node, at, closed_at=0)
        case _:
            assert_never(fact)


def _evolve_card(
    draft: Draft, fact: CardFact | DeviceSeen | DeviceGone | ClaimEvent, at: int
) -> None:
    if isinstance(fact, GpuSeen | GpuGone):
        _change_card(draft, fact.uuid, after_sighting(draft.gpus.get(fact.uuid), fact, at))
    elif isinstance(fact, DeviceSeen | DeviceGone):
        _change_card(draft, fact.card, after_device(draft.gpus.get(fact.card), fact, at))
    else:
        _change_card(draft, fact.card, after_claim(draft.gpus.get(fact.card), fact, at))


def _devices_asked(draft: Draft, fact: DevicesAsked) -> None:
    key = asked_key(fact.namespace, f"{fact.by}/{fact.name}")
    if fact.gpus is None:
        draft.cluster.drop(key)
    else:
        draft.cluster.put(key, ClusterRow(gpus_asked=fact.gpus, driver_asked=fact.driver))


def _change_card(draft: Draft, uuid: str, after: CardState | None) -> None:
    if after is None:
        draft.gpus.drop(uuid)
    else:
        draft.gpus.put(uuid, after)


def _namespace_seen(draft: Draft, seen: NamespaceSeen) -> None:
    cluster = cluster_of(draft)
    others = {name: of for name, of in cluster.namespaces.items() if name != seen.namespace}
    given = {seen.namespace: seen.workload} if seen.workload is not None else {}
    draft.cluster.put(CLUSTER, replace(cluster, namespaces=others | given))


def _target_set(draft: Draft, given: TargetSet, at: int) -> None:
    """Targets that have ended go when one is set; of too many, those go that end first."""
    cluster = cluster_of(draft)
    others = {name: of for name, of in cluster.targets.items() if name != given.target}
    if given.power_mw is not None:
        others[given.target] = Target(
            given.power_mw, given.starts_at, given.ends_at, given.feed, given.because
        )
    kept = sorted(others.items(), key=lambda item: (-item[1].ends_at, item[0]))[:MOST_TARGETS]
    targets = {name: target for name, target in kept if target.ends_at > at}
    draft.cluster.put(CLUSTER, replace(cluster, targets=targets))


def _polled(draft: Draft, polled: FacilityPolled | GridFact | PodsUsed, at: int) -> None:
    """Folds a poll. Powers with an implausible ratio to each other, or to the last valid reading,
    are discarded, because it is unknown which of the two meters is wrong.

    No twin and no plan depends on the grid or on what pods use; the ledger folds these facts.
    """
    if not isinstance(polled, FacilityPolled):
        return
    known = draft.facilities.get(polled.facility) or FacilityState()
    it = _read(known.it_mw, polled.it_mw, at)
    cooling = _read(known.cooling_mw, polled.cooling_mw, at)
    if it and cooling and not is_plausible(it.value, cooling.value):
        it, cooling = known.it_mw, known.cooling_mw
    ambient = _read(known.ambient_mdeg, polled.ambient_mdeg, at)
    after = FacilityState(ambient_mdeg=ambient, it_mw=it, cooling_mw=cooling)
    draft.facilities.put(polled.facility, after)


def _read(known: FacilityReading | None, value: int | None, at: int) -> FacilityReading | None:
    return known if value is None else FacilityReading(at, value)
