"""Builders: the events of plans."""

from joulie_bus.events import (
    CapsSet,
    DrainingBegun,
    EvictionOrdered,
    PlacementClosed,
    PlacementOpened,
    PlanMade,
    Profile,
    ProfileAssigned,
    SleepOrdered,
    TransitionCompleted,
    WakeOrdered,
)


def plan_made(plan: str = "p") -> PlanMade:
    return PlanMade(plan=plan, policy="static_partition", view=0, nodes=0, performance=0, changes=0)


def eco(node: str) -> ProfileAssigned:
    return ProfileAssigned(plan="p", node=node, profile="eco")


def performance(node: str) -> ProfileAssigned:
    return ProfileAssigned(plan="p", node=node, profile="performance")


def draining(node: str) -> DrainingBegun:
    return DrainingBegun(plan="p", node=node, performance_pods=1)


def caps(node: str, cpu: int | None = None, gpu: int | None = None) -> CapsSet:
    return CapsSet(plan="p", node=node, cpu_cap_pct=cpu, gpu_cap_pct=gpu)


def completed(node: str, profile: Profile = "eco") -> TransitionCompleted:
    return TransitionCompleted(plan="p", node=node, profile=profile)


def asleep(node: str) -> SleepOrdered:
    return SleepOrdered(plan="p", node=node)


def waking(node: str) -> WakeOrdered:
    return WakeOrdered(plan="p", node=node)


def evicting(node: str) -> EvictionOrdered:
    return EvictionOrdered(plan="p", node=node)


def closed(node: str) -> PlacementClosed:
    return PlacementClosed(plan="p", node=node)


def opened(node: str) -> PlacementOpened:
    return PlacementOpened(plan="p", node=node)
