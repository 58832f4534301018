"""What ResourceClaims and their templates ask of GPUs, and which devices they have."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from joulie_bus.events import DeviceClaim
from joulie_operator.facts.device_pools import (
    CARD_MILLI,
    Device,
    PoolKey,
    card_name,
    is_gpu_driver,
)
from joulie_operator.resources.device_objects import (
    EXTENDED,
    OF_TEMPLATE,
    AllocatedDevice,
    ClaimSpec,
    DeviceClass,
    DeviceRequest,
    ResourceClaim,
)
from joulie_projections.quantities import Quantity, parse

MIB = 2**20
_ONE_DRIVER = re.compile(r"device\.driver\s*==\s*([\"'])(?P<driver>[a-z0-9.-]+)\1")
_OF_GPUS = re.compile(r"device\.driver\s*==\s*[\"'](?:[a-z0-9.-]*\.)?gpu\.")


def is_gpu_class(seen: DeviceClass) -> bool:
    """By its name, which is usually that of the driver, or by a selector that names the driver."""
    expressions = (each.cel.expression for each in seen.spec.selectors or () if each.cel)
    return is_gpu_driver(seen.metadata.name) or any(map(_OF_GPUS.search, expressions))


def gpus_asked(spec: ClaimSpec, classes: Mapping[str, bool]) -> int | None:
    """By whether classes are of GPUs; None if the number is not known before the allocation."""
    found = 0
    for request in (each.first for each in spec.devices.requests or ()):
        name = request.device_class_name or ""
        if request.admin_access or not classes.get(name, is_gpu_driver(name)):
            continue
        if request.allocation_mode == "All":
            return None
        found += 1 if request.count is None else max(0, request.count)
    return found


def driver_of_class(seen: DeviceClass) -> str:
    """Of a class that any device of one driver fits; empty for others."""
    selectors = seen.spec.selectors or ()
    expressions = [each.cel.expression for each in selectors if each.cel]
    if len(expressions) != 1 or len(selectors) != 1:
        return ""
    found = _ONE_DRIVER.fullmatch(expressions[0].strip())
    return found["driver"] if found else ""


def driver_asked(spec: ClaimSpec, drivers: Mapping[str, str]) -> str:
    """The driver of which each device serves all requests; empty if they choose among devices."""
    requests = spec.devices.requests or ()
    found = {drivers.get(each.first.device_class_name or "", "") for each in requests}
    is_plain = not spec.devices.constraints and all(map(_is_plain, requests))
    return found.pop() if is_plain and len(found) == 1 else ""


def _is_plain(request: DeviceRequest) -> bool:
    asked = request.first
    chooses = (request.first_available, asked.selectors, asked.tolerations, asked.capacity)
    return not any(chooses) and asked.allocation_mode != "All" and not asked.admin_access


class Held(NamedTuple):
    """A part of a card that a claim has."""

    card: str
    pool: PoolKey
    claim: DeviceClaim


def pools_of(claim: ResourceClaim) -> set[PoolKey]:
    return {(result.driver, result.pool) for result in _results(claim)}


def held_by(claim: ResourceClaim, pools: Mapping[PoolKey, Mapping[str, Device]]) -> Iterator[Held]:
    """The cards of a claim; a device of an unknown pool is a card by its name."""
    parts: dict[str, tuple[PoolKey, int]] = {}
    for result in _results(claim):
        key = (result.driver, result.pool)
        device = pools[key].get(result.device) if key in pools else None
        card = device.card if device else card_name(key, result.device)
        before = parts[card][1] if card in parts else 0
        parts[card] = key, min(CARD_MILLI, before + _milli(result, device))
    for card, (key, milli) in parts.items():
        of_claim = DeviceClaim(
            uid=claim.metadata.uid,
            namespace=claim.metadata.namespace,
            name=claim.metadata.name,
            pods=pods_of(claim),
            milli=milli,
        )
        yield Held(card, key, of_claim)


def pods_of(claim: ResourceClaim) -> tuple[str, ...]:
    reserved = (claim.status.reserved_for if claim.status else None) or ()
    return tuple(sorted({each.uid for each in reserved if each.resource == "pods" and each.uid}))


def is_named_by_pods(claim: ResourceClaim) -> bool:
    """Pods name the template of other claims, or only the extended resource."""
    return not {OF_TEMPLATE, EXTENDED} & (claim.metadata.annotations or {}).keys()


def share_of(uid: str, pods: tuple[str, ...], milli: int) -> int:
    """The part that counts for a pod: together the pods of a claim hold its devices once."""
    if uid not in pods:
        return 0
    share, rest = divmod(milli, len(pods))
    return share + (pods.index(uid) < rest)


def require_readable(claim: ResourceClaim) -> None:
    """Raises BadQuantity, whether or not the devices of the claim are known."""
    for result in _results(claim):
        for _, amount in _memories(result):
            parse(amount, "consumed memory")


def _results(claim: ResourceClaim) -> Iterator[AllocatedDevice]:
    allocation = claim.status.allocation if claim.status else None
    for result in (allocation.devices.results if allocation else None) or ():
        if is_gpu_driver(result.driver) and not result.admin_access:
            yield result


def _milli(result: AllocatedDevice, device: Device | None) -> int:
    """Of a device that several claims share: the part of its memory."""
    whole = device.milli if device else CARD_MILLI
    card_mb = device.card_mb if device else 0
    for _, amount in _memories(result) if card_mb else ():
        milli = parse(amount, "consumed memory") / MIB * CARD_MILLI / card_mb
        return max(1, min(whole, -(-milli.numerator // milli.denominator)))
    return whole


def _memories(result: AllocatedDevice) -> Iterator[tuple[str, Quantity]]:
    for name, amount in sorted((result.consumed_capacity or {}).items()):
        if name.rpartition("/")[2].lower() == "memory":
            yield name, amount
