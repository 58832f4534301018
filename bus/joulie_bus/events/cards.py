"""Facts about GPU cards, also about those that kube-scheduler gives out as devices (DRA)."""

from typing import Annotated, ClassVar, Literal

import msgspec

from joulie_bus.events.base import Observation
from joulie_bus.events.bounds import CardCount, CardMb, Count, Holder, Name, ShareMilli, Uid, Word

CardSource = Literal["agent", "resource"]
MOST_POD_UIDS = 256  # of one claim, as Kubernetes allows
MOST_DEVICE_CLAIMS = 256  # of one device that several claims share

DeviceRequester = Literal["claim", "template"]
PodUids = Annotated[tuple[Uid, ...], msgspec.Meta(max_length=MOST_POD_UIDS)]


class GpuSeen(Observation, frozen=True, kw_only=True):
    """One whole card, as an agent or the `GPU` resource reports it."""

    TYPE: ClassVar[str] = "gpu.seen"
    TOKEN: ClassVar[str] = "gpu"
    REPLACES: ClassVar[str] = "gpu"
    uuid: Name
    node: Name
    model: Word
    total_mb: CardMb
    allocated_mb: CardMb = 0
    healthy: bool = True
    nvlink_group: Word = ""  # cards of a node with the same group are linked; "": no link
    owner: Uid = ""  # uid of the pod that holds the card
    holder: Holder = ""  # namespace/name of that pod if the uid is not known; "?": neither is
    source: CardSource = "resource"
    power_limited_s: Count | None = None  # as in `CardRead`
    heat_limited_s: Count | None = None

    @property
    def key(self) -> str:
        return self.uuid


class GpuGone(Observation, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "gpu.gone"
    TOKEN: ClassVar[str] = "gpu"
    REPLACES: ClassVar[str] = "gpu"
    uuid: Name

    @property
    def key(self) -> str:
        return self.uuid


# --- devices of DRA ---------------------------------------------------------------------------


class DeviceClaim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A ResourceClaim that a device is allocated to, and the pods that it is reserved for."""

    uid: Uid
    namespace: Name
    name: Name
    pods: PodUids = ()  # sorted
    milli: ShareMilli = 1000  # thousandths of the card


DeviceClaims = Annotated[tuple[DeviceClaim, ...], msgspec.Meta(max_length=MOST_DEVICE_CLAIMS)]


class DeviceSeen(Observation, frozen=True, kw_only=True, gc=False):
    """A card that kube-scheduler gives out by DRA: what its driver publishes, and its claims.

    Without a node: it is allocated, and its driver does not publish it.
    """

    TYPE: ClassVar[str] = "device.seen"
    TOKEN: ClassVar[str] = "device"
    REPLACES: ClassVar[str] = "device"
    card: Name  # its uuid; without one, driver/pool/device
    node: Name = ""
    pool: Holder = ""  # driver/pool
    model: Word = ""
    total_mb: CardMb = 0
    taint: Word = ""  # why no new pod gets it
    claims: DeviceClaims = ()  # sorted by uid
    # Its turn in the order in which kube-scheduler takes devices of a pool: absent before 1.36,
    # which has none, and for a card that is not given out as one whole device.
    slice_name: Holder = ""
    place: Count = 0  # in the slice
    device: Name = ""  # its name in the pool

    @property
    def key(self) -> str:
        return self.card


class DeviceGone(Observation, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "device.gone"
    TOKEN: ClassVar[str] = "device"
    REPLACES: ClassVar[str] = "device"
    card: Name

    @property
    def key(self) -> str:
        return self.card


class DevicesAsked(Observation, frozen=True, kw_only=True):
    """How many GPUs a ResourceClaim or a ResourceClaimTemplate asks for; absent if it is gone.

    Claims that were made of a template are not published: pods name the template.
    """

    TYPE: ClassVar[str] = "devices.asked"
    TOKEN: ClassVar[str] = "devices"
    REPLACES: ClassVar[str] = "devices"
    by: DeviceRequester
    namespace: Name
    name: Name
    gpus: CardCount | None = None
    driver: Word = ""  # each of its devices will do; absent if the claim chooses among them

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.by}/{self.name}"
