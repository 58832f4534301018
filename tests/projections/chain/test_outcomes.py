"""Outcomes: one entry for each bound pod, with the rank of its node in the answer."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager

import pytest
from msgspec.structs import replace

from bus_kit import CLUSTER, ask, bound, node_seen, noon, one_of_each, producer, until
from joulie_bus.events import Candidates, NodeGone, OutcomeSeen, PodGone, PrioritizeDecided, codec
from joulie_projections.chain.outcomes import ROW_REASSIGNED, message_of, outcome_of
from joulie_projections.fold.commit import FirstBinding
from joulie_projections.history.history import History
from joulie_projections.store.database import Place
from joulie_projections.view.view import View

Projecting = Callable[..., AbstractAsyncContextManager[asyncio.Task[None]]]
Viewing = Callable[[], AbstractAsyncContextManager[View]]
Publish = Callable[..., Awaitable[None]]


def prioritized(
    uid: str, ordinals: Sequence[int], scores: Sequence[int], strangers: Sequence[str] = ()
) -> PrioritizeDecided:
    [example] = [event for event in one_of_each() if isinstance(event, PrioritizeDecided)]
    return replace(
        example,
        pod=ask(uid),
        candidates=Candidates(
            ordinals=struct.pack(f"<{len(ordinals)}i", *ordinals), strangers=list(strangers)
        ),
        scores=struct.pack(f"<{len(scores)}h", *scores),
    )


def answer(
    *, ordinals: Sequence[int], scores: Sequence[int], strangers: Sequence[str] = ()
) -> bytes:
    return producer("extender").stamp(prioritized("p", ordinals, scores, strangers)).data


def pod(ordinal: int, node: str = "n") -> FirstBinding:
    return FirstBinding(7, noon(), "p", "team", "web", node, ordinal)


def seen(**more: object) -> OutcomeSeen:
    return OutcomeSeen(pod_uid="p", namespace="team", name="web", node="n", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("where", "message", "rank", "score", "regret"),
    [
        pytest.param(3, answer(ordinals=[1, 3], scores=[40, 90]), 1, 90, 0, id="the best"),
        pytest.param(1, answer(ordinals=[1, 3], scores=[40, 90]), 2, 40, 50, id="the second"),
        pytest.param(2, answer(ordinals=[1, 2, 3], scores=[9, 9, 9]), 1, 9, 0, id="all alike"),
        pytest.param(0, answer(ordinals=[0, 1, 2], scores=[5, 7, 7]), 3, 5, 2, id="behind two"),
        pytest.param(
            -1, answer(ordinals=[-1, 4, -1], scores=[1, 2, 3], strangers=["m", "n"]), 1, 3, 0,
            id="an unknown node",
        ),
    ],
)  # fmt: skip
def test_a_rank_counts_the_nodes_with_a_better_score(
    where: int, message: bytes, rank: int, score: int, regret: int
) -> None:
    expected = seen(decision="extender:b1:1", rank=rank, score=score, regret=regret)

    assert outcome_of(pod(where), message) == expected


def test_the_outcome_of_an_answer_without_a_view_says_so() -> None:
    given = prioritized("p", [-1], [50], ["n"])
    blind = replace(given, basis=replace(given.basis, view=0, view_age_ms=10**12))
    message = producer("extender").stamp(blind).data

    assert outcome_of(pod(-1), message).without_view


def test_a_node_that_was_no_candidate_has_no_rank() -> None:
    message = answer(ordinals=[1, 2], scores=[40, 90])

    assert outcome_of(pod(7), message) == seen(decision="extender:b1:1")


def test_a_reassigned_row_gives_no_rank() -> None:
    message = answer(ordinals=[1, 3], scores=[40, 90])

    assert outcome_of(pod(ROW_REASSIGNED), message) == seen(decision="extender:b1:1")


@pytest.mark.parametrize(("place", "rank", "score"), [(0, 1, 90), (1, 2, 60), (2, 3, 40)])
def test_a_node_named_among_the_best_keeps_its_rank(place: int, rank: int, score: int) -> None:
    given = prioritized("p", [1, 3, 4], [40, 90, 60])
    top = [replace(given.top[0], node="n" if at == place else f"m{at}") for at in range(3)]
    message = producer("extender").stamp(replace(given, top=top)).data

    expected = seen(decision="extender:b1:1", rank=rank, score=score, regret=90 - score)

    assert outcome_of(pod(ROW_REASSIGNED), message) == expected


@pytest.mark.parametrize("message", [None, b"garbage"])
def test_without_an_answer_the_outcome_is_empty(message: bytes | None) -> None:
    assert outcome_of(pod(1), message) == seen()


def test_the_message_of_an_outcome_is_deterministic() -> None:
    message = answer(ordinals=[1, 2], scores=[40, 90])

    first, second = (message_of(pod(1), message, CLUSTER) for _ in range(2))

    assert first == second
    assert first.subject == CLUSTER.decisions("projector")
    envelope = codec.open_envelope(first.data, "it")
    assert (envelope.id, envelope.ts, envelope.cause) == ("outcome:p:1", noon(), "extender:b1:1")


# --- with a projector -------------------------------------------------------------------------


def committed(place: Place) -> int:
    with History.of(place) as history:
        held = history.checkpoint()
        return held.position if held else 0


def outcomes(place: Place) -> list[OutcomeSeen]:
    with History.of(place) as history:
        bodies = [entry.message for entry in history.entries() if entry.kind == OutcomeSeen.TYPE]
    found = [codec.decoded(body, "it") for body in bodies]
    return [event for event in found if isinstance(event, OutcomeSeen)]


@pytest.mark.anyio
async def test_a_bound_pod_gets_its_rank_in_the_log(
    projecting: Projecting, publish: Publish, place: Place
) -> None:
    async with projecting():
        await publish(node_seen("a"), node_seen("b"), prioritized("p", [0, 1], [70, 20]))
        await publish(bound("p", "b"))
        await until(lambda: bool(outcomes(place)))

    [outcome] = outcomes(place)
    assert (outcome.pod_uid, outcome.node) == ("p", "b")
    assert (outcome.rank, outcome.score, outcome.regret) == (2, 20, 50)


@pytest.mark.anyio
async def test_a_node_in_a_reassigned_row_is_not_mistaken_for_the_previous_one(
    projecting: Projecting, publish: Publish, place: Place
) -> None:
    asked = prioritized("p", [0, 1], [70, 20])
    async with projecting():
        await publish(node_seen("a"), node_seen("b"))
        await until(lambda: committed(place) == 2)
        await publish(replace(asked, basis=replace(asked.basis, view=2)))
        await publish(NodeGone(node="b"), node_seen("c"), bound("p", "c"))
        await until(lambda: bool(outcomes(place)))

    [outcome] = outcomes(place)
    assert (outcome.node, outcome.rank, outcome.score) == ("c", None, None)


@pytest.mark.anyio
async def test_a_pod_waits_for_an_answer_that_is_still_on_its_way(
    projecting: Projecting, publish: Publish, place: Place
) -> None:
    async with projecting(outcome_grace_s=60):
        await publish(node_seen("a"), bound("p", "a"), PodGone(uid="p"))
        await publish(prioritized("p", [0], [70]))
        await until(lambda: bool(outcomes(place)))

    assert [outcome.rank for outcome in outcomes(place)] == [1]


@pytest.mark.anyio
async def test_each_pod_has_one_outcome_across_restarts_of_the_projector(
    projecting: Projecting, viewing: Viewing, publish: Publish, place: Place
) -> None:
    pods = [f"p{number}" for number in range(40)]
    await publish(node_seen("a"), *(bound(uid, "a") for uid in pods))
    for position in (5, 20, 41):
        async with projecting(outcome_grace_s=0.1), viewing() as view:
            await view.wait_for(position, 60)
    async with projecting(outcome_grace_s=0.1):
        await until(lambda: len(outcomes(place)) >= len(pods))
        await publish(*(bound(uid, "a") for uid in pods))  # seen again by a watcher that restarts

    assert sorted(outcome.pod_uid for outcome in outcomes(place)) == sorted(pods)
