"""What a `GPU` resource shall say of its card: what Joulie has reserved of it. Pure."""

from typing import NamedTuple

from msgspec.structs import replace

from joulie_operator.kube.custom_resources import MANAGER, Gpu, GpuStatus
from joulie_projections.state.cards import CardState

AVAILABLE, RESERVED, ALLOCATED = "Available", "Reserved", "Allocated"
LONGEST_TRUCE_S = 60.0


FREE = GpuStatus(phase=AVAILABLE)


class Wish(NamedTuple):
    """`status` is all that we say of it."""

    name: str
    status: GpuStatus


def wish_of(gpu: Gpu, card: CardState | None) -> Wish | None:
    """None if there is nothing to write: it says so already, or nobody has a claim to it.

    A card that others give out is theirs to describe.
    """
    known, name = gpu.status or GpuStatus(), gpu.metadata.name
    if card is not None and card.claims:
        wanted = _claimed(card)
        # The kind of others has no field for a uid: there the server drops the one that we write.
        told = replace(known, healthy=True, pod_uid=known.pod_uid or wanted.pod_uid)
        return Wish(name, wanted) if told != wanted else None
    is_ours = gpu.metadata.is_managed_by(MANAGER)
    return Wish(name, FREE) if is_ours and replace(known, healthy=True) != FREE else None


def _claimed(card: CardState) -> GpuStatus:
    """A card that is shared names one of its pods: always the same one."""
    uid, first = min(card.claims.items())
    is_confirmed = any(claim.confirmed for claim in card.claims.values())
    return GpuStatus(
        allocated_vram_mb=sum(claim.mb for claim in card.claims.values()),
        pod_namespace=first.namespace,
        pod_name=first.name,
        pod_uid=uid,
        phase=ALLOCATED if is_confirmed else RESERVED,
    )


class Truces:
    """Somebody who writes his own again and again is overruled, but not raced with."""

    def __init__(self) -> None:
        self._written: dict[str, tuple[GpuStatus, int, float]] = {}

    def lets(self, wish: Wish, now_s: float) -> bool:
        """Asked before a write, which it then counts."""
        status, times, not_before = self._written.get(wish.name, (FREE, 0, 0.0))
        times = times + 1 if times and status == wish.status else 1
        if times > 1 and now_s < not_before:
            return False
        pause_s = min(LONGEST_TRUCE_S, 2.0**times)
        self._written[wish.name] = (wish.status, times, now_s + pause_s)
        return True
