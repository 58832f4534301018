"""What the agent publishes about the hardware and the cards of its node."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from joulie_agent.kubelet.pod_resources import SOCKET, KubeletSilent, pods_of_cards
from joulie_agent.measure.pods import Devices
from joulie_agent.report import CapRange, Card, NodeReport
from joulie_agent.sources import amdgpu, machine, nvml, powercap
from joulie_agent.sources.host import Findings, Host
from joulie_bus.core.kube_names import is_label, is_subdomain, is_uid
from joulie_bus.events import CardRead, HardwareDiscovered, InventoryRead
from joulie_bus.events.bounds import CARD_NAME, is_card_name
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_projections.hardware.catalog import Catalog, with_catalog_figures
from joulie_projections.hardware.models import vendor_of

log = get_logger("agent")
POD_LOGS = "var/log/pods"
SEVERAL = "?"
MIG = "MIG-"  # of the uuid of a part of a card


def inventory_of(
    report: NodeReport, pods: Mapping[str, Sequence[str]], uids: Mapping[str, str], catalog: Catalog
) -> InventoryRead:
    """`pods` are the pods of each card by its UUID, `uids` their uids by namespace/name."""
    caps = {cap.component: cap for cap in report.caps}
    cards = tuple(_card(card, pods.get(card.uuid, ()), uids) for card in report.cards)
    return InventoryRead(
        node=report.node,
        hardware=with_catalog_figures(_hardware(report, caps), catalog),
        cards=cards,
    )


def uids_of_pods(host: Host) -> dict[str, str]:
    """The uids of the pods of this node by namespace/name. The kubelet keeps their logs in folders
    with these names; PodResources has no uids."""
    return dict(_uids(host.folders(host.path(POD_LOGS))))


def _uids(folders: Sequence[Path]) -> Iterator[tuple[str, str]]:
    for folder in folders:
        match folder.name.split("_"):
            case [namespace, pod, uid] if is_label(namespace) and is_subdomain(pod) and is_uid(uid):
                yield f"{namespace}/{pod}", uid
            case _:
                pass  # not of a pod


def _hardware(report: NodeReport, caps: Mapping[str, CapRange]) -> HardwareDiscovered:
    """Figures that the node does not tell stay 0; the catalog has them for known models."""
    cpu, cards = report.hardware.cpu, report.cards
    packages = [cap for cap in report.caps if cap.source == powercap.SOURCE and cap.max_watts]
    model = cards[0].model if cards else ""
    ranges = [caps[card.uuid] for card in cards if card.uuid in caps]
    return HardwareDiscovered(
        node=report.node,
        cpu_model=cpu.model,
        cpu_sockets=cpu.sockets,
        cpu_cores=cpu.threads,
        cpu_max_mw_per_socket=max((_mw(cap.max_watts) for cap in packages), default=0),
        gpu_model=model,
        gpu_count=len(cards),
        gpu_max_mw=max((_mw(cap.max_watts) for cap in ranges), default=0),
        gpu_min_mw=max((_mw(cap.min_watts) for cap in ranges), default=0),
        memory_bytes=report.hardware.memory_bytes,
        source="agent",
        gpu_vendor=vendor_of(model) or ("amd" if model.startswith("AMD") else ""),
    )


def _card(card: Card, pods: Sequence[str], uids: Mapping[str, str]) -> CardRead:
    """A card of one pod has an owner; of several, only that it is in use is known."""
    owner = uids.get(pods[0], "") if len(pods) == 1 else ""
    holder = "" if owner or not pods else pods[0] if len(pods) == 1 else SEVERAL
    return CardRead(
        uuid=card.uuid,
        model=card.model,
        total_mb=card.memory_mb,
        problem="; ".join(card.problems)[:256],
        link_group=card.link_group,
        owner=owner,
        holder=holder,
        power_limited_s=_whole(card.power_limited_s),
        heat_limited_s=_whole(card.heat_limited_s),
    )


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds)


def without_counts(found: InventoryRead) -> InventoryRead:
    """What changes now and then; how long a card was slowed down rises all the time."""
    cards = (replace(each, power_limited_s=None, heat_limited_s=None) for each in found.cards)
    return replace(found, cards=tuple(cards))


def _mw(watts: float | None) -> int:
    return round((watts or 0) * 1000)


def devices_of(
    found: InventoryRead, pods: Mapping[str, Sequence[str]], uids: Mapping[str, str]
) -> Devices:
    """A pod with a part of a card (MIG) has no meter of its own."""
    cards = {card.uuid for card in found.cards}
    known = {
        device: tuple(uids[pod] for pod in holders if pod in uids)
        for device, holders in pods.items()
    }
    parts = (uid for device, its in known.items() if device.startswith(MIG) for uid in its)
    return Devices(
        {card: known[card] for card in cards & known.keys()},
        found.hardware.gpu_max_mw,
        frozenset(parts),
    )


def show_limited(cards: Iterable[Card]) -> None:
    metrics.AGENT_LIMITED.clear()
    for card in cards:
        for by, seconds in (("power", card.power_limited_s), ("heat", card.heat_limited_s)):
            if seconds is not None:
                metrics.AGENT_LIMITED.labels(card=card.uuid, by=by).set(seconds)


class Inventory:
    """Reads the inventory of the node again and again."""

    def __init__(self, node: str, host: Host, catalog: Catalog) -> None:
        self._node = node
        self._host = host
        self._catalog = catalog
        self._pods: dict[str, list[str]] = {}
        self._silent = ""
        self._odd = set[str]()  # names that are left out
        self.devices = Devices()  # as of the last reading

    async def read(self, library: nvml.Library | None) -> InventoryRead:
        """While the kubelet does not answer, its last answer counts: a card that is in use does not
        become free because of that."""
        found = Findings()
        hardware = machine.read(self._host, found)
        powercap.read_limits(self._host, found)
        nvidia = nvml.cards_of(self._host, library, found) if library else ()
        report = NodeReport(
            node=self._node,
            hardware=hardware,
            cards=self._named((*nvidia, *amdgpu.cards_of(self._host, found))),
            caps=tuple(found.caps),
        )
        show_limited(report.cards)
        if report.cards:
            await self._ask_kubelet()
        uids = uids_of_pods(self._host)
        found_all = inventory_of(report, self._pods, uids, self._catalog)
        self.devices = devices_of(found_all, self._pods, uids)
        return found_all

    def _named(self, cards: Sequence[Card]) -> tuple[Card, ...]:
        """The cards whose names can be published. The others are logged once."""
        odd = {card.uuid for card in cards if not is_card_name(card.uuid)}
        for uuid in sorted(odd - self._odd):
            log.warning("left_out", what="card", which=uuid, why=f"no name of a card: {CARD_NAME}")
        self._odd = odd
        return tuple(card for card in cards if card.uuid not in odd)

    async def _ask_kubelet(self) -> None:
        try:
            self._pods = await pods_of_cards(self._host.path(SOCKET))
            self._silent = ""
        except KubeletSilent as error:
            if not self._silent:
                log.warning("kubelet_silent", why=str(error), meanwhile="its last answer counts")
            self._silent = str(error)
