"""Which extended resources are GPUs, and how many cards a node has.

The resource names are one setting of the operator, the extender and the simulator. Their results
are in the log (`PodAsk`, `NodeSeen`), so a replay needs no names.
"""

from collections.abc import Mapping
from typing import NamedTuple

from joulie_projections.hardware.mig import Profile, cards, profile_of
from joulie_projections.hardware.models import Vendor, memory_gb, mig_profile, vendor_of
from joulie_projections.quantities import Quantity, parse

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915")
MIG = "nvidia.com/mig-"
# Labels of NVIDIA GPU feature discovery.
PRODUCT, COUNT = "nvidia.com/gpu.product", "nvidia.com/gpu.count"
_REPLICAS, _SHARED = ".replicas", ".shared"  # suffixes of time-shared devices


def gpu_resources(text: str) -> tuple[str, ...]:
    """names of extended resources (domain/name), separated by commas"""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names or not all(_is_resource(name) for name in names):
        raise ValueError("not a list of resource names")
    if sliced := [name for name in names if name.startswith(MIG)]:
        raise ValueError(f"MIG resources such as {sliced[0]} always count, as a share of a card")
    return names


def _is_resource(name: str) -> bool:
    domain, slash, rest = name.partition("/")
    return bool(domain and slash and rest) and "/" not in rest and not any(map(str.isspace, name))


class CardCount(NamedTuple):
    cards: int = 0
    units: int = 0  # allocatable units where a unit is less than a card; else 0
    vendor: Vendor = ""


def count_cards(
    allocatable: Mapping[str, Quantity],
    labels: Mapping[str, str],
    resources: tuple[str, ...],
    where: str,
) -> CardCount:
    """The physical cards behind a node's allocatable resources.

    Time-shared devices and slices (a product label with `-MIG-1g.5gb`, where `nvidia.com/gpu`
    counts slices) are more units than cards.
    """
    whole, units, found = 0, 0, list[str]()
    for name in resources:
        count = _count(allocatable, name, where)
        if count:
            found.append(name)
        units += count
        whole += _cards(name, count, labels)
    mix = _mix(allocatable, labels, where)
    sliced = cards(mix, memory_gb(labels.get(PRODUCT, "")))
    if mix:
        found.append(MIG)
        if not mig_profile(labels.get(PRODUCT, "")):  # else the label counts slices, too
            sliced = max(sliced, _number(labels.get(COUNT)) - whole)
    is_shared = units != whole
    return CardCount(whole + sliced, units + sliced if is_shared else 0, vendor_of(*found))


def _cards(resource: str, count: int, labels: Mapping[str, str]) -> int:
    devices = _unshared(resource, count, labels)
    product = labels.get(PRODUCT, "")
    profile = profile_of(mig_profile(product)) if resource.startswith("nvidia.com/") else None
    return devices if profile is None else cards({profile: devices}, memory_gb(product))


def _mix(
    allocatable: Mapping[str, Quantity], labels: Mapping[str, str], where: str
) -> dict[Profile, int]:
    found: dict[Profile, int] = {}
    for name in sorted(allocatable):
        profile = profile_of(name.removeprefix(MIG)) if name.startswith(MIG) else None
        count = _count(allocatable, name, where) if profile is not None else 0
        if profile is not None and count:
            found[profile] = found.get(profile, 0) + _unshared(name, count, labels)
    return found


def _unshared(resource: str, count: int, labels: Mapping[str, str]) -> int:
    """Devices behind shared units; the label has the device's name without the `.shared` suffix."""
    replicas = _number(labels.get(resource.removesuffix(_SHARED) + _REPLICAS))
    return -(-count // max(1, replicas))


def _count(allocatable: Mapping[str, Quantity], name: str, where: str) -> int:
    return int(parse(allocatable.get(name, 0), f"{where}, {name}"))


def _number(label: str | None) -> int:
    """The label's number; 0 if it is missing or invalid."""
    text = (label or "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0
