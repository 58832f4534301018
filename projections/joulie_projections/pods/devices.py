"""The GPUs that a pod asks for by ResourceClaims (DRA), as a part of its ask."""

from collections.abc import Callable

from msgspec.structs import replace

from joulie_bus.events import DeviceAsk, PodAsk
from joulie_bus.events.bounds import MOST_DEVICE_ASKS, MOST_GPU_MILLI
from joulie_projections.pods.kubernetes_pod import Pod

CARD_MILLI = 1000
# The GPUs that a claim or a template of a namespace asks for; None: not known.
GpusAsked = Callable[[str, str], int | None]


def no_gpus_known(_: str, __: str) -> None:
    return None


def claims_of(pod: Pod) -> tuple[str, ...]:
    """What its claims are, or are made of: "claim/NAME" or "template/NAME"."""
    found = []
    for claim in (pod.spec.resource_claims or [])[:MOST_DEVICE_ASKS]:
        if claim.resource_claim_name:
            found.append(f"claim/{claim.resource_claim_name}")
        elif claim.resource_claim_template_name:
            found.append(f"template/{claim.resource_claim_template_name}")
    return tuple(found)


def with_asked(pod: PodAsk, asked: GpusAsked) -> PodAsk:
    """The ask with the GPUs of its claims. A claim that is not known yet counts nothing and stays
    named; one for other devices, such as network cards, is left out.
    """
    found = [(claim, asked(pod.namespace, claim)) for claim in pod.devices.claims]
    kept = tuple(claim for claim, gpus in found if gpus != 0)
    return with_devices(pod, kept, CARD_MILLI * sum(gpus or 0 for _, gpus in found))


def with_devices(pod: PodAsk, claims: tuple[str, ...], milli: int) -> PodAsk:
    """The ask with so many thousandths of cards in addition to what its containers request. The
    annotation of a share is about cards without claims.
    """
    shares = milli > 0 and not pod.gpu_cards and pod.gpu_milli == pod.gpu.share_milli
    own_milli = 0 if shares else pod.gpu_milli
    milli = min(milli, MOST_GPU_MILLI - own_milli)
    return replace(
        pod,
        gpu_milli=own_milli + milli,
        gpu_cards=pod.gpu_cards + -(-milli // CARD_MILLI),
        devices=DeviceAsk(claims=claims, milli=milli),
    )


def is_by_dra(pod: PodAsk) -> bool:
    """Whether kube-scheduler gives out all GPUs of the pod."""
    return bool(pod.devices.claims) and pod.gpu_milli == pod.devices.milli
