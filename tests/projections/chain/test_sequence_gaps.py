"""Numbers that are missing in a log are reported as dropped, whichever part of it is read."""

from collections.abc import Sequence

import pytest

from joulie_projections.chain.sequence_gaps import Gap, SequenceNumbers

LIFE = "extender-0:b1"


def ids(*numbers: int, life: str = LIFE) -> list[bytes]:
    return [f"{life}:{number}".encode() for number in numbers]


def seen(event_ids: Sequence[bytes], *, from_one: bool = False) -> SequenceNumbers:
    numbers = SequenceNumbers(from_one=from_one)
    numbers.add(event_ids, [b""] * len(event_ids))
    return numbers


def gaps(*numbers: int, from_one: bool = False) -> list[Gap]:
    return seen(ids(*numbers), from_one=from_one).gaps()


def test_consecutive_numbers_have_no_gap() -> None:
    assert gaps(1, 2, 3, from_one=True) == []
    assert gaps(7, 8) == []


@pytest.mark.parametrize(
    ("numbers", "gap"), [((7, 9), Gap(LIFE, 8, 8)), ((7, 8, 12), Gap(LIFE, 9, 11))]
)
def test_numbers_that_are_missing_between_others_are_a_gap(
    numbers: Sequence[int], gap: Gap
) -> None:
    assert gaps(*numbers) == [gap]


def test_numbers_before_the_first_are_a_gap_only_in_a_log_that_is_read_from_its_start() -> None:
    assert gaps(3, from_one=True) == [Gap(LIFE, 1, 2)]
    assert gaps(3) == []
    assert gaps(1, from_one=True) == []


def test_entries_in_another_order_leave_no_gap() -> None:
    assert gaps(4, 5, 1, 2, 3, from_one=True) == []
    assert gaps(1, 9, 5, from_one=True) == [Gap(LIFE, 2, 4), Gap(LIFE, 6, 8)]


def test_a_number_that_comes_twice_hides_no_gap() -> None:
    assert gaps(1, 2, 2, 4, from_one=True) == [Gap(LIFE, 3, 3)]


def test_each_replica_and_boot_has_numbers_of_its_own() -> None:
    mixed = [*ids(1, 2), *ids(1, 3, life="b"), *ids(1, 3, life="a:b1"), *ids(3)]

    assert seen(mixed, from_one=True).gaps() == [Gap("a:b1", 2, 2)]


def test_ids_without_a_number_are_passed_over() -> None:
    assert seen([*ids(1), b"outcome:p:x", b"", b"12", *ids(2)], from_one=True).gaps() == []


def test_a_log_in_parts_has_the_gaps_of_the_whole() -> None:
    numbers = [1, 2, 5, 6, 4, 9, 12, 11, 20]
    for at in range(len(numbers) + 1):
        whole = seen(ids(*numbers[:at]), from_one=True)
        whole.extend(seen(ids(*numbers[at:])))

        assert whole.gaps() == gaps(*numbers, from_one=True)


@pytest.mark.parametrize(
    ("gap", "text"),
    [
        (Gap(LIFE, 8, 8), "number 8 of extender-0:b1 are missing: 1 dropped"),
        (Gap(LIFE, 8, 10), "numbers 8 to 10 of extender-0:b1 are missing: 3 dropped"),
    ],
)
def test_a_gap_names_its_numbers_and_how_many_they_are(gap: Gap, text: str) -> None:
    assert str(gap) == f"{text} before they were logged"
    assert list(gap.ids()) == [f"{LIFE}:{number}" for number in range(gap.first, gap.last + 1)]
