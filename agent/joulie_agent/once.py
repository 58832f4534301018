"""Reads everything of a node once."""

from collections.abc import Iterable

from msgspec.structs import replace

from joulie_agent.kubelet.pod_resources import SOCKET, KubeletSilent, pods_of_cards
from joulie_agent.report import Card, NodeReport
from joulie_agent.sources import amdgpu, hwmon, machine, nvml, powercap
from joulie_agent.sources.host import Findings, Host


async def read_once(node: str, host: Host) -> NodeReport:
    """Publishes nothing. A source that is absent is listed with the reason."""
    found = Findings()
    hardware = machine.read(host, found)
    powercap.read(host, found)
    hwmon.read(host, found)
    cards = (*nvml.read(host, found), *amdgpu.read(host, found))
    cards = await _with_pods(cards, host, found)
    if not found.readings:
        found.lacks("power", _no_meter(virtual=hardware.virtual))
    return NodeReport(
        node=node,
        hardware=hardware,
        readings=tuple(found.readings),
        cards=cards,
        caps=tuple(found.caps),
        not_available=tuple(found.missing),
    )


async def _with_pods(cards: Iterable[Card], host: Host, found: Findings) -> tuple[Card, ...]:
    """The cards with the pods that the kubelet gave them to."""
    try:
        pods = await pods_of_cards(host.path(SOCKET))
    except KubeletSilent as error:
        found.lacks("kubelet", error)
        pods = {}
    return tuple(replace(card, pods=tuple(pods.get(card.uuid, ()))) for card in cards)


def _no_meter(*, virtual: bool) -> str:
    if virtual:
        return "this is a virtual machine without a meter; the machine below it has them"
    return "no power source here: neither RAPL, nor a sensor of the board, nor a card with one"
