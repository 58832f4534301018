"""The cards that drivers of DRA publish, from ResourceSlices: whole generations of pools only.

A driver publishes a pool in several slices, and replaces them one after the other. Until all slices
of a generation are there, the former generation counts. The order of slices makes no difference.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from joulie_bus.events.bounds import MOST_CARD_MB, NAME, WORD, in_usual_case, is_name
from joulie_operator.resources.device_objects import (
    DeviceFields,
    DeviceTaintRule,
    ResourceSlice,
    SliceDevice,
    SliceSpec,
    Taint,
    TaintRuleSpec,
)
from joulie_projections.quantities import parse

_MIB = 2**20
_MODELS = ("productname", "product-name", "model")  # attributes, in any case and of any domain
_MEMORIES = ("memory", "vram")
_GPU_DRIVER = re.compile(r"(^|\.)gpu\.")
NO_EFFECT = ("", "None")
CARD_MILLI = 1000

PoolKey = tuple[str, str]  # the driver and the name


class Device(NamedTuple):
    """A device of a pool: a card, or a partition of one."""

    card: str
    node: str
    model: str
    card_mb: int  # of the whole card
    milli: int  # thousandths of the card
    taint: str
    slice_name: str = ""  # as in `DeviceSeen`
    place: int = 0
    name: str = ""


def is_gpu_driver(driver: str) -> bool:
    """Drivers have the name of a domain, and those of GPUs begin with it: gpu.nvidia.com."""
    return _GPU_DRIVER.search(driver) is not None


class DevicePools:
    def __init__(self) -> None:
        self._in_order = False
        self._slices: dict[str, ResourceSlice] = {}
        self._members: dict[PoolKey, set[str]] = defaultdict(set)
        self._whole: dict[PoolKey, dict[str, Device]] = {}

    def order(self, *, is_kept: bool) -> None:
        """Whether kube-scheduler takes devices in the order of the slices; said before the first
        slice."""
        self._in_order = is_kept

    def put(self, seen: ResourceSlice) -> PoolKey | None:
        """The pool that may have changed; None for one of other devices than GPUs. Raises
        BadQuantity, and keeps nothing of such a slice: each later change of its pool would raise,
        too."""
        if not is_gpu_driver(seen.spec.driver):
            return None
        for each in seen.spec.devices or ():
            _megabytes(seen.spec, each)
        key = _pool_of(seen.spec)
        self._slices[seen.metadata.name] = seen
        self._members[key].add(seen.metadata.name)
        self._resolve(key)
        return key

    def drop(self, name: str) -> PoolKey | None:
        seen = self._slices.pop(name, None)
        if seen is None:
            return None
        key = _pool_of(seen.spec)
        self._members[key].discard(name)
        self._resolve(key)
        return key

    def names(self) -> set[str]:
        """Of the slices."""
        return set(self._slices)

    def devices(self, key: PoolKey) -> Mapping[str, Device]:
        """Of the newest whole generation, by their names."""
        return self._whole.get(key, {})

    def _resolve(self, key: PoolKey) -> None:
        slices = [self._slices[name] for name in sorted(self._members[key])]
        if not slices:
            self._members.pop(key)
            self._whole.pop(key, None)
            return
        newest = max(each.spec.pool.generation for each in slices)
        current = [each for each in slices if each.spec.pool.generation == newest]
        if len(current) >= current[0].spec.pool.resource_slice_count:
            found = dict(_devices_of(key, current))
            self._whole[key] = found if self._in_order else _without_turns(found)


def _pool_of(spec: SliceSpec) -> PoolKey:
    return spec.driver, spec.pool.name


class _Described(NamedTuple):
    name: str
    node: str
    fields: DeviceFields
    mb: int
    slice_name: str
    place: int


def _without_turns(devices: Mapping[str, Device]) -> dict[str, Device]:
    return {name: device._replace(slice_name="", place=0) for name, device in devices.items()}


def _devices_of(key: PoolKey, slices: Sequence[ResourceSlice]) -> Iterator[tuple[str, Device]]:
    """Devices that consume the same counters are partitions of one card, as large as the largest
    of them.
    """
    described = [
        _described(of, each, place)
        for of in slices
        for place, each in enumerate(of.spec.devices or ())
    ]
    by_card: dict[str, list[_Described]] = defaultdict(list)
    for each in described:
        counters = each.fields.consumes_counters
        by_card[f"set {counters[0].counter_set}" if counters else f"device {each.name}"].append(
            each
        )
    for parts in by_card.values():
        whole = max(parts, key=lambda part: (part.mb, part.name))
        for part in parts:
            device = _device(key, part, whole)
            is_whole = len(parts) == 1 and not part.fields.allow_multiple_allocations
            yield part.name, device if is_whole else device._replace(slice_name="", place=0)


def _device(key: PoolKey, part: _Described, whole: _Described) -> Device:
    milli = -(-CARD_MILLI * part.mb // whole.mb) if whole.mb else CARD_MILLI
    return Device(
        card=card_name(key, whole.name, _text(whole.fields, ("uuid",))),
        node=part.node,
        model=_text(whole.fields, _MODELS)[:WORD],
        card_mb=whole.mb,
        milli=milli,
        taint=_taint(part.fields),
        slice_name=part.slice_name,
        place=part.place,
        name=part.name if is_name(part.name) else "",
    )


def _described(of: ResourceSlice, seen: SliceDevice, place: int) -> _Described:
    spec, fields = of.spec, seen.fields
    node = spec.node_name or fields.node_name or ""
    return _Described(seen.name, node, fields, _megabytes(spec, seen), of.metadata.name, place)


def card_name(key: PoolKey, device: str, uuid: str = "") -> str:
    """The name of a device's card, also of one whose pool is not known. Two spellings of a UUID
    are one card."""
    if is_name(uuid):
        return in_usual_case(uuid)
    named = "/".join((*key, device))
    return named if len(named) <= NAME else hashlib.sha256(named.encode()).hexdigest()


def _text(fields: DeviceFields, names: Sequence[str]) -> str:
    values = {_bare(name): value for name, value in sorted((fields.attributes or {}).items())}
    found = (values[name].string or "" for name in names if name in values)
    return next((text.strip() for text in found if text.strip()), "")


def _megabytes(spec: SliceSpec, seen: SliceDevice) -> int:
    capacity = {_bare(name): value for name, value in sorted((seen.fields.capacity or {}).items())}
    found = next((capacity[name] for name in _MEMORIES if name in capacity), None)
    if found is None:
        return 0
    memory = parse(found.value, f"device {spec.driver}/{spec.pool.name}/{seen.name}, memory")
    return min(MOST_CARD_MB, int(memory / _MIB))


def _taint(fields: DeviceFields) -> str:
    return first_taint(fields.taints or ())


def first_taint(taints: Iterable[Taint]) -> str:
    """Of those that keep pods off, in words; empty without one."""
    kept = (each for each in taints if each.effect not in NO_EFFECT)
    texts = (f"{each.key}={each.value}" if each.value else each.key for each in kept)
    return next(iter(sorted(texts)), "")[:WORD]


class TaintRules:
    """Rules that taint devices beside what their driver says."""

    def __init__(self) -> None:
        self._rules: dict[str, TaintRuleSpec] = {}

    def put(self, seen: DeviceTaintRule) -> None:
        self._rules[seen.metadata.name] = seen.spec

    def drop(self, name: str) -> None:
        self._rules.pop(name, None)

    def names(self) -> set[str]:
        return set(self._rules)

    def applied(self, key: PoolKey, name: str, device: Device) -> Device:
        """The device with the taint of a rule, unless its driver says one."""
        if device.taint or not self._rules:
            return device
        found = (rule.taint for rule in self._rules.values() if _matches(rule, (*key, name)))
        return device._replace(taint=first_taint(found))


def _matches(rule: TaintRuleSpec, device: tuple[str, str, str]) -> bool:
    by = rule.device_selector
    if by is None or by.device_class_name or by.selectors:
        return False
    wanted = (by.driver, by.pool, by.device)
    return all(not text or text == own for text, own in zip(wanted, device, strict=True))


def _bare(name: str) -> str:
    """An attribute or a capacity without its domain."""
    return name.rpartition("/")[2].lower()
