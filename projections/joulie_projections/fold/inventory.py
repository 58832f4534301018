"""Folds what agents found on their nodes: hardware and cards."""

from collections.abc import Collection

from joulie_bus.events import CardRead, GpuSeen, InventoryRead
from joulie_projections.fold.node_facts import change_node
from joulie_projections.state.cards import (
    AGENT,
    CardState,
    after_listing,
    after_unlisting,
    is_elsewhere,
)
from joulie_projections.state.state_changes import Draft


def read_inventory(draft: Draft, found: InventoryRead, at: int) -> None:
    """The agent's list replaces its former one: its cards that are not listed are gone.

    An agent reports for its own node only, so a card that a resource or a driver has on another
    node is left as it is, and one that agents of several nodes list is contested.
    """
    accepted = [
        card for card in found.cards if not is_elsewhere(draft.gpus.get(card.uuid), found.node)
    ]
    uuids = tuple(card.uuid for card in accepted)
    drop_cards(draft, found.node, at, kept=uuids)
    change_node(draft, found.node, at, hardware=found.hardware, agent_cards=uuids)
    for card in accepted:
        known = draft.gpus.get(card.uuid)
        _put(draft, card.uuid, after_listing(known, _sighting(found.node, card), at))


def drop_cards(draft: Draft, node: str, at: int, kept: Collection[str] = ()) -> None:
    """Removes the cards that the node's agent reported, except those that are kept."""
    state = draft.nodes.get(node)
    for uuid in state.agent_cards if state is not None else ():
        if uuid not in kept:
            _put(draft, uuid, after_unlisting(draft.gpus.get(uuid), node, at))


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
        source=AGENT,
        power_limited_s=card.power_limited_s,
        heat_limited_s=card.heat_limited_s,
    )


def _put(draft: Draft, uuid: str, after: CardState | None) -> None:
    if after is None:
        draft.gpus.drop(uuid)
    else:
        draft.gpus.put(uuid, after)
