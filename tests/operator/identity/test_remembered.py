"""What the service remembers of tokens: bounded, by their hashes, and for a while only."""

import pytest

from joulie_operator.identity import accepted, refused
from joulie_operator.identity.accepted import KEPT_S, MOST_OF_NODE, Accepted, ends_at
from joulie_operator.identity.refused import AT_FIRST, EACH_S, REFUSED_S, Refused


def key(number: int) -> bytes:
    return number.to_bytes(32)


def test_a_refused_token_is_refused_with_its_reason_and_reviewed_again_later() -> None:
    known = Refused()
    assert known.why(key(1), "a", 0.0) == ""
    known.note(key(1), "a", "not for us", 0.0)

    assert known.why(key(1), "b", REFUSED_S - 1) == "not for us"
    assert known.why(key(1), "b", REFUSED_S) == ""


def test_an_address_has_only_so_many_refused_reviews_and_others_keep_theirs() -> None:
    known, reviews = Refused(), 0
    seconds = 100
    for at in range(10 * seconds):
        if not known.why(key(at), "a", at / 10):
            known.note(key(at), "a", "forged", at / 10)
            reviews += 1

    assert AT_FIRST <= reviews <= AT_FIRST + EACH_S * seconds
    assert "too many tokens from a" in known.why(key(-1 % 2**64), "a", seconds)
    assert known.why(key(5000), "b", seconds) == ""
    assert known.why(key(5000), "a", seconds + AT_FIRST / EACH_S) == ""


def test_what_is_refused_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused, "MOST_TOKENS", 10)
    monkeypatch.setattr(refused, "MOST_ADDRESSES", 10)
    known = Refused()
    for number in range(100):
        known.note(key(number), f"a{number}", "forged", 0.0)

    assert [n for n in range(100) if known.why(key(n), "b", 1.0)] == list(range(90, 100))
    assert (len(known._tokens), len(known._left)) == (10, 10)


def test_an_accepted_token_is_known_until_it_ends_and_some_minutes_at_most() -> None:
    known = Accepted()
    known.note(key(1), "n1", 0.0, lives_s=3600)
    known.note(key(2), "n1", 0.0, lives_s=60)
    known.note(key(3), "n1", 0.0, lives_s=-5)

    assert [known.node(key(n), 59) for n in (1, 2, 3)] == ["n1", "n1", ""]
    assert [known.node(key(n), KEPT_S - 1) for n in (1, 2, 3)] == ["n1", "", ""]
    assert known.node(key(1), KEPT_S) == ""


def test_a_node_with_many_tokens_displaces_none_of_another_node() -> None:
    known = Accepted()
    known.note(key(0), "n1", 0.0, 3600)
    for number in range(1, 1000):
        known.note(key(number), "n2", 0.0, 3600)

    assert known.node(key(0), 1) == "n1"
    assert sum(bool(known.node(key(n), 1)) for n in range(1, 1000)) == MOST_OF_NODE
    assert known.node(key(999), 1) == "n2"


def test_what_is_accepted_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepted, "MOST_KEPT", 10)
    known = Accepted()
    for number in range(100):
        known.note(key(number), f"n{number}", 0.0, 3600)
        known.note(key(number), f"n{number}", 0.0, 3600)  # again

    assert [n for n in range(100) if known.node(key(n), 1)] == list(range(90, 100))
    assert (len(known._tokens), len(known._of_node)) == (10, 10)


@pytest.mark.parametrize("text", ["", "a", "a.b", "a.!!!.c", "a.eyJleHAiOiJ4In0.c", "a.W10.c"])
def test_a_text_without_an_end_has_none(text: str) -> None:
    assert ends_at(text) == 0.0


def test_the_end_of_a_token_is_read() -> None:
    assert ends_at("a.eyJleHAiOjEyM30.c") == 123.0
