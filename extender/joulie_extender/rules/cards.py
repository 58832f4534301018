"""Keeps pods that ask for GPU cards off nodes that do not have them."""

from joulie_bus.events import PodAsk
from joulie_extender.gpu.fit import GpuVerdict, PackingWeights, asks, gpu_verdicts, reason_of
from joulie_extender.rules.rule import Codes, Rule, RuleInput, Verdict

NO_CARDS = Verdict(
    GpuVerdict.NO_CARDS, "no cards", "it has not the free, healthy cards of one model"
)
NOT_LINKED = Verdict(
    GpuVerdict.NOT_LINKED, "no linked cards", "its free, healthy cards are not linked"
)
UNREADABLE = Verdict(
    GpuVerdict.UNREADABLE,
    "unreadable annotation",
    "an annotation of the pod about GPUs cannot be read",
)
_SHOWN = "The command joulie gpus shows the cards and their holders."


class CardsAsked(Rule[PackingWeights]):
    name = "cards"
    summary = "A pod gets no node without the free, healthy cards of its annotations"
    settings = PackingWeights
    is_about_cards = True
    advice = (
        (NO_CARDS, _SHOWN),
        (NOT_LINKED, _SHOWN),
        (UNREADABLE, "Correct the annotation of the pod."),
    )

    def is_for(self, pod: PodAsk) -> bool:
        return asks(pod)

    def verdicts(self, asked: RuleInput, settings: PackingWeights) -> Codes:
        aliases, gone = settings.gpu.aliases, asked.victims
        return gpu_verdicts(asked.pod, asked.twin_columns, asked.rows, aliases, gone)

    def reason(self, pod: PodAsk, _: PackingWeights) -> str:
        return reason_of(pod)
