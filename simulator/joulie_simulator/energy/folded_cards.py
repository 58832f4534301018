"""The cards of the simulated nodes, as agents or DRA report them: which pod holds which card."""

from collections.abc import Sequence

from msgspec.structs import replace

from joulie_bus.events import PodAsk
from joulie_projections.state.cards import CardState, Claim, is_idle
from joulie_projections.state.state import ClusterState
from joulie_simulator.energy.fleet import Fleet

CARD_MODEL = "simulated card"
CARD_MB = 80_000
AT = 1  # any time: the results do not depend on it


class FoldedCards:
    """A pod holds whole cards, the first free ones of its node."""

    def __init__(self, state: ClusterState, names: Sequence[str], fleet: Fleet) -> None:
        self._state = state
        self._of_node = [
            [f"{name}/{card}" for card in range(int(cards))]
            for name, cards in zip(names, fleet.cards, strict=True)
        ]
        self._changes = dict[str, CardState | None]()
        for name, uuids in zip(names, self._of_node, strict=True):
            for uuid in uuids:
                state.gpus[uuid] = CardState(
                    at=AT, node=name, model=CARD_MODEL, total_mb=CARD_MB, healthy=True
                )

    def changed(self) -> dict[str, CardState | None]:
        """The cards that changed since the last call."""
        found, self._changes = self._changes, {}
        return found

    def claim(self, pod: PodAsk, node: int) -> None:
        free = [uuid for uuid in self._of_node[node] if is_idle(self._state.gpus[uuid])]
        for uuid in free[: pod.gpu_cards]:
            card = self._state.gpus[uuid]
            claim = Claim(
                namespace=pod.namespace,
                name=pod.name,
                node=card.node,
                mb=CARD_MB,
                expires_at=AT,
                confirmed=True,
            )
            self._set(uuid, replace(card, claims={pod.uid: claim}))

    def release(self, uid: str, node: int) -> None:
        for uuid in self._of_node[node]:
            card = self._state.gpus[uuid]
            if uid in card.claims:
                self._set(uuid, replace(card, claims={}))

    def _set(self, uuid: str, card: CardState) -> None:
        self._state.gpus[uuid] = self._changes[uuid] = card
