"""The desired status of a `GPU` resource: what Joulie has reserved of the card."""

from typing import NamedTuple

from msgspec.structs import replace

from joulie_bus.core.backoff import Backoff
from joulie_operator.resources.custom_resources import MANAGER, Gpu, GpuStatus
from joulie_projections.state.cards import CardState

AVAILABLE, RESERVED, ALLOCATED = "Available", "Reserved", "Allocated"
REPLACED = Backoff(2.0, 60.0)
FREE = GpuStatus(phase=AVAILABLE)


class StatusWrite(NamedTuple):
    """A status to write; it holds every field that the operator owns."""

    name: str
    status: GpuStatus


def status_write_of(gpu: Gpu, card: CardState | None) -> StatusWrite | None:
    """None if the status is up to date, or if another writer manages the unclaimed card."""
    known, name = gpu.status or GpuStatus(), gpu.metadata.name
    if card is not None and card.claims:
        wanted = _claimed(card)
        # Some CRDs of this kind have no field for the uid: the server drops what is written.
        effective = replace(known, healthy=True, pod_uid=known.pod_uid or wanted.pod_uid)
        return StatusWrite(name, wanted) if effective != wanted else None
    is_ours = gpu.metadata.is_managed_by(MANAGER)
    return StatusWrite(name, FREE) if is_ours and replace(known, healthy=True) != FREE else None


def _claimed(card: CardState) -> GpuStatus:
    """A shared card names one of its pods: the one with the smallest uid."""
    uid, first = min(card.claims.items())
    is_confirmed = any(claim.confirmed for claim in card.claims.values())
    return GpuStatus(
        allocated_vram_mb=sum(claim.mb for claim in card.claims.values()),
        pod_namespace=first.namespace,
        pod_name=first.name,
        pod_uid=uid,
        phase=ALLOCATED if is_confirmed else RESERVED,
    )


class RepeatedWrites:
    """Delays the writes of a status that another writer keeps replacing."""

    def __init__(self) -> None:
        self._written: dict[str, tuple[GpuStatus, int, float]] = {}

    def allows(self, write: StatusWrite, now_s: float) -> bool:
        """Whether the write may happen now; if so, it is counted."""
        status, times, not_before = self._written.get(write.name, (FREE, 0, 0.0))
        times = times + 1 if times and status == write.status else 1
        if times > 1 and now_s < not_before:
            return False
        self._written[write.name] = (write.status, times, now_s + REPLACED.after(times))
        return True
