"""Builders: cards and claims on them."""

from joulie_bus.events import CardClaimed, ClaimConfirmed, ClaimReleased, GpuSeen


def card(uuid: str, node: str = "n1", *, used_mb: int = 0) -> GpuSeen:
    return GpuSeen(
        uuid=uuid, node=node, model="NVIDIA H100 SXM5", total_mb=81_559, allocated_mb=used_mb
    )


def claim(uuid: str, uid: str, mb: int = 20_000, *, node: str = "n1") -> CardClaimed:
    """A claim that expires after a minute."""
    return CardClaimed(
        card=uuid, pod_uid=uid, namespace="team", name=uid, node=node, mb=mb, expires_s=60
    )


def confirmed(uuid: str, uid: str) -> ClaimConfirmed:
    return ClaimConfirmed(card=uuid, pod_uid=uid)


def released(uuid: str, uid: str) -> ClaimReleased:
    return ClaimReleased(card=uuid, pod_uid=uid, why="finished")
