"""The desired content of NodeTwins and node labels, computed from the state of a node.

`spec` is the plan, `status` the twin, the label the profile that the node has now. Measured numbers
are compared in steps, so that a node under constant load causes no writes.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from joulie_bus.events import Profile
from joulie_operator.planning.eligible import RESERVED_LABEL
from joulie_operator.resources.custom_resources import (
    CapState,
    Condition,
    CpuCap,
    GpuCap,
    GpuPowerCap,
    NodeTwin,
    NodeTwinSpec,
    NodeTwinStatus,
    PolicyName,
    PowerMeasurement,
    Scheduling,
)
from joulie_operator.resources.timestamps import rfc3339
from joulie_projections.hardware.catalog import invalid_counts
from joulie_projections.state.state import NodeState
from joulie_projections.twin.facility import NO_HALLS, Halls, is_polled
from joulie_projections.twin.totals import Measurement, measurement_of
from joulie_projections.twin.twin import (
    NodeClass,
    current_profile,
    hardware_of,
    profile_labels,
    twin_of,
)

POWER_LABEL = "joulie.io/power-state"
PLACEMENT_LABEL = "joulie.io/placement"
# kube-controller-manager does not count a node with this label, whatever its value, when it looks
# for a disrupted zone. The value says that the label is ours.
EXCLUSION_LABEL, EXCLUDED = "node.kubernetes.io/exclude-disruption", "joulie"
CLASSES: Mapping[NodeClass, str] = {
    NodeClass.UNKNOWN: "unknown",
    NodeClass.PERFORMANCE: "performance",
    NodeClass.ECO: "eco",
    NodeClass.DRAINING: "draining",
}
PROFILES: Mapping[str, Profile] = {"performance": "performance", "eco": "eco"}
SCORE_STEP = 5.0  # points of 100
POWER_STEP = 0.05  # of the node's maximum power
PUE_STEP = 0.05
FRESH_S = 300.0  # older readings are ignored


class StatusTimes(NamedTuple):
    """When a status is written, and when the newest fact about the node was stored."""

    now_ns: int
    fact_ns: int


class NodeContext(NamedTuple):
    """Inputs of a status that are not part of the node's own state."""

    halls: Halls = NO_HALLS
    psu_stress: float = 0.0


def is_managed(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    """Whether the operator writes about this node. Cordoned and unready nodes count, too."""
    return selector.items() <= labels.items() and labels.get(RESERVED_LABEL) != "true"


def spec_of(name: str, node: NodeState, policy: str) -> NodeTwinSpec | None:
    """None while no plan has named the node.

    The profile of a draining node is eco already; its caps stay as they are until it is empty.
    """
    profile: Profile | None = "eco" if node.draining else PROFILES.get(node.profile)
    if profile is None:
        return None
    return NodeTwinSpec(
        node_name=name,
        profile=profile,
        cpu=_cpu_cap(node),
        gpu=_gpu_cap(node),
        policy=PolicyName(name=policy) if policy else None,
        scheduling=Scheduling(draining=True) if node.draining else None,
    )


def without_caps(spec: NodeTwinSpec) -> NodeTwinSpec:
    return replace(spec, cpu=None, gpu=None)


def _cpu_cap(node: NodeState) -> CpuCap | None:
    """None without a cap; only watts where the maximum is unknown: percent of a guess is for
    budgets, and not for an agent."""
    is_guess = node.cpu_cap_mw_per_socket is not None and not (
        node.hardware is not None and node.hardware.cpu_max_mw_per_socket
    )
    cap = CpuCap(
        package_power_cap_pct_of_max=None if is_guess else node.cpu_cap_pct,
        package_power_cap_watts=_watts(node.cpu_cap_mw_per_socket),
    )
    return cap if cap != CpuCap() else None


def _gpu_cap(node: NodeState) -> GpuCap | None:
    if node.gpu_cap_pct is None and node.gpu_cap_mw is None:
        return None
    watts = _watts(node.gpu_cap_mw)
    cap = GpuPowerCap(scope="perGpu", cap_pct_of_max=node.gpu_cap_pct, cap_watts_per_gpu=watts)
    return GpuCap(power_cap=cap)


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def labels_of(node: NodeState) -> dict[str, str]:
    """The labels of its profile, always together, so that a change touches the Node once; `asleep`
    while the node is to sleep, which the component that switches nodes follows; the exclusion until
    it is ready again; and `closed` for a power target. When a label changes, kube-scheduler tries
    pods again that it could not place."""
    labels = profile_labels(node)
    if node.power_state:
        labels[EXCLUSION_LABEL] = EXCLUDED
    if node.power_state == "asleep":
        labels[POWER_LABEL] = "asleep"
    if node.closed_at:
        labels[PLACEMENT_LABEL] = "closed"
    return labels


def status_of(
    node: NodeState, before: NodeTwin, times: StatusTimes, context: NodeContext
) -> NodeTwinStatus:
    twin, measured = twin_of(node, context.halls), measurement_of(node, times.now_ns, FRESH_S)
    is_fresh = measured.age_s is not None and measured.age_s <= FRESH_S
    condition_states = _condition_states(node, is_fresh=is_fresh)
    return NodeTwinStatus(
        schedulable_class=CLASSES[twin.node_class],
        predicted_power_headroom_score=round(twin.headroom, 1),
        predicted_cooling_stress_score=round(twin.cooling, 1),
        cooling_model="linear",  # as `twin_of` computes it
        cooling_power="cap",
        predicted_psu_stress_score=round(context.psu_stress, 1),
        hardware_density_score=round(twin.density, 1),
        estimated_pue=max(1.0, round(twin.pue, 3)),
        estimated_pue_source="facility" if is_polled(node, context.halls) else "assumed",
        effective_cap_state=_caps(node),
        power_measurement=_power(node, measured),
        performance_pods=node.performance_pods,
        conditions=_conditions(before, condition_states, rfc3339(times.now_ns)),
        observed_generation=before.metadata.generation,
        last_updated=rfc3339(times.fact_ns),
    )


def first_status(status: NodeTwinStatus) -> NodeTwinStatus:
    """The class and the scores. A whole status costs the API server more than twice as much, so
    that on an empty cluster each NodeTwin gets these fields first.
    """
    return NodeTwinStatus(
        schedulable_class=status.schedulable_class,
        predicted_power_headroom_score=status.predicted_power_headroom_score,
        predicted_cooling_stress_score=status.predicted_cooling_stress_score,
        observed_generation=status.observed_generation,
        last_updated=status.last_updated,
    )


def is_first(known: NodeTwinStatus, wanted: NodeTwinStatus) -> bool:
    """Whether only the fields of a first status are known, and the class is still right."""
    return known.conditions is None and known.schedulable_class == wanted.schedulable_class


def _caps(node: NodeState) -> CapState | None:
    """None instead of an empty object: some clients drop empty objects when they read."""
    caps = CapState(
        cpu_pct=node.cpu_cap_pct,
        gpu_pct=node.gpu_cap_pct,
        cpu_watts_per_socket=_watts(node.cpu_cap_mw_per_socket),
        gpu_watts=_watts(node.gpu_cap_mw),
    )
    return caps if caps != CapState() else None


def differs(known: NodeTwinStatus | None, wanted: NodeTwinStatus) -> bool:
    """Whether anything but the measured numbers differs."""
    return known is None or _plain(known) != _plain(wanted)


def differs_only_in_numbers(before: NodeState | None, after: NodeState | None) -> bool:
    """Whether the statuses of two states of a node can differ in measured numbers only."""
    if before is None or after is None:
        return False
    with_numbers = replace(
        before,
        at=after.at,
        samples=after.samples,
        arrivals=after.arrivals,
        load=after.load,
        pods=after.pods,
        performance_pods=after.performance_pods,
        daemon_pods=after.daemon_pods,
        emptied_at=after.emptied_at,
    )
    # A first reading, or one after a silence, changes what the conditions say.
    is_continued = abs(_read_at(after) - _read_at(before)) < FRESH_S * 1_000_000_000
    return with_numbers == after and is_continued


def _read_at(node: NodeState) -> int:
    return node.samples[-1].at if node.samples else 0


def has_moved(known: NodeTwinStatus, wanted: NodeTwinStatus) -> bool:
    """Whether a measured number differs by more than its step."""
    scores = (
        (known.predicted_power_headroom_score, wanted.predicted_power_headroom_score),
        (known.predicted_cooling_stress_score, wanted.predicted_cooling_stress_score),
        (known.predicted_psu_stress_score, wanted.predicted_psu_stress_score),
        (known.hardware_density_score, wanted.hardware_density_score),
    )
    before = known.power_measurement or PowerMeasurement()
    after = wanted.power_measurement or PowerMeasurement()
    watts = (
        (before.measured_node_power_w, after.measured_node_power_w),
        (before.power_trend_w_per_min, after.power_trend_w_per_min),
        (before.node_capped_power_w, after.node_capped_power_w),
        (before.node_tdp_w, after.node_tdp_w),
    )
    if known.performance_pods != wanted.performance_pods:
        return True
    if _differ_by(known.estimated_pue, wanted.estimated_pue, PUE_STEP):
        return True
    if (before.source, before.provider) != (after.source, after.provider):
        return True
    step_w = POWER_STEP * (after.node_tdp_w or 0.0)
    return any(_differ_by(*pair, SCORE_STEP) for pair in scores) or any(
        _differ_by(*pair, step_w) for pair in watts
    )


def _differ_by(one: float | None, other: float | None, step: float) -> bool:
    if one is None or other is None:
        return one is not other
    return abs(one - other) > step


def _plain(status: NodeTwinStatus) -> NodeTwinStatus:
    """The fields that are written without delay. Fields of other writers are left out."""
    return NodeTwinStatus(
        schedulable_class=status.schedulable_class,
        estimated_pue_source=status.estimated_pue_source,
        effective_cap_state=status.effective_cap_state,
        conditions=[
            replace(condition, message="", last_transition_time="")
            for condition in status.conditions or []
            if condition.type in OUR_CONDITIONS
        ],
        observed_generation=status.observed_generation,
    )


def _power(node: NodeState, measured: Measurement) -> PowerMeasurement:
    """From a reading, else from the model of the pods, else from the caps; see `source`."""
    return PowerMeasurement(
        source=measured.source,
        provider=measured.provider,
        measured_node_power_w=round(measured.measured_w, 1),
        power_trend_w_per_min=round(measured.trend_w_per_min, 1),
        node_capped_power_w=round(measured.node_capped_w, 1),
        cpu_capped_power_w=round(measured.cpu_capped_w, 1),
        gpu_capped_power_w=round(measured.gpu_capped_w, 1),
        node_tdp_w=round(measured.node_tdp_w, 1),
        cpu_tdp_w=round(measured.cpu_tdp_w, 1),
        gpu_tdp_w=round(measured.gpu_tdp_w, 1),
        measured_at=rfc3339(node.samples[-1].at) if node.samples else "",
    )


OUR_CONDITIONS = ("Planned", "Draining", "HardwareKnown", "PowerMeasured", "Awake", "Schedulable")
_NOT_AWAKE = {"asleep": "Asleep", "waking": "WakingUp"}  # reasons by power state


class _ConditionState(NamedTuple):
    """A condition without its transition time."""

    type: str
    holds: bool
    reason: str
    message: str = ""


def _conditions(
    before: NodeTwin, condition_states: Sequence[_ConditionState], stamp: str
) -> list[Condition]:
    """A condition keeps its transition time until its status changes."""
    known = {each.type: each for each in (before.status or NodeTwinStatus()).conditions or []}
    made = []
    for each in condition_states:
        status: Literal["True", "False"] = "True" if each.holds else "False"
        last = known.get(each.type)
        since = last.last_transition_time if last and last.status == status else ""
        made.append(
            Condition(
                type=each.type,
                status=status,
                reason=each.reason,
                message=each.message,
                observed_generation=before.metadata.generation,
                last_transition_time=since or stamp,
            )
        )
    return made


def _condition_states(node: NodeState, *, is_fresh: bool) -> list[_ConditionState]:
    is_planned = bool(current_profile(node))
    planned = _ConditionState("Planned", is_planned, "Assigned" if is_planned else "NoPlanYet")
    draining = _ConditionState("Draining", False, "NotDraining")
    if node.draining:
        pods = f"{node.performance_pods} performance pods still run here"
        draining = _ConditionState("Draining", True, "PerformancePodsRunning", pods)
    known = _hardware(node)
    measured = _ConditionState("PowerMeasured", False, "NoFreshReading", "the caps stand in for it")
    if is_fresh:
        measured = _ConditionState("PowerMeasured", True, "Fresh")
    # Only while a plan keeps the node asleep or wakes it; its transition time says since when.
    asleep = _NOT_AWAKE.get(node.power_state)
    awake = [_ConditionState("Awake", False, asleep)] if asleep else []
    return [planned, draining, known, measured, *awake, *_not_schedulable(node)]


def _not_schedulable(node: NodeState) -> list[_ConditionState]:
    """Only while no pod can be placed on the node, whatever its class."""
    if not node.ready:
        return [_ConditionState("Schedulable", False, "NotReady")]
    if not node.schedulable:
        return [_ConditionState("Schedulable", False, "Cordoned")]
    return []


def _hardware(node: NodeState) -> _ConditionState:
    """Labels, and errors in them, count only while no agent has described the node."""
    source = node.hardware.source if node.hardware is not None else ""
    guessed = _assumed_watts(node)
    if source not in ("", "labels"):
        return guessed or _ConditionState("HardwareKnown", True, "Discovered")
    if wrong := invalid_counts(node.labels):
        listed = ", ".join(f"{label}={value!r}" for label, value in wrong.items())
        return _ConditionState("HardwareKnown", False, "UnreadableLabel", f"not a number: {listed}")
    if source:
        return guessed or _ConditionState("HardwareKnown", True, "Labelled")
    return _ConditionState("HardwareKnown", False, "Guessed", "from what Kubernetes can allocate")


def _assumed_watts(node: NodeState) -> _ConditionState | None:
    """The condition for models whose watts neither the node nor the catalog gives."""
    found, assumed = node.hardware, hardware_of(node)
    if found is None:
        return None
    assumptions = []
    if not found.cpu_max_mw_per_socket:
        assumptions.append(
            f"CPU {found.cpu_model!r}: {assumed.cpu_max_w:g} W are assumed for all sockets"
        )
    if assumed.cards and not found.gpu_max_mw:
        assumptions.append(f"GPU {found.gpu_model!r}: {assumed.gpu_max_w:g} W are assumed for each")
    if not assumptions:
        return None
    what = "add the model to HARDWARE_CATALOG, or its range to the NodeHardware"
    return _ConditionState(
        "HardwareKnown", False, "WattsGuessed", f"{'; '.join(assumptions)}; {what}"
    )
