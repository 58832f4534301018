"""How well the cards of the pod fill up the cards of a node."""

from dataclasses import dataclass

from joulie_bus.core.setting_fields import choice, number, setting
from joulie_extender.gpu.fit import PackingWeights, packing, points
from joulie_extender.terms.term import Term, TermInput
from joulie_projections.hardware.gpu_resources import GPU_RESOURCES
from joulie_projections.twin.arrays import Floats


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


class Packing(Term[PackingWeights]):
    name = "packing"
    head = "packing"
    meaning = "Points for a node whose cards the pod fills up"
    settings = PackingWeights
    before = (
        ("gpu_packing", "share"),
        ("gpu_balance", 0.4),
        ("gpu_resources", ",".join(GPU_RESOURCES)),
    )

    def value(self, asked: TermInput, settings: PackingWeights) -> Floats | None:
        return packing(asked.pod, asked.twin_columns, asked.rows, settings.gpu)


class PackingAlone(Packing):
    """Of a score from 0 to 10, for kube-schedulers that ask about cards alone."""

    def value(self, asked: TermInput, settings: PackingWeights) -> Floats:
        return points(asked.pod, asked.twin_columns, asked.rows, settings.gpu)
