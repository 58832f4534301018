"""The patience with a server, and the pauses between attempts."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from joulie_bus.broker.callout import PATIENCE_S
from joulie_bus.jetstream.attempts import FIRST_S, LONGEST_S, PAUSE_S, Attempts
from joulie_bus.jetstream.connection import OPEN_OF_MANY_S, Address


def drawn(share: float, *, one_of_many: bool) -> Attempts:
    return Attempts(one_of_many=one_of_many, draw=lambda low, high: low + share * (high - low))


def test_a_component_leaves_a_silent_server_soon_and_waits_longer_while_none_answers() -> None:
    attempts, patience = Attempts(one_of_many=False), list[float]()
    for _ in range(6):
        patience.append(attempts.begin()[0])
        attempts.ran_out()
    assert patience == [2.0, 4.0, 8.0, 16.0, 20.0, 20.0]
    attempts.succeeded()
    assert attempts.begin()[0] == FIRST_S


def test_servers_that_refuse_do_not_make_a_component_wait_longer_for_a_silent_one() -> None:
    attempts = Attempts(one_of_many=False)
    assert {attempts.begin()[0] for _ in range(100)} == {FIRST_S}


def test_one_of_many_comes_to_wait_longer_than_the_broker_does_for_the_answer_about_it() -> None:
    """Within the time of its first connection."""
    attempts = drawn(1, one_of_many=True)
    made = [attempts.begin() for _ in range(3)]
    assert [patience_s for patience_s, _ in made] == [8.0, 16.0, 20.0]
    assert made[-1][0] == LONGEST_S > PATIENCE_S
    assert sum(patience_s + pause_s for patience_s, pause_s in made) <= OPEN_OF_MANY_S


@given(st.floats(0, 1), st.integers(1, 2000))
def test_pauses_of_one_of_many_grow_to_seconds_and_those_of_others_do_not(
    share: float, count: int
) -> None:
    many, other = drawn(share, one_of_many=True), drawn(share, one_of_many=False)
    pauses = [many.begin()[1] for _ in range(count)]
    assert all(one <= another for one, another in itertools.pairwise(pauses))
    assert PAUSE_S[0] <= pauses[0] <= PAUSE_S[1]
    assert pauses[-1] <= 5
    assert count < 6 or pauses[-1] >= 2.5
    assert all(PAUSE_S[0] <= other.begin()[1] <= PAUSE_S[1] for _ in range(count))


def test_an_agent_is_one_of_many_by_a_token_or_by_a_password() -> None:
    by_token, shared = Address(url="", token_file="x"), Address(url="", of_agent=True)
    component = Address(url="", user="operator", password="x")
    assert [each.is_one_of_many for each in (by_token, shared, component)] == [True, True, False]
    assert by_token.patience_s == shared.patience_s == OPEN_OF_MANY_S > component.patience_s
