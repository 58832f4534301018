"""Which devices of DRA a pod would take on a node, as far as the allocator's order says.

kube-scheduler takes the first device that fits: from 1.36 on by the names of driver, pool and
slice, and by the order within the slice. Older ones take pools in random order, and the facts then
name no slice. Which device fits is known where any device of a driver does, and where each device
is a whole card; otherwise only their number is.
"""

from typing import NamedTuple

from joulie_bus.events import DeviceSeen, PodAsk
from joulie_projections.state.state import ClusterState


class Takes(NamedTuple):
    """On one node."""

    node: str
    number: int
    devices: tuple[str, ...]  # in the order of the allocator; empty: which ones is not known
    why_not: str = ""  # why they are not named


def takes(pod: PodAsk, node: str, state: ClusterState, before: int | None) -> Takes | None:
    """By the state of the decision; None for a pod that takes no devices, or an unknown number.

    `before` are devices that other pods in flight take there first; None: not known.
    """
    asked = [_asked(pod, claim, state) for claim in pod.devices.claims]
    counts = [count for count, _ in asked if count is not None]
    count = sum(counts)
    if not count or len(counts) < len(asked):
        return None
    drivers = {driver for count, driver in asked if count}
    found = [card.device for card in state.gpus.values() if card.device and card.node == node]
    why = _why_not(drivers, found) or ("" if before is not None else IN_FLIGHT)
    if why:
        return Takes(node, count, (), why)
    [driver] = drivers
    free = sorted(filter(_is_free, _of(driver, found)), key=_order)
    first = before or 0
    names = tuple(each.device for each in free[first : first + count])
    if len(names) < count:
        return Takes(node, count, (), "fewer of them were free in the view")
    return Takes(node, count, names)


ORDER = "kube-scheduler takes pools in random order, or a device is not a whole card"
SELECTORS = "its claims choose devices by more than their driver"
IN_FLIGHT = "other pods may take devices there first"


def _asked(pod: PodAsk, claim: str, state: ClusterState) -> tuple[int | None, str]:
    """The number, 0 for a claim that has its devices already, and the driver that serves it."""
    kind, _, name = claim.partition("/")
    allocated = (c for card in state.gpus.values() if card.device for c in card.device.claims)
    if kind == "claim" and any((c.namespace, c.name) == (pod.namespace, name) for c in allocated):
        return 0, ""
    return state.gpus_asked(pod.namespace, claim), state.driver_asked(pod.namespace, claim)


def _why_not(drivers: set[str], devices: list[DeviceSeen]) -> str:
    if len(drivers) != 1 or "" in drivers:
        return SELECTORS
    [driver] = drivers
    return "" if all(each.slice_name for each in _of(driver, devices)) else ORDER


def _of(driver: str, devices: list[DeviceSeen]) -> list[DeviceSeen]:
    return [each for each in devices if each.pool.partition("/")[0] == driver]


def _is_free(device: DeviceSeen) -> bool:
    return not device.claims and not device.taint


def _order(device: DeviceSeen) -> tuple[str, str, int]:
    return device.pool, device.slice_name, device.place


def in_words(found: Takes) -> str:
    if found.devices:
        return f"on {found.node} it would take {', '.join(found.devices)}"
    plural = "s" if found.number > 1 else ""
    return f"on {found.node} it would take {found.number} device{plural}; which: {found.why_not}"
