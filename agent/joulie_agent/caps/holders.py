"""The safe caps of single cards, which hold only while the pods of a card are those that the order
names: the next pod may be of class performance, and without orders its class is not known.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from joulie_agent.caps.writer import Order
from joulie_agent.sources.host import Host
from joulie_bus.events import CapOrder, SafeCard
from joulie_bus.runtime.logging import get_logger

# By the uuid of a card, or driver/pool/device of DRA: namespace/name of those that have it.
Pods = Mapping[str, Sequence[str]]
PodsOfCards = Callable[[], Awaitable[Pods]]
log = get_logger("caps")


def safe_of(order: CapOrder, pods: Pods) -> Order:
    """A card that no pod has, or a pod that the order does not name, has no safe cap."""
    cpu = order.safe_cpu_mw_per_socket
    return Order(
        cpu_uw=None if cpu is None else cpu * 1000,
        gpu_mw=order.safe_gpu_mw,
        card_mw={
            uuid: card.mw
            for uuid, card in order.safe_cards.items()
            if (has := _pods_of(uuid, card, pods)) and has <= set(card.pods)
        },
    )


def _pods_of(uuid: str, card: SafeCard, pods: Pods) -> set[str]:
    """A device plugin names the card by its UUID, and DRA by the device."""
    of_device = pods.get(card.device, ()) if card.device else ()
    return {*pods.get(uuid, ()), *of_device}


class KubeletPods:
    """The pods of each card as the kubelet gave them out; none while it does not answer."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._silent = False

    async def __call__(self) -> Pods:
        from joulie_agent.kubelet.pod_resources import SOCKET, KubeletSilent, pods_of_cards

        try:
            found = await pods_of_cards(self._host.path(SOCKET))
        except KubeletSilent as error:
            if not self._silent:
                what = "single cards have no safe caps until it answers"
                log.warning("kubelet_silent", why=str(error), what=what)
            self._silent = True
            return {}
        self._silent = False
        return found
