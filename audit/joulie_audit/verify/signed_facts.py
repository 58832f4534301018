"""Compares the chain of manifests with the positions that heads sign."""

from collections import deque
from collections.abc import Sequence

from joulie_audit.replay.set_backs import SetBacks
from joulie_projections.chain.head import Head
from joulie_projections.fold.manifest import Manifest
from joulie_projections.history.history import History


class SignedFacts:
    """To be asked about one manifest after the other."""

    def __init__(self, heads: Sequence[Head]) -> None:
        by_position = {head.commitment.position: head for head in heads}
        self._heads = deque(by_position[at] for at in sorted(by_position) if at)

    def flaw_of(self, manifest: Manifest) -> str:
        """Why the manifest is not the signed one; empty if it is, or if nothing signs it."""
        while self._heads and self._heads[0].commitment.position <= manifest.p_to:
            head = self._heads.popleft()
            said = head.commitment
            is_within = said.position >= manifest.p_from  # else it was trimmed
            if is_within and (said.position, said.manifest) != (manifest.p_to, manifest.head):
                return f"the manifest at {manifest.p_to} does not match the head at {head.pos}"
        return ""

    def flaw_behind(self, position: int) -> str:
        if not self._heads:
            return ""
        last = self._heads[-1]
        to = last.commitment.position
        return f"the head at {last.pos} signs the facts up to {to}, and they end at {position}"


def signed_facts(history: History, heads: Sequence[Head]) -> SignedFacts:
    """Without the facts that the database lost and folded again."""
    lost = SetBacks.of(history)
    return SignedFacts([head for head in heads if not _is_lost(head, lost)])


def _is_lost(head: Head, lost: SetBacks) -> bool:
    said = head.commitment
    return lost.took_back(said.incarnation, said.position, said.signed_at)
