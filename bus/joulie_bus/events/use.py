"""What pods use of their node: processors, memory, and how long they wait for either."""

import re
from typing import Annotated, ClassVar, Literal

import msgspec

from joulie_bus.events.base import FromNode
from joulie_bus.events.bounds import (
    MOST_METERED_PODS,
    CpuMilli,
    Mib,
    Name,
    PackedUid,
    ShareMilli,
    UseSeconds,
)

UseSource = Literal["cgroup-v2", "cgroup-v1", "simulator"]
_UUID_BYTES = 16
_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class PodUse(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One pod for some time in which its use did not change noticeably. An array of at most 40
    bytes for a pod with up to 65 cores and 63 GiB. Unknown is None, never 0."""

    pod: PackedUid  # as of `packed_uid`
    seconds: UseSeconds
    cpu_milli: CpuMilli  # the mean
    memory_mib: Mib | None = None  # the mean of the working set
    peak_mib: Mib | None = None  # the highest working set that was read
    # In how many thousandths of the time some of its processes waited (PSI, cgroup v2).
    cpu_wait: ShareMilli | None = None
    memory_wait: ShareMilli | None = None
    io_wait: ShareMilli | None = None


PodUses = Annotated[tuple[PodUse, ...], msgspec.Meta(max_length=MOST_METERED_PODS)]


class PodsUsed(FromNode, frozen=True, kw_only=True, gc=False):
    """The use of pods of one node since they were last part of such a fact. A pod whose use did not
    change is left out for up to ten minutes."""

    TYPE: ClassVar[str] = "pods.used"
    node: Name
    source: UseSource
    pods: PodUses = ()

    @property
    def key(self) -> str:
        return self.node


def packed_uid(uid: str) -> bytes:
    """A UUID in 16 bytes, and any other uid as its text. Raises ValueError for a text that would be
    taken for a UUID."""
    if _UUID.fullmatch(uid):
        return bytes.fromhex(uid.replace("-", ""))
    text = uid.encode()
    if len(text) == _UUID_BYTES:
        raise ValueError(f"{uid!r} has the length of a packed UUID")
    return text


def unpacked_uid(packed: bytes) -> str:
    """The inverse. What is no text names no pod."""
    if len(packed) == _UUID_BYTES:
        text = packed.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    return packed.decode("utf-8", "replace")
