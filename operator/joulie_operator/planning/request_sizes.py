"""What orders ask for: sums and parts of the requests of containers, in whole numbers."""

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from joulie_bus.events import Change, ContainerRequest, Requests, ResizeOrdered, UseBasis
from joulie_projections.energy.right_size import Recommended, advised

LEAST_HOURS = 13 * 24.0  # of the 14 days that the ledger keeps, the first and last are parts
LEAST_CHANGE_PCT = 10  # of the cores or the memory that a pod requests
MOST_WAIT_PERMILLE = 50  # of the time since the last look; more is pressure
MIB, GIB = 1 << 20, 1 << 30
R = TypeVar("R")


def requests_after(
    change: Change, own: Requests, before: Requests, use: UseBasis | None, wait: int | None
) -> Requests:
    """What an order of this kind asks for: of nothing but what its event records."""
    if change == "give-back" or use is None:
        return own
    if wait is not None and wait > MOST_WAIT_PERMILLE:
        return _joined(own, before, lambda full, now: replace(full, memory_bytes=now.memory_bytes))
    lowered = resized(own, advised(use, LEAST_HOURS))
    return lowered if change == "lower" else _joined(before, lowered, _larger)


def recomputed(order: ResizeOrdered) -> Requests:
    """What the order must ask for, by what it records."""
    return requests_after(order.change, order.original, order.before, order.use, order.cpu_wait)


def resized(own: Requests, to: Recommended) -> Requests:
    """Each container gets its part, rounded up; none gets more than its own."""
    cpu = sum(each.cpu_milli or 0 for each in own)
    memory = sum(each.memory_bytes or 0 for each in own)
    memory_to = None if to.memory_mib is None else to.memory_mib * MIB
    return tuple(
        ContainerRequest(
            each.name,
            _part(each.cpu_milli, to.cpu_milli, cpu),
            _part(each.memory_bytes, memory_to, memory),
        )
        for each in own
    )


def in_words(before: Requests, after: Requests) -> str:
    """Such as: 4 -> 1.5 cores, 8 -> 6 GiB."""
    (cpu, memory), (cpu_to, memory_to) = _total(before), _total(after)
    cores = f"{cpu / 1000:g} -> {cpu_to / 1000:g} cores" if cpu != cpu_to else ""
    gib = f"{memory / GIB:.4g} -> {memory_to / GIB:.4g} GiB" if memory != memory_to else ""
    return ", ".join(filter(None, (cores, gib))) or "the same"


def total_in_words(requests: Requests) -> str:
    cpu, memory = _total(requests)
    return f"{cpu / 1000:g} cores, {memory / GIB:.4g} GiB"


def _part(own: int | None, to: int | None, whole: int) -> int | None:
    if not own or to is None or to >= whole:
        return own
    return -(-own * to // whole)


def _joined(
    one: Requests, other: Requests, join: Callable[[ContainerRequest, ContainerRequest], R]
) -> tuple[R, ...]:
    """Of the same containers in each; in a forged event, of as many as both have."""
    return tuple(join(*pair) for pair in zip(one, other, strict=False))


def _larger(one: ContainerRequest, other: ContainerRequest) -> ContainerRequest:
    """A container has requests of the same kinds in both."""
    cpu = max((one.cpu_milli, other.cpu_milli), key=_amount)
    memory = max((one.memory_bytes, other.memory_bytes), key=_amount)
    return ContainerRequest(one.name, cpu, memory)


def _amount(request: int | None) -> int:
    return request or 0


def grows(before: Requests, after: Requests) -> bool:
    return any(_joined(before, after, lambda now, then: _larger(now, then) != now))


def is_much_less(before: Requests, after: Requests) -> bool:
    pairs = zip(_total(before), _total(after), strict=True)
    return any(then * 100 < now * (100 - LEAST_CHANGE_PCT) for now, then in pairs)


def _total(requests: Requests) -> tuple[int, int]:
    """Millicores and bytes."""
    cpu = sum(each.cpu_milli or 0 for each in requests)
    return cpu, sum(each.memory_bytes or 0 for each in requests)
