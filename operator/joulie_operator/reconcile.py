"""From a world and a policy to plan events. Pure: state in, events out.

    performance ──(eco is wanted, performance pods still there)──> draining
    performance ──(eco is wanted, nobody left)──────────────────> eco
    draining ────(the last performance pod is gone)─────────────> eco
    draining ────(performance is wanted again)──────────────────> performance
    eco ─────────(performance is wanted)────────────────────────> performance

Classes come first and caps last: a node that drains keeps its performance caps until it is empty.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from joulie_bus.events import (
    CapsSet,
    DrainingBegun,
    Percent,
    PlanEvent,
    PlanMade,
    Profile,
    ProfileAssigned,
)
from joulie_operator.policies import Candidate, Wanted
from joulie_projections.twins import hardware_of
from joulie_projections.world import NodeState

RESERVED_LABEL = "joulie.io/reserved"
MOST_CORES = 192  # a dense node of today: 2 x 96 cores
MOST_GPUS = 8


class Caps(NamedTuple):
    """Percent of the maximum, for each profile."""

    cpu_performance: Percent = 100
    cpu_eco: Percent = 60
    gpu_performance: Percent = 100
    gpu_eco: Percent = 60


class Plan(NamedTuple):
    made: PlanMade
    changes: list[PlanEvent]


def candidates(nodes: Mapping[str, NodeState], selector: Mapping[str, str]) -> list[Candidate]:
    """Nodes that the operator may plan for, in the order of their names."""
    return [
        Candidate(name, _family(node), _density(node))
        for name, node in sorted(nodes.items())
        if is_eligible(node, selector)
    ]


def is_eligible(node: NodeState, selector: Mapping[str, str]) -> bool:
    usable = node.present and node.ready and node.schedulable
    reserved = node.labels.get(RESERVED_LABEL) == "true"
    return usable and not reserved and selector.items() <= node.labels.items()


def plan(
    wanted: Wanted, nodes: Mapping[str, NodeState], policy: str, view: int, caps: Caps
) -> Plan:
    plan_id = f"p{view}"
    changes = [
        change
        for name, profile in sorted(wanted.profiles.items())
        for change in transition(plan_id, name, nodes[name], profile, caps)
    ]
    made = PlanMade(
        plan=plan_id,
        policy=policy,
        view=view,
        nodes=len(wanted.profiles),
        performance=sum(profile == "performance" for profile in wanted.profiles.values()),
        changes=len(changes),
        inputs=wanted.inputs,
        because=wanted.because,
    )
    return Plan(made, changes)


def transition(
    plan_id: str, name: str, node: NodeState, profile: Profile, caps: Caps
) -> Iterator[PlanEvent]:
    """What has to happen next to bring one node where it is wanted; nothing if it is there."""
    if profile == "eco" and node.profile != "eco" and node.performance_pods:
        if not node.draining:
            yield DrainingBegun(
                plan=plan_id,
                node=name,
                performance_pods=node.performance_pods,
                because="eco is wanted, and performance pods still run here",
            )
        return
    if node.profile != profile or node.draining:
        yield ProfileAssigned(
            plan=plan_id, node=name, profile=profile, because=_because(node, profile)
        )
    yield from _caps(plan_id, name, node, profile, caps)


def _caps(
    plan_id: str, name: str, node: NodeState, profile: Profile, caps: Caps
) -> Iterator[CapsSet]:
    eco = profile == "eco"
    cpu = caps.cpu_eco if eco else caps.cpu_performance
    gpu = (caps.gpu_eco if eco else caps.gpu_performance) if hardware_of(node).gpus else None
    if (node.cpu_cap_pct, node.gpu_cap_pct) != (cpu, gpu):
        yield CapsSet(plan=plan_id, node=name, cpu_cap_pct=cpu, gpu_cap_pct=gpu)


def _because(node: NodeState, profile: Profile) -> str:
    if node.draining and profile == "eco":
        return "the last performance pod is gone"
    if node.draining:
        return "performance is wanted again"
    return f"the policy wants {profile} here"


def _family(node: NodeState) -> str:
    if node.hardware is None:
        return "gpu" if node.gpus else "cpu"
    return node.hardware.gpu_model or node.hardware.cpu_model


def _density(node: NodeState) -> float:
    """GPUs count at least as much as cores."""
    hardware = hardware_of(node)
    cores, gpus = hardware.cores / MOST_CORES, hardware.gpus / MOST_GPUS
    return (min(1.0, cores) + min(1.0, gpus)) / 2
