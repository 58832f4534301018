"""The product's own packing: facts are folded, and the functions that answer the verbs decide.

The columns are those of the folded state, and cards are claimed as `bind` claims them.
"""

import copy
from collections.abc import Sequence

import numpy as np

from joulie_bus.events import GpuAsk, PodAsk, PodBound, PodGone, PodPending
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.scoring import gpu_score, score
from joulie_extender.gpu.card_choice import choose_cards
from joulie_extender.gpu.fit import GpuWeights
from joulie_extender.gpu.models import Aliases
from joulie_extender.gpu.pool import Pool
from joulie_extender.gpu.shapes import CARD, Shape
from joulie_projections.fold.pod_facts import evolve_pod
from joulie_projections.state.cards import CardState
from joulie_projections.state.state import ClusterState, NodeState, Sample
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.arrays import Ints
from joulie_projections.twin.columns import TwinColumns
from joulie_simulator.gpu_packing.card_watts import hardware_of
from joulie_simulator.gpu_packing.claims import AT, claimed, released

CARD_MB = 100_000


class Product:
    """One cluster, and the log of its pods."""

    def __init__(
        self,
        pool: Pool,
        packing: str,
        models: Sequence[tuple[str, ...]] = (),
        scoring: str = "",
    ) -> None:
        """`models` are the sets of models that pods allow; each is a name in the catalog. Without
        a scoring, the scores are those of cards alone."""
        gpu = GpuWeights(packing=packing, aliases=_aliases(models))
        self._weights = Weights(gpu=gpu, scoring=scoring) if scoring else Weights(gpu=gpu)
        self._is_about_cards = not scoring
        self._names = [f"n{row}" for row in range(len(pool.nodes))]
        self._state = _state_of(pool, self._names)
        self._columns = TwinColumns.of_state(self._state)
        self._rows = np.arange(len(self._names)) + 1
        self._pods = 0

    def __deepcopy__(self, memo: dict[int, object]) -> "Product":
        """The columns cannot be copied: they are computed again."""
        made = copy.copy(self)
        made._state = copy.deepcopy(self._state, memo)
        columns = TwinColumns.of_state(made._state)
        made._columns = columns.with_gpu_demand(made._state.gpu_demand)
        return made

    def arrives(self, shape: Shape) -> PodAsk:
        self._pods += 1
        pod = _pod(f"u{self._pods}", shape)
        draft = Draft(self._state)
        evolve_pod(draft, PodPending(pod=pod), AT)
        draft.commit()
        self._columns = self._columns.with_gpu_demand(self._state.gpu_demand)
        return pod

    def scores(self, pod: PodAsk) -> Ints:
        if self._is_about_cards:
            return gpu_score(pod, self._columns, self._rows, self._weights).answer
        return score(pod, self._columns, self._rows, AT, 0, self._weights).answer

    def cards(self, pod: PodAsk, row: int) -> list[int]:
        found = choose_cards(pod, self._names[row], self._columns, self._weights.gpu)
        return [int(taken.card.partition("/")[2]) for taken in found.cards] if found else []

    def binds(self, pod: PodAsk, row: int, cards: Sequence[int], mb: int) -> None:
        uuids = [f"{row}/{card}" for card in cards]
        changes = {uuid: claimed(self._state.gpus[uuid], uuid, pod, mb) for uuid in uuids}
        self._folded(PodBound(pod=pod, node=self._names[row]), row, changes)

    def leaves(self, pod: PodAsk, row: int, cards: Sequence[int]) -> None:
        uuids = [f"{row}/{card}" for card in cards]
        changes = {uuid: released(self._state.gpus[uuid], uuid, pod) for uuid in uuids}
        self._folded(PodGone(uid=pod.uid), row, changes)

    def _folded(self, fact: PodBound | PodGone, row: int, changes: dict[str, CardState]) -> None:
        name, draft = self._names[row], Draft(self._state)
        evolve_pod(draft, fact, AT)
        draft.commit()
        self._state.gpus.update(changes)
        nodes = {name: self._state.nodes[name]}
        self._columns = self._columns.following(self._state, nodes, changes)


def mb_of(shape: Shape) -> int:
    return shape.share * CARD_MB // CARD


def _pod(uid: str, shape: Shape) -> PodAsk:
    """Whole cards as a resource, and a part of one by the annotation."""
    is_whole = shape.share >= CARD
    return PodAsk(
        uid=uid,
        namespace="openb",
        name="p",
        cpu_milli=shape.milli,
        gpu_milli=shape.gpu_milli,
        gpu_cards=shape.cards if is_whole else 0,
        gpu=GpuAsk(
            model="|".join(shape.models),
            share_milli=0 if is_whole else shape.share,
            vram_mb=1 if is_whole and shape.cards and not shape.models else 0,
        ),
    )


def _aliases(models: Sequence[tuple[str, ...]]) -> Aliases:
    names: dict[str, list[str]] = {}
    for allowed in sorted(set(models)):
        for model in allowed:
            names.setdefault(model, [model]).append("|".join(allowed))
    return tuple(tuple(dict.fromkeys(each)) for _, each in sorted(names.items()))


def _state_of(pool: Pool, names: Sequence[str]) -> ClusterState:
    state = ClusterState()
    for row, (name, node) in enumerate(zip(names, pool.nodes, strict=True)):
        found = hardware_of(name, node)
        state.nodes[name] = NodeState(
            ordinal=row,
            at=AT,
            present=True,
            cpu_milli=node.milli,
            gpus=node.cards,
            hardware=found.hardware,
            samples=(Sample(at=AT, power_mw=found.idle_w * 1000),),
        )
        for card in range(node.cards):
            state.gpus[f"{row}/{card}"] = CardState(
                at=AT, node=name, model=node.model, total_mb=CARD_MB, healthy=True
            )
    return state
