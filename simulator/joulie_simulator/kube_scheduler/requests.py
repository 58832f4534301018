"""What a pod requests, as kube-scheduler counts it: exactly, and with a least amount for scores."""

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from joulie_bus.errors import BadQuantity
from joulie_projections.pods.resize import as_counted
from joulie_projections.quantities import Quantity, parse, rounded_up
from joulie_simulator.kube_scheduler.objects import Container, Pod

CPU, MEMORY, STORAGE, PODS = "cpu", "memory", "ephemeral-storage", "pods"
SCORED = (CPU, MEMORY)
# Of a container that requests none: only for scores.
LEAST: Mapping[str, Fraction] = {CPU: Fraction(1, 10), MEMORY: Fraction(200 * 2**20)}
CACHED_QUANTITIES = 8192  # of nodes: the exact arithmetic is slow
_SCALAR = ("hugepages-", "attachable-volumes-")
_HUGE_PAGES = "hugepages-"
Amounts = dict[str, Fraction]


class Requests(NamedTuple):
    """Whole numbers: CPU in thousandths, memory and storage in bytes."""

    amounts: Mapping[str, int]
    # CPU and memory with the least amounts: of a pod to place, and of a pod on its node. Only the
    # second ones know of what a pod requests as a whole.
    asked: tuple[int, int]
    held: tuple[int, int]

    @property
    def is_best_effort(self) -> bool:
        return not any(self.amounts.get(name) for name in SCORED)


def requests_of(pod: Pod) -> Requests:
    counted = as_counted(pod)
    assert isinstance(counted, Pod), "it changes numbers only"
    exact = _requested(counted, {})
    asked = _with_overhead(counted, _of_containers(counted, LEAST))
    has_own = bool(_own(counted))
    missing = {name: least for name, least in LEAST.items() if name not in exact}
    held = _requested(counted, missing) if has_own else asked
    amounts = {name: _whole(name, value) for name, value in exact.items() if _is_counted(name)}
    return Requests(amounts, _scored(asked), _scored(held))


def _scored(amounts: Amounts) -> tuple[int, int]:
    cpu, memory = (_whole(name, amounts.get(name, Fraction())) for name in SCORED)
    return cpu, memory


def whole_amounts(given: Mapping[str, Quantity], where: str) -> dict[str, int]:
    """Of what a node has. Most nodes are equal to others."""
    try:
        return {name: _whole_quantity(name, value) for name, value in given.items()}
    except BadQuantity:  # which of them, and where
        return {
            name: _whole(name, parse(value, f"{where}, {name}")) for name, value in given.items()
        }


@lru_cache(maxsize=CACHED_QUANTITIES)
def _whole_quantity(name: str, value: Quantity) -> int:
    return _whole(name, parse(value))


def _whole(name: str, value: Fraction) -> int:
    return rounded_up(value * 1000 if name == CPU else value)


def _is_counted(name: str) -> bool:
    return name in (CPU, MEMORY, STORAGE) or "/" in name or name.startswith(_SCALAR)


def _requested(pod: Pod, missing: Mapping[str, Fraction]) -> Amounts:
    return _with_overhead(pod, {**_of_containers(pod, missing), **_own(pod)})


def _of_containers(pod: Pod, missing: Mapping[str, Fraction]) -> Amounts:
    """The larger of what runs at the same time and what any step of the start needs."""
    running = _sum(_of_container(each, missing) for each in pod.spec.containers or ())
    sidecars, starting = Amounts(), Amounts()
    for each in pod.spec.init_containers or ():
        of_it = _of_container(each, missing)
        if each.is_sidecar:
            running, sidecars = _sum((running, of_it)), _sum((sidecars, of_it))
            starting = _largest(starting, sidecars)
        else:
            starting = _largest(starting, _sum((of_it, sidecars)))
    return _largest(running, starting)


def _with_overhead(pod: Pod, amounts: Amounts) -> Amounts:
    overhead = {name: parse(value) for name, value in (pod.spec.overhead or {}).items()}
    return _sum((amounts, overhead))


def _own(pod: Pod) -> Amounts:
    """What the pod requests as a whole, in place of the sum of its containers."""
    given = (pod.spec.resources and pod.spec.resources.requests) or {}
    return {
        name: parse(value)
        for name, value in given.items()
        if name in SCORED or name.startswith(_HUGE_PAGES)
    }


def _of_container(container: Container, missing: Mapping[str, Fraction]) -> Amounts:
    given = (container.resources and container.resources.requests) or {}
    return {**missing, **{name: parse(value) for name, value in given.items()}}


def _sum(parts: Iterable[Amounts]) -> Amounts:
    found = Amounts()
    for part in parts:
        for name, value in part.items():
            found[name] = found.get(name, Fraction()) + value
    return found


def _largest(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, _NONE), other.get(name, _NONE)) for name in {**one, **other}}


_NONE = Fraction()


def host_ports(pod: Pod) -> Iterator[tuple[str, str, int]]:
    """The address, the protocol and the port that the pod takes of its node."""
    sidecars = (each for each in pod.spec.init_containers or () if each.is_sidecar)
    for container in (*sidecars, *(pod.spec.containers or ())):
        for port in container.ports or ():
            if port.host_port:
                yield port.host_ip or ANY_ADDRESS, port.protocol or "TCP", port.host_port


ANY_ADDRESS = "0.0.0.0"  # noqa: S104  # as Kubernetes writes it
