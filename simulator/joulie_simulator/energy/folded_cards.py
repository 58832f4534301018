"""The cards of the simulated nodes, as agents or DRA report them: which pod holds which card."""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from joulie_bus.events import PodAsk
from joulie_projections.state.cards import CardState, Claim
from joulie_projections.state.state import ClusterState
from joulie_simulator.energy.fleet import Fleet

CARD_MB = 80_000
AT = 1  # any time: the results do not depend on it


def card_model(fleet: Fleet, node: int) -> str:
    """Cards that draw as much are of one model."""
    return f"simulated card of {fleet.rated_card_w(node):g} W"


class FoldedCards:
    """A pod holds whole cards, the first free ones of its node. Where cards are shared by time, it
    holds parts of those with the fewest pods, as NVIDIA's device plugin gives them out.
    """

    def __init__(self, state: ClusterState, names: Sequence[str], fleet: Fleet) -> None:
        self._state = state
        self._of_node = [
            [f"{name}/{card}" for card in range(int(cards))]
            for name, cards in zip(names, fleet.physical_cards, strict=True)
        ]
        self._pods_per_card = fleet.cards // np.maximum(fleet.physical_cards, 1)
        self._changes = dict[str, CardState | None]()
        for number, (name, uuids) in enumerate(zip(names, self._of_node, strict=True)):
            for uuid in uuids:
                model = card_model(fleet, number)
                state.gpus[uuid] = CardState(
                    at=AT, node=name, model=model, total_mb=CARD_MB, healthy=True
                )

    def changed(self) -> dict[str, CardState | None]:
        """The cards that changed since the last call."""
        found, self._changes = self._changes, {}
        return found

    def claim(self, pod: PodAsk, node: int) -> None:
        shared = max(1, int(self._pods_per_card[node]))
        cards = [uuid for uuid in self._of_node[node] if len(self._claims(uuid)) < shared]
        for uuid in sorted(cards, key=lambda each: len(self._claims(each)))[: pod.gpu_cards]:
            card = self._state.gpus[uuid]
            claim = Claim(
                namespace=pod.namespace,
                name=pod.name,
                node=card.node,
                mb=CARD_MB // shared,
                expires_at=AT,
                confirmed=True,
            )
            self._set(uuid, replace(card, claims={**card.claims, pod.uid: claim}))

    def release(self, uid: str, node: int) -> None:
        for uuid in self._of_node[node]:
            card = self._state.gpus[uuid]
            if uid in card.claims:
                left = {pod: claim for pod, claim in card.claims.items() if pod != uid}
                self._set(uuid, replace(card, claims=left))

    def _claims(self, uuid: str) -> Mapping[str, Claim]:
        return self._state.gpus[uuid].claims

    def _set(self, uuid: str, card: CardState) -> None:
        self._state.gpus[uuid] = self._changes[uuid] = card
