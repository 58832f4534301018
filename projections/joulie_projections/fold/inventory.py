"""Folds what agents found on their nodes: hardware and cards."""

from collections.abc import Collection

from joulie_bus.events import CardRead, GpuGone, GpuSeen, InventoryRead
from joulie_projections.fold.node_facts import change_node
from joulie_projections.state.cards import CardState, after_sighting
from joulie_projections.state.state_changes import Draft


def read_inventory(draft: Draft, found: InventoryRead, at: int) -> None:
    """The agent's list replaces its former one: its cards that are not listed are gone.

    An agent reports for its own node only. A card that is on another node which is still there is
    left as it is, so that no agent takes cards of others.
    """
    accepted = [card for card in found.cards if _may_report(draft, found.node, card.uuid)]
    uuids = tuple(card.uuid for card in accepted)
    drop_cards(draft, found.node, at, kept=uuids)
    change_node(draft, found.node, at, hardware=found.hardware, agent_cards=uuids)
    for card in accepted:
        known = draft.gpus.get(card.uuid)
        _put(draft, card.uuid, after_sighting(known, _sighting(found.node, card), at))


def drop_cards(draft: Draft, node: str, at: int, kept: Collection[str] = ()) -> None:
    """Removes the cards that the node's agent reported, except those that are kept."""
    state = draft.nodes.get(node)
    for uuid in state.agent_cards if state is not None else ():
        if uuid not in kept:
            _put(draft, uuid, after_sighting(draft.gpus.get(uuid), GpuGone(uuid=uuid), at))


def _may_report(draft: Draft, node: str, uuid: str) -> bool:
    known = draft.gpus.get(uuid)
    if known is None or known.node in ("", node):
        return True
    other = draft.nodes.get(known.node)
    return other is None or not other.present


def _sighting(node: str, card: CardRead) -> GpuSeen:
    return GpuSeen(
        uuid=card.uuid,
        node=node,
        model=card.model,
        total_mb=card.total_mb,
        healthy=not card.problem,
        nvlink_group=card.link_group,
        owner=card.owner,
        holder=card.holder,
        source="agent",
        power_limited_s=card.power_limited_s,
        heat_limited_s=card.heat_limited_s,
    )


def _put(draft: Draft, uuid: str, after: CardState | None) -> None:
    if after is None:
        draft.gpus.drop(uuid)
    else:
        draft.gpus.put(uuid, after)
