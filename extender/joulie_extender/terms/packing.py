"""How well the cards of the pod fill up the cards of a node."""

from dataclasses import dataclass

from joulie_bus.core.setting_fields import choice, number, setting


@dataclass(frozen=True, kw_only=True)
class PackingSettings:
    gpu_binpack: float = setting(
        number(0, 10),
        "GPU_BINPACK_WEIGHT",
        "0.3",
        "Weight of how well a pod's cards fill up a node, for pods that say what cards they want",
    )
    gpu_packing: str = setting(
        choice("share", "fit"),
        "GPU_PACKING",
        "share",
        "Packing of cards: by the card memory in use on the node (share), or also by how well "
        "the pod fills a card and leaves cores for free cards (fit)",
    )
