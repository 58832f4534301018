"""Each message has the hash of the one before it, and each second the end is signed."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from joulie_bus.errors import Undecodable
from joulie_bus.events import Promise, PromiseKey, codec
from joulie_bus.streams.records import Message
from joulie_extender.decision_log.promises import MOST_UNSIGNED
from joulie_projections.chain.promise import (
    Promised,
    SignedEnd,
    covers,
    hash_of,
    key_in,
    prev_in,
    signed_end_in,
)
from promising import Replica


def kinds(messages: Sequence[Message]) -> list[str]:
    envelopes = [codec.open_envelope(message.data, "here") for message in messages]
    return [envelope.type.removeprefix("decision.") for envelope in envelopes]


def ends(messages: Sequence[Message]) -> list[SignedEnd]:
    of_promises = [
        message.data
        for message in messages
        if codec.open_envelope(message.data, "here").type == Promise.TYPE
    ]
    return [signed_end_in(data, "here") for data in of_promises]


def public(messages: Sequence[Message]) -> bytes:
    return key_in(messages[0].data, "here")[1].public


def test_the_first_message_has_the_key_and_each_other_one_the_hash_of_the_one_before_it(
    tmp_path: Path,
) -> None:
    with Replica.living(tmp_path) as replica:
        replica.decides(1, 2, 3)
        messages = replica.published

    assert kinds(messages) == ["promise-key", "filter", "filter", "filter"]
    assert [prev_in(message.data) for message in messages] == [
        b"",
        *(hash_of(message.data) for message in messages[:-1]),
    ]


def test_the_end_is_signed_before_the_first_message_after_a_second(tmp_path: Path) -> None:
    with Replica.living(tmp_path) as replica:
        replica.decides(1, 2)
        replica.decides(3, after_s=1.0)
        messages = replica.published

    assert kinds(messages) == ["promise-key", "filter", "filter", "promise", "filter"]
    [end] = ends(messages)
    assert end.is_signed_by(public(messages))
    assert end.last == Promised(messages[2].id, hash_of(messages[2].data))
    covered = [Promised(message.id, hash_of(message.data)) for message in messages[1:3]]
    assert end.event.covers == covers(covered)


def test_a_clock_that_was_set_back_delays_no_promise(tmp_path: Path) -> None:
    with Replica.living(tmp_path) as replica:
        replica.decides(1)
        replica.decides(2, after_s=-60.0)
        messages = replica.published

    assert kinds(messages) == ["promise-key", "filter", "promise", "filter"]


def test_each_promise_covers_what_followed_the_last_one(tmp_path: Path) -> None:
    with Replica.living(tmp_path) as replica:
        for number in range(3):
            replica.decides(number, after_s=1.0)
        messages = replica.published
    first, second = ends(messages)

    assert kinds(messages)[1:] == ["filter", "promise", "filter", "promise", "filter"]
    of_decisions = [Promised(each.id, hash_of(each.data)) for each in messages[1::2]]
    assert [first.event.covers, second.event.covers] == [
        covers([of_decisions[0]]),
        covers([of_decisions[1]]),
    ]


def test_a_promise_is_not_followed_by_promises_while_nothing_is_decided(tmp_path: Path) -> None:
    with Replica.living(tmp_path) as replica:
        replica.decides(1)
        for _ in range(5):
            replica.clock.advance(2.0)
            replica.promised.sign()
        messages = replica.published

    assert kinds(messages) == ["promise-key", "filter", "promise"]


def test_at_the_end_it_is_signed_at_once(tmp_path: Path) -> None:
    with Replica.living(tmp_path) as replica:
        replica.decides(1)
        replica.promised.sign()
        assert kinds(replica.published) == ["promise-key", "filter"]
        replica.promised.sign(at_once=True)
        assert kinds(replica.published) == ["promise-key", "filter", "promise"]


def test_many_messages_in_a_second_have_promises_too(tmp_path: Path) -> None:
    with Replica.living(tmp_path) as replica:
        replica.decides(*range(MOST_UNSIGNED + 1), after_s=0.0)
        found = kinds(replica.published)

    assert found.index("promise") == 1 + MOST_UNSIGNED


def test_a_promise_of_another_key_or_about_another_message_is_not_genuine(tmp_path: Path) -> None:
    with Replica.living(tmp_path / "one") as one, Replica.living(tmp_path / "other") as other:
        for replica in (one, other):
            replica.decides(1)
            replica.promised.sign(at_once=True)
        ours, theirs = one.published, other.published
    [end] = ends(ours)

    assert end.is_signed_by(public(ours))
    assert not end.is_signed_by(public(theirs))
    assert not end._replace(last=Promised(end.last.id, bytes(32))).is_signed_by(public(ours))
    assert not end._replace(last=Promised("extender-0:b1:9", end.last.hash)).is_signed_by(
        public(ours)
    )


def test_a_message_that_is_no_promise_is_none(tmp_path: Path) -> None:
    with Replica.living(tmp_path) as replica:
        replica.decides(1)
        key, decision = replica.published

    for message in (key, decision, Message("s", "x", b"junk")):
        with pytest.raises(Undecodable):
            signed_end_in(message.data, "here")
    with pytest.raises(Undecodable):
        key_in(decision.data, "here")


def test_a_promise_about_another_life_is_none(tmp_path: Path) -> None:
    with Replica.living(tmp_path) as replica:
        replica.decides(1)
        replica.promised.sign(at_once=True)
        *_, promise = replica.published
    envelope = codec.open_envelope(promise.data, "here")
    moved = codec.Envelope(
        prev=envelope.prev,
        id="extender-0:b2:3",
        type=envelope.type,
        v=1,
        key=envelope.key,
        ts=0,
        data=envelope.data,
    )

    with pytest.raises(Undecodable, match="a message of another life"):
        signed_end_in(codec.seal(moved), "here")


def test_an_answer_that_a_full_disk_dropped_is_not_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Replica.living(tmp_path) as replica:
        replica.decides(1)
        replica.drops(2, 3, patch=monkeypatch)
        replica.decides(4)
        messages = replica.published

    assert [codec.origin_of(message.id, "here").seq for message in messages] == [1, 2, 5, 6]
    assert prev_in(messages[2].data) == hash_of(messages[1].data)


# --- the next life ------------------------------------------------------------------------------


def earlier(messages: Sequence[Message], life: str) -> PromiseKey:
    """In the first message of a life: what it says of the life before it."""
    [first] = [
        each for each in messages if each.id.startswith(f"{life}:1") and each.id[-2:] == ":1"
    ]
    return key_in(first.data, "here")[1]


@pytest.mark.parametrize("shipped", [0, 1, 3, 5, 6])
def test_a_life_after_a_kill_promises_what_the_last_one_had_not_signed(
    shipped: int, tmp_path: Path
) -> None:
    with Replica.living(tmp_path, "b1") as killed:
        killed.decides(1, 2)
        killed.decides(3, 4, after_s=1.0)
        published = killed.published
        killed.ships(shipped)
    with Replica.living(tmp_path, "b2") as following:
        following.decides(5)
        said = earlier(following.published, "extender-0:b2")

    assert kinds(published) == [
        *("promise-key", "filter", "filter", "promise", "filter", "promise", "filter"),
    ]
    unsigned = [Promised(each.id, hash_of(each.data)) for each in published[6:]]
    assert (said.last, said.covers) == (published[-1].id, covers(unsigned))


def test_a_life_after_a_clean_end_has_nothing_to_add(tmp_path: Path) -> None:
    with Replica.living(tmp_path, "b1") as ended:
        ended.decides(1)
        ended.promised.sign(at_once=True)
        ended.ships(3)
    with Replica.living(tmp_path, "b2") as following:
        following.decides(2)
        said = earlier(following.published, "extender-0:b2")

    assert (said.last, said.covers) == ("", b"")
