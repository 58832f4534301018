"""Which devices a pod would take: by the order of the allocator, or only how many."""

import pytest
from msgspec.structs import replace

from joulie_audit.questions.devices import IN_FLIGHT, ORDER, SELECTORS, in_words, takes
from joulie_bus.events import DeviceAsk, DeviceClaim, DeviceSeen, PodAsk
from joulie_projections.state.cards import DRA, CardState
from joulie_projections.state.state import ClusterRow, ClusterState, asked_key

DRIVER = "gpu.example.com"
POD = PodAsk(
    uid="p", namespace="team", name="p", gpu_milli=2000, devices=DeviceAsk(claims=("template/two",))
)


def device(name: str, pool: str, slice_name: str, place: int, taken: str = "") -> DeviceSeen:
    claims = (DeviceClaim(uid="c", namespace="team", name=taken),) if taken else ()
    return DeviceSeen(
        card=f"GPU-{name}",
        node="a",
        pool=f"{DRIVER}/{pool}",
        slice_name=slice_name,
        place=place,
        device=name,
        claims=claims,
    )


DEVICES = (
    device("late-pool", "b", "a", 0),
    device("late-slice", "a", "b", 0),
    device("second", "a", "a", 2),
    device("first", "a", "a", 1),
    device("used", "a", "a", 0, taken="shared"),
    replace(device("sick", "a", "a", 0), taint="xid=79"),
    replace(device("other", "a", "a", 0), pool="nic.example.com/a", slice_name=""),
    replace(device("elsewhere", "a", "a", 0), node="b"),
)


def state(*devices: DeviceSeen, driver: str = DRIVER) -> ClusterState:
    found = ClusterState()
    for each in devices or DEVICES:
        found.gpus[each.device] = CardState(at=0, node=each.node, source=DRA, device=each)
    row = ClusterRow(gpus_asked=2, driver_asked=driver)
    found.cluster[asked_key("team", "template/two")] = row
    return found


def named(of: ClusterState, before: int | None = 0, pod: PodAsk = POD) -> tuple[str, ...]:
    found = takes(pod, "a", of, before)
    assert found is not None
    return found.devices


def test_devices_are_taken_by_pool_slice_and_place_and_none_that_is_taken_or_tainted() -> None:
    assert named(state()) == ("first", "second")
    found = takes(POD, "a", state(), 0)
    assert found is not None
    assert in_words(found) == "on a it would take first, second"


def test_pods_in_flight_take_the_first_ones() -> None:
    assert named(state(), before=1) == ("second", "late-slice")


@pytest.mark.parametrize(
    ("of", "before", "why"),
    [
        (state(driver=""), 0, SELECTORS),
        (state(*DEVICES[:-2], replace(DEVICES[2], slice_name="", device="part")), 0, ORDER),
        (state(), None, IN_FLIGHT),
        (state(), 4, "fewer of them were free in the view"),
    ],
)
def test_where_the_names_are_not_known_the_number_is(
    of: ClusterState, before: int | None, why: str
) -> None:
    found = takes(POD, "a", of, before)
    assert found is not None
    assert in_words(found) == f"on a it would take 2 devices; which: {why}"


def test_a_claim_that_has_its_devices_takes_no_more() -> None:
    both = replace(POD, devices=DeviceAsk(claims=("claim/shared", "template/two")))
    assert named(state(), pod=both) == ("first", "second")
    assert takes(replace(POD, devices=DeviceAsk(claims=("claim/shared",))), "a", state(), 0) is None


def test_a_claim_of_an_unknown_number_foretells_nothing() -> None:
    assert takes(replace(POD, devices=DeviceAsk(claims=("claim/new",))), "a", state(), 0) is None
