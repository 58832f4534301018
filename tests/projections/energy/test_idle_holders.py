"""Cards that pods hold without using them: recorded levels of an H100, and what resets a holder."""

import pytest

from bus_kit import ask, card, hardware, node_seen
from bus_kit.clock import NOON
from energy_histories import Timed
from joulie_bus.events import GpuGone, GpuSeen, PodBound, PodFinished, TelemetrySampled
from joulie_projections.energy.idle_holders import IdleHolder, idle_holders, packed, unpacked
from joulie_projections.energy.ledger import Ledger

# Recorded on one H100 of 700 W: no process, a process that does nothing, and busy 10 % of the time.
NO_PROCESS_W, CONTEXT_W, TENTH_W = 73, 125, 199
MINUTE_S = 60
AFTER_MS = 15 * MINUTE_S * 1000
NODE: list[Timed] = [
    (0, node_seen("n1", cores=10, gpus=2)),
    (0, hardware("n1", cores=10, watts=560, gpus=2)),  # cards of 700 W
    (0, card("a")),
    (0, card("b")),
]


def held(uid: str, *cards: str) -> list[Timed]:
    owned = [GpuSeen(uuid=c, node="n1", model="H100", total_mb=1, owner=uid) for c in cards]
    pod = PodBound(pod=ask(uid, gpus=len(cards)), node="n1")
    return [(1, pod), *((1, fact) for fact in owned)]


def readings(first_min: float, last_min: float, **watts: float) -> list[Timed]:
    card_mw = {name: round(each * 1000) for name, each in watts.items()}
    whole = 300_000 + sum(card_mw.values())
    seconds = range(round(first_min * MINUTE_S) + 2, round(last_min * MINUTE_S) + 3, 30)
    return [(at, TelemetrySampled(node="n1", power_mw=whole, card_mw=card_mw)) for at in seconds]


def ledger_of(*facts: Timed) -> Ledger:
    ledger = Ledger()
    ledger.fold((fact, NOON + round(at * 1e9)) for at, fact in facts)
    return ledger


def idle(*facts: Timed) -> list[IdleHolder]:
    return idle_holders(ledger_of(*NODE, *facts), AFTER_MS)


def test_a_pod_that_holds_a_card_without_work_is_named_with_its_power() -> None:
    (found,) = idle(*held("train", "a"), *readings(0, 16, a=CONTEXT_W, b=NO_PROCESS_W))

    assert (found.node, found.card, found.pods) == ("n1", "a", ("team/train",))
    assert found.power_mw == CONTEXT_W * 1000


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(
            [*held("train", "a"), *readings(0, 14, a=CONTEXT_W)], id="for less than the time"
        ),
        pytest.param([*held("train", "a"), *readings(0, 16, a=TENTH_W)], id="busy a tenth"),
        pytest.param(
            [
                *held("train", "a"),
                *readings(0, 10, a=CONTEXT_W),
                *readings(10.5, 11, a=TENTH_W),
                *readings(11.5, 20, a=CONTEXT_W),
            ],
            id="work in between",
        ),
        pytest.param(
            [*held("train", "a"), *readings(0, 10, a=CONTEXT_W), *readings(12, 20, a=CONTEXT_W)],
            id="a gap in the readings",
        ),
        pytest.param(readings(0, 16, a=NO_PROCESS_W, b=NO_PROCESS_W), id="no pod holds it"),
        pytest.param(
            [
                *held("train", "a"),
                *readings(0, 16, a=CONTEXT_W),
                (16 * MINUTE_S + 10, PodFinished(uid="train")),
            ],
            id="the pod has ended",
        ),
        pytest.param(
            [
                *held("train", "a"),
                *readings(0, 16, a=CONTEXT_W),
                (16 * MINUTE_S + 10, GpuGone(uuid="a")),
            ],
            id="the card is gone",
        ),
        pytest.param(
            [
                *held("train", "a"),
                *readings(0, 16, a=CONTEXT_W),
                *readings(16.5, 20, b=NO_PROCESS_W),
            ],
            id="its readings have ended",
        ),
    ],
)
def test_a_card_is_no_idle_holder(facts: list[Timed]) -> None:
    assert idle(*facts) == []


def test_a_pod_that_came_to_a_quiet_card_is_idle_from_then_on() -> None:
    late = [(10 * MINUTE_S, fact) for _, fact in held("train", "a")]
    quiet = readings(0, 9, a=NO_PROCESS_W), readings(9.5, 24, a=CONTEXT_W)

    assert idle(*quiet[0], *late, *quiet[1]) == []
    longer = readings(24.5, 26, a=CONTEXT_W)
    assert len(idle(*quiet[0], *late, *quiet[1], *longer)) == 1


def test_without_a_rated_power_nothing_is_known() -> None:
    bare: list[Timed] = [(0, node_seen("n1", cores=10, gpus=2)), (0, card("a"))]
    facts = [*held("train", "a"), *readings(0, 16, a=CONTEXT_W)]

    assert idle_holders(ledger_of(*bare, *facts), AFTER_MS) == []


def test_a_pod_that_asks_for_one_card_of_several_holds_none_that_is_not_named() -> None:
    pod: Timed = (1, PodBound(pod=ask("train", gpus=1), node="n1"))

    assert idle(pod, *readings(0, 16, a=CONTEXT_W, b=NO_PROCESS_W)) == []


def test_holders_are_kept_as_they_are() -> None:
    found = [IdleHolder("n1", "a", ("team/p",), 5, 125_000)]

    assert unpacked(packed(found)) == found
