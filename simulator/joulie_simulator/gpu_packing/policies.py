"""The compared policies: kube-scheduler alone, the article's formula, and Joulie's /gpu.

Joulie's policy calls the code behind `/gpu/prioritize` and `/gpu/bind`, with cards that are claimed
as in the log.
"""

from collections.abc import Callable, Sequence

import numpy as np

from joulie_bus.events import GpuAsk, PodAsk
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.scoring import gpu_score
from joulie_extender.gpu.card_choice import choose_cards
from joulie_extender.gpu.fit import GpuWeights
from joulie_projections.state.cards import CardState
from joulie_projections.state.state import NodeState
from joulie_projections.twin.arrays import Ints
from joulie_projections.twin.card_columns import Cards
from joulie_projections.twin.columns import TwinColumns
from joulie_simulator.gpu_packing.claims import AT, claimed
from joulie_simulator.gpu_packing.fragments import Article, Ask, BestFit, Farm, KubeDefault, Policy
from joulie_simulator.workload.workload import CARD_MB


class JouliePolicy(KubeDefault):
    """Joulie's /gpu for one cluster; every placement becomes a claim."""

    def __init__(self, farm: Farm, packing: str) -> None:
        self._weights = Weights(gpu=GpuWeights(packing=packing))
        self._names = [f"n{row}" for row in range(len(farm.gpus))]
        self._cards = {
            _uuid(row, card): _card(name, farm.linked[row])
            for row, name in enumerate(self._names)
            for card in range(farm.gpus[row])
        }
        nodes = {
            name: NodeState(
                ordinal=row,
                at=AT,
                present=True,
                cpu_milli=int(farm.milli[row]),
                gpus=int(farm.gpus[row]),
            )
            for row, name in enumerate(self._names)
        }
        twin_columns = TwinColumns.of(nodes, AT)
        self._twin_columns = twin_columns.with_cards(Cards.of(self._cards, twin_columns.rows))
        self._rows = np.arange(len(nodes)) + 1
        self._pods = 0

    def points(self, farm: Farm, ask: Ask) -> Ints:
        twin_columns = self._with_cores_of(farm)
        return gpu_score(self._pod(ask), twin_columns, self._rows, self._weights).answer

    def cards(self, farm: Farm, ask: Ask, row: int) -> Sequence[int]:
        pod, name = self._pod(ask), self._names[row]
        found = choose_cards(pod, name, self._twin_columns, self._weights.gpu)
        if (
            found is None or len(found.cards) != ask.gpus
        ):  # no annotation requests parts of several cards
            chosen = list(super().cards(farm, ask, row))
        else:
            chosen = [int(taken.card.partition("/")[2]) for taken in found.cards]
        self._claim(pod, [_uuid(row, card) for card in chosen], name, ask.mb)
        self._pods += 1
        return chosen

    def _pod(self, ask: Ask) -> PodAsk:
        """The pod with a memory request per card; exclusive only if it requests all of it."""
        is_whole = ask.mb >= CARD_MB
        return PodAsk(
            uid=f"u{self._pods}",
            namespace="openb",
            name="p",
            cpu_milli=ask.milli,
            gpu_milli=ask.gpus * 1000 if is_whole else 0,
            gpu_cards=ask.gpus if is_whole else 0,
            gpu=GpuAsk(vram_mb=ask.mb),
        )

    def _claim(self, pod: PodAsk, uuids: list[str], node: str, mb: int) -> None:
        changes: dict[str, CardState | None] = {}
        for uuid in uuids:
            held = claimed(self._cards[uuid], uuid, pod, mb)
            changes[uuid] = self._cards[uuid] = held
        twin_columns = self._twin_columns
        self._twin_columns = twin_columns.with_cards(
            twin_columns.cards.following(changes, twin_columns.rows)
        )

    def _with_cores_of(self, farm: Farm) -> TwinColumns:
        """The columns with the free cores of the farm, the only non-card input of the score."""
        twin_columns, columns = self._twin_columns, dict(self._twin_columns.columns)
        taken = np.concatenate(([0.0], (farm.milli - farm.free_milli) / farm.milli))
        columns["pods_cpu_w"] = taken * twin_columns.floats("cpu_max_w")
        return TwinColumns(
            twin_columns.rows, columns, twin_columns.planned_at, cards=twin_columns.cards
        )


def _uuid(row: int, card: int) -> str:
    return f"{row}/{card}"


def _card(node: str, is_linked: bool) -> CardState:
    return CardState(
        at=AT,
        node=node,
        model="",
        total_mb=CARD_MB,
        healthy=True,
        nvlink_group="0" if is_linked else "",
    )


# The policies of the table; each is created anew for every cluster that it fills.
POLICIES: dict[str, Callable[[Farm], Policy]] = {
    "kube-scheduler's default": lambda _: KubeDefault(),
    "the article's formula": lambda _: Article(),
    "the same, best fitting cards": lambda _: BestFit(),
    "Joulie's /gpu": lambda farm: JouliePolicy(farm, "share"),
    "Joulie's /gpu, gpu_packing=fit": lambda farm: JouliePolicy(farm, "fit"),
}
