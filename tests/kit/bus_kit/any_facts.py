"""Facts of every kind, numbered, for laws that hold for any sequence of facts."""

from collections.abc import Callable
from functools import partial

from bus_kit.cards import card, claim, confirmed, device, released
from bus_kit.clock import NOON, SECOND
from bus_kit.examples import example_of
from bus_kit.grid import intensity, price
from bus_kit.nodes import hardware, inventory, node_seen, polled, power
from bus_kit.plans import (
    asleep,
    caps,
    closed,
    completed,
    draining,
    eco,
    evicting,
    opened,
    performance,
    plan_made,
    waking,
)
from bus_kit.pods import bound, pending
from joulie_bus.events import (
    FACT_TYPES,
    CapsApplied,
    CapsMeasured,
    CapsRefused,
    CapsSettable,
    DeviceGone,
    DevicesAsked,
    Fact,
    GpuGone,
    NamespaceSeen,
    NodeGone,
    PodFinished,
    PodGone,
    TargetSet,
)

# Kinds of facts, about a few nodes and pods only, so that some facts concern the same ones.
_VARIED: tuple[Callable[[str, str, int], Fact], ...] = (
    lambda node, _, number: power(node, number * 10),
    lambda node, _, number: inventory(node, *(f"g{each}" for each in range(number % 3))),
    lambda node, _, number: CapsApplied(node=node, gpu_mw=number * 1000 if number % 2 else None),
    lambda node, _pod, number: CapsRefused(node=node, because=str(number)),
    lambda node, _pod, number: CapsSettable(
        node=node, cpu=bool(number % 2), gpu=bool(number % 3), because=str(number)
    ),
    lambda node, _, number: node_seen(node, cores=number, gpus=number % 3, zone=str(number)),
    lambda node, _pod, _number: NodeGone(node=node),
    lambda node, _, number: hardware(node, cores=number, gpus=number % 9),
    lambda _node, _pod, number: polled(
        ambient_c=number if number % 2 else None, it_w=number if number % 3 else None
    ),
    lambda node, _pod, number: price(number / 100 - 0.1, zone=node if number % 2 else "*"),
    lambda node, _pod, number: intensity(number, zone=node if number % 2 else "*"),
    lambda node, _, number: card(f"g{number % 3}", node, used_mb=number),
    lambda _node, _pod, number: GpuGone(uuid=f"g{number % 3}"),
    lambda node, pod, number: device(f"g{number % 3}", node, *([pod] if number % 2 else ())),
    lambda _node, _pod, number: DeviceGone(card=f"g{number % 3}"),
    lambda _node, _pod, number: DevicesAsked(
        by="template", namespace="team", name="some", gpus=number if number % 3 else None
    ),
    lambda node, _pod, number: NamespaceSeen(
        namespace=node, workload="performance" if number % 2 else None
    ),
    lambda node, _pod, number: TargetSet(
        target=node,
        power_mw=number * 1000 if number % 3 else None,
        starts_at=NOON,
        ends_at=NOON + number * SECOND,
    ),
    lambda _node, _pod, number: CapsMeasured(
        workload="performance" if number % 2 else "standard",
        low_permille=-number,
        mid_permille=0,
        high_permille=number,
        capped_pods=number,
        other_pods=number,
    ),
    lambda _, pod, number: pending(pod, performance=number % 2 == 0),
    lambda node, pod, number: bound(
        pod,
        node,
        performance=number % 2 == 0,
        devices=None if number % 3 else number % 9,
        cores=number % 5,
    ),
    lambda _node, pod, _number: PodFinished(uid=pod),
    lambda _node, pod, _number: PodGone(uid=pod),
    lambda _node, _pod, number: plan_made(str(number)),
    lambda node, _, number: eco(node) if number % 2 else performance(node),
    lambda node, _pod, _number: draining(node),
    lambda node, _, number: caps(node, number, None if number % 2 else number),
    lambda node, _, number: completed(node, "eco" if number % 2 else "performance"),
    lambda node, _pod, _number: asleep(node),
    lambda node, _pod, _number: waking(node),
    lambda node, _pod, _number: evicting(node),
    lambda node, _pod, _number: closed(node),
    lambda node, _pod, _number: opened(node),
    lambda node, pod, number: claim(f"g{number % 3}", pod, number, node=node),
    lambda _, pod, number: confirmed(f"g{number % 3}", pod),
    lambda _, pod, number: released(f"g{number % 3}", pod),
)
_MADE = {type(make("n0", "p0", 1)) for make in _VARIED}
# The others are their examples, the same for each number.
_ANY: tuple[Callable[[str, str, int], Fact], ...] = (
    *_VARIED,
    *(partial(example_of, kind) for kind in FACT_TYPES if kind not in _MADE),
)
ANY_FACTS = len(_ANY) * 3 * 4 * 101


def any_fact(choice: int) -> Fact:
    """The fact with number `choice`, below `ANY_FACTS`."""
    choice, kind = divmod(choice, len(_ANY))
    choice, node = divmod(choice, 3)
    number, pod = divmod(choice, 4)
    return _ANY[kind](f"n{node}", f"p{pod}", number)
