"""Builders: cards and claims on them."""

from joulie_bus.events import (
    CardClaimed,
    ClaimConfirmed,
    ClaimReleased,
    DeviceClaim,
    DeviceSeen,
    GpuSeen,
)


def card(uuid: str, node: str = "n1", *, used_mb: int = 0) -> GpuSeen:
    return GpuSeen(
        uuid=uuid, node=node, model="NVIDIA H100 SXM5", total_mb=81_559, allocated_mb=used_mb
    )


def device(uuid: str, node: str = "n1", *holders: str, taint: str = "") -> DeviceSeen:
    """A card that kube-scheduler gives out; allocated if there are holders."""
    claims = (DeviceClaim(uid="claim-1", namespace="team", name="gpus", pods=holders),)
    return DeviceSeen(
        card=uuid,
        node=node,
        pool=f"gpu.example.com/{node}",
        model="NVIDIA H100 SXM5",
        total_mb=81_559,
        taint=taint,
        claims=claims if holders else (),
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
