"""How much is kept of what is set aside: every position, and no more bodies than are useful."""

from hypothesis import given, settings
from hypothesis import strategies as st

from joulie_projections.fold.commit import Poison
from joulie_projections.fold.quarantine_quota import (
    BODIES_PER_COMMIT,
    BODIES_PER_SUBJECT,
    BODY_BYTES_PER_COMMIT,
    SUBJECTS_PER_COMMIT,
    all_positions,
    is_single,
    positions_of,
    within_quota,
)

FEW = st.lists(st.tuples(st.integers(1, 3), st.sampled_from("abc")), max_size=400)


def poison(position: int, subject: str = "s", body: bytes = b"body") -> Poison:
    return Poison(position, "OBS", position, "why", body, subject)


def test_a_few_are_kept_as_they_are() -> None:
    few = [poison(7), poison(9), poison(12, "t")]

    assert within_quota(few) == few


def test_of_many_of_one_subject_the_first_are_kept_and_the_positions_of_all() -> None:
    many = [poison(at * 2) for at in range(1, BODIES_PER_SUBJECT + 51)]

    *whole, short = within_quota(many)

    assert whole == many[:BODIES_PER_SUBJECT]
    assert (short.position, short.body, short.subject) == (
        many[BODIES_PER_SUBJECT].position,
        b"",
        "s",
    )
    assert positions_of(short) == [each.position for each in many[BODIES_PER_SUBJECT:]]


def test_another_subject_is_not_pushed_out_by_a_loud_one() -> None:
    loud = [poison(at) for at in range(1, 900)]

    kept = within_quota([*loud, poison(901, "quiet")])

    assert poison(901, "quiet") in kept


def test_one_alone_that_is_too_large_is_kept_without_its_body() -> None:
    [kept] = within_quota([poison(3, body=b"x" * (BODY_BYTES_PER_COMMIT + 1))])

    assert (kept.body, is_single(kept), positions_of(kept)) == (b"", False, [3])


def test_endless_subjects_take_no_endless_rows() -> None:
    kept = within_quota([poison(at, f"s{at}") for at in range(1, 5001)])

    assert len(kept) <= BODIES_PER_COMMIT + SUBJECTS_PER_COMMIT + 1
    assert all_positions(kept) == frozenset(range(1, 5001))


@given(steps=FEW)
@settings(deadline=None, max_examples=100)
def test_no_position_is_lost_and_none_is_named_twice(steps: list[tuple[int, str]]) -> None:
    position, told = 0, []
    for step, subject in steps:
        position += step
        told.append(poison(position, subject))

    kept = within_quota(told)

    named = [position for each in kept for position in positions_of(each)]
    assert sorted(named) == [each.position for each in told]
    assert [each.position for each in kept] == sorted(each.position for each in kept)
