"""Who of a group of pods runs, and who is missing."""

from msgspec.structs import replace

from bus_kit import NOON, ask
from joulie_audit.questions.gang import gang_now, in_words
from joulie_bus.events import PodAsk, Ties
from joulie_projections.state.state import ClusterState, PodState


def member(name: str, group: str = "jobset/train") -> PodAsk:
    return replace(ask(name), ties=Ties(group=group))


def state_of(*pods: PodState) -> ClusterState:
    state = ClusterState()
    state.pods = {each.pod.uid: each for each in pods}
    return state


STATE = state_of(
    PodState(pod=member("train-0"), node="n1", bound_at=NOON),
    PodState(pod=member("train-1"), node="n1", bound_at=NOON),
    PodState(pod=member("train-2"), node="n2", bound_at=NOON),
    PodState(pod=member("train-3")),
    PodState(pod=member("ended"), node="n9", bound_at=NOON, finished=True),
    PodState(pod=member("stranger", "jobset/other"), node="n9", bound_at=NOON),
    PodState(pod=replace(member("namesake"), namespace="other"), node="n9", bound_at=NOON),
)


def test_the_group_is_named_with_the_nodes_of_its_members_and_who_is_missing() -> None:
    gang = gang_now(member("train-3"), STATE)

    assert gang is not None
    assert in_words(gang) == ("jobset/train: 3 of 4 known pods run on n1 (2), n2; missing: train-3")


def test_of_many_missing_pods_a_few_are_named() -> None:
    waiting = state_of(*[PodState(pod=member(f"train-{number}")) for number in range(8)])
    gang = gang_now(member("train-0"), waiting)

    assert gang is not None
    assert in_words(gang) == (
        "jobset/train: 0 of 8 known pods run; "
        "missing: train-0, train-1, train-2, train-3, train-4 and 3 more"
    )


def test_a_pod_in_no_group_has_none() -> None:
    assert gang_now(ask("p"), STATE) is None
