"""The quota of the quarantine: every position, and a bounded number of bodies."""

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


def test_a_few_messages_are_stored_unchanged() -> None:
    few = [poison(7), poison(9), poison(12, "t")]

    assert within_quota(few) == few


def test_many_messages_of_one_subject_keep_the_first_bodies_and_all_positions() -> None:
    many = [poison(at * 2) for at in range(1, BODIES_PER_SUBJECT + 51)]

    *whole, short = within_quota(many)

    assert whole == many[:BODIES_PER_SUBJECT]
    assert (short.position, short.body, short.subject) == (
        many[BODIES_PER_SUBJECT].position,
        b"",
        "s",
    )
    assert positions_of(short) == [each.position for each in many[BODIES_PER_SUBJECT:]]


def test_a_busy_subject_does_not_displace_another_one() -> None:
    busy = [poison(at) for at in range(1, 900)]

    kept = within_quota([*busy, poison(901, "quiet")])

    assert poison(901, "quiet") in kept


def test_a_message_above_the_byte_limit_is_stored_without_its_body() -> None:
    [kept] = within_quota([poison(3, body=b"x" * (BODY_BYTES_PER_COMMIT + 1))])

    assert (kept.body, is_single(kept), positions_of(kept)) == (b"", False, [3])


def test_many_subjects_take_a_bounded_number_of_rows() -> None:
    kept = within_quota([poison(at, f"s{at}") for at in range(1, 5001)])

    assert len(kept) <= BODIES_PER_COMMIT + SUBJECTS_PER_COMMIT + 1
    assert all_positions(kept) == frozenset(range(1, 5001))


@given(steps=FEW)
@settings(deadline=None, max_examples=100)
def test_each_position_is_stored_exactly_once(steps: list[tuple[int, str]]) -> None:
    position, rejected = 0, []
    for step, subject in steps:
        position += step
        rejected.append(poison(position, subject))

    kept = within_quota(rejected)

    named = [position for each in kept for position in positions_of(each)]
    assert sorted(named) == [each.position for each in rejected]
    assert [each.position for each in kept] == sorted(each.position for each in kept)


def test_bodies_are_stored_up_to_the_byte_limit_of_a_commit() -> None:
    half = b"x" * (BODY_BYTES_PER_COMMIT // 2)
    first, fits, beyond = poison(1, body=half), poison(2, body=half), poison(3, "t", body=b"y")

    *whole, short = within_quota([first, fits, beyond])

    assert whole == [first, fits]
    assert (short.position, short.body, is_single(short)) == (3, b"", False)


def test_a_commit_stores_at_most_four_mebibytes_of_a_thousand_messages() -> None:
    assert (BODIES_PER_SUBJECT, BODIES_PER_COMMIT, SUBJECTS_PER_COMMIT) == (100, 1000, 100)
    assert BODY_BYTES_PER_COMMIT == 4_194_304
