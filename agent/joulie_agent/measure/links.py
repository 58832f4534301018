"""Groups of linked cards."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet


def groups_of(peers: Mapping[str, AbstractSet[str]]) -> dict[str, str]:
    """Cards that reach one another through links share a group, named after its first member.

    `peers` has the other ends of each card's links; a switch is a peer, too, but no card.
    """
    group: dict[str, str] = {}
    for start in sorted(peers):
        if start in group or not peers[start]:
            continue
        reached, frontier = {start}, [start]
        while frontier:
            here = frontier.pop()
            ends = peers.get(here, frozenset()) | {
                other for other, its_peers in peers.items() if here in its_peers
            }
            frontier.extend(ends - reached)
            reached |= ends
        cards = sorted(reached & peers.keys())
        if len(cards) > 1:
            group |= dict.fromkeys(cards, f"link-{cards[0]}")
    return group
