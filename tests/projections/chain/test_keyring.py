"""Which key may sign which head, and which heads of a compromised key are valid."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from bus_kit import noon
from joulie_bus.errors import KeyMismatch, KeyRingBroken
from joulie_projections.chain import keyring
from joulie_projections.chain.head import Head, Signed, decode_any, encode
from joulie_projections.chain.keyring import Ring, key_of
from joulie_projections.chain.signed import Handover, KeyStatement, Retirement
from joulie_projections.decision_log.heads import Signer, public_key
from signed_heads import head_at


def signed_hash(pos: int) -> bytes:
    return bytes([pos]) * 32


class Keys(NamedTuple):
    """Three keys: the first signs up to entry 10, the second up to 20, the third after that."""

    one: Signer
    two: Signer
    three: Signer
    stranger: Signer

    def head(self, name: str, pos: int) -> Head:
        signer: Signer = getattr(self, name)
        return head_at(signer, pos, signed_hash(pos), noon())

    @property
    def handovers(self) -> list[Handover]:
        return [
            self.one.hand_over(self.two, 10, signed_hash(10), noon(1)),
            self.two.hand_over(self.three, 20, signed_hash(20), noon(2)),
        ]

    @property
    def ring(self) -> Ring:
        ring, flaws = Ring(key_of(self.one.raw)).with_all(self.handovers)
        assert flaws == []
        return ring


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(*(Signer.of(tmp_path / f"{name}.key") for name in Keys._fields))


# --- ranges -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "pos"), [("one", 1), ("one", 10), ("two", 11), ("two", 20), ("three", 21)]
)
def test_each_key_signs_heads_of_its_range(keys: Keys, name: str, pos: int) -> None:
    assert keys.ring.flaw_of(keys.head(name, pos)) == ""


@pytest.mark.parametrize(
    ("name", "pos", "what"),
    [
        ("one", 11, "up to entry 10"),
        ("two", 10, "after entry 10"),
        ("two", 21, "up to entry 20"),
        ("three", 20, "after entry 20"),
    ],
)
def test_a_head_outside_the_range_of_its_key_is_a_flaw(
    keys: Keys, name: str, pos: int, what: str
) -> None:
    head = keys.head(name, pos)

    assert keys.ring.flaw_of(head) == (
        f"the head at {pos} is signed by key {head.key_id}, which signs {what}"
    )


def test_a_head_with_the_id_of_another_key_is_not_valid(keys: Keys) -> None:
    own = keys.head("one", 15)
    borrowed = Head(note=own.note.replace(f"key {own.key_id}", f"key {keys.two.key_id}"))

    assert keys.ring.flaw_of(borrowed) == "the head at 15 is not signed by a key of this log"
    assert keys.ring.flaw_of(keys.head("stranger", 5)) != ""


# --- handovers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"pos": 11},
        {"hash": bytes(32)},
        {"signed_at": 1},
        {"old_signature": bytes(64)},
        {"new_signature": bytes(64)},
        {"new": bytes(32)},
        {"new": b"short"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_handover_that_was_changed_is_forged(keys: Keys, change: dict[str, Any]) -> None:
    forged = msgspec.structs.replace(keys.handovers[0], **change)

    ring, flaws = Ring(key_of(keys.one.raw)).with_all([forged])

    assert ring.handovers == ()
    assert len(flaws) == 1
    assert flaws[0].endswith("is not signed by both keys")


FORGED: dict[str, tuple[Callable[[Keys], KeyStatement], str]] = {
    "a second one of the same key": (
        lambda keys: keys.one.hand_over(keys.stranger, 5, signed_hash(5), noon()),
        "handed over at entry 10",
    ),
    "one of another log": (
        lambda keys: keys.stranger.hand_over(keys.stranger, 25, signed_hash(25), noon()),
        "its old key is not of this log",
    ),
    "back to a key that signed before": (
        lambda keys: keys.three.hand_over(keys.one, 25, signed_hash(25), noon()),
        "the new key has signed before",
    ),
    "before the one before it": (
        lambda keys: keys.three.hand_over(keys.stranger, 15, signed_hash(15), noon()),
        "comes before the one to key",
    ),
}


@pytest.mark.parametrize(("made", "what"), FORGED.values(), ids=FORGED)
def test_a_handover_that_does_not_follow_the_ring_is_reported(
    keys: Keys, made: Callable[[Keys], KeyStatement], what: str
) -> None:
    ring, flaws = keys.ring.with_all([made(keys)])

    assert ring == keys.ring
    assert len(flaws) == 1
    assert what in flaws[0]


def test_the_first_key_leads_to_the_last(keys: Keys) -> None:
    ring, flaws = Ring(key_of(keys.one.raw)).with_all([*keys.handovers, *keys.handovers])

    assert (ring, flaws) == (keys.ring, [])


def test_the_last_key_leads_to_the_first(keys: Keys) -> None:
    ring, flaws = Ring(key_of(keys.three.raw)).with_all(keys.handovers[::-1])

    assert (ring, flaws) == (keys.ring, [])


# --- a key that leaked --------------------------------------------------------------------------


def retired(keys: Keys, since: int = 5) -> Ring:
    ring, flaws = keys.ring.with_all([keys.two.retire(keys.one.key_id, since, 12, noon(3))])
    assert flaws == []
    return ring


def test_heads_before_the_leak_are_valid(keys: Keys) -> None:
    ring = retired(keys)

    assert ring.stands_alone(keys.head("one", 5))
    assert not ring.stands_alone(keys.head("one", 6))
    assert ring.unconfirmed([keys.head("one", 5)], last=9) is None


def test_heads_after_the_leak_need_confirmation_by_a_good_key(keys: Keys) -> None:
    ring, doubtful = retired(keys), keys.head("one", 8)

    assert ring.unconfirmed([doubtful], last=9) == doubtful
    assert ring.unconfirmed([keys.head("one", 5), doubtful], last=9) == doubtful
    assert ring.unconfirmed([doubtful, keys.head("two", 11)], last=11) is None
    assert ring.unconfirmed([doubtful], last=10) is None  # the second key signed the handover, too


def test_two_keys_that_leaked_do_not_confirm_each_other(keys: Keys) -> None:
    ring, flaws = retired(keys).with_all([keys.three.retire(keys.two.key_id, 9, 22, noon(4))])
    heads = [keys.head("one", 8), keys.head("two", 15)]

    assert flaws == []
    assert ring.unconfirmed(heads, last=15) == heads[0]
    assert ring.unconfirmed([*heads, keys.head("three", 21)], last=21) is None


@pytest.mark.parametrize("name", ["one", "stranger"])
def test_only_a_later_key_retires_one(keys: Keys, name: str) -> None:
    signer: Signer = getattr(keys, name)

    _, flaws = keys.ring.with_all([signer.retire(keys.one.key_id, 5, 12, noon())])

    assert flaws == [
        f"the retirement of key {keys.one.key_id} since entry 5 is not signed by a later key of "
        "this log"
    ]


@pytest.mark.parametrize("change", [{"since": 9}, {"signature": bytes(64)}], ids=str)
def test_a_retirement_that_was_changed_is_forged(keys: Keys, change: dict[str, Any]) -> None:
    statement = keys.two.retire(keys.one.key_id, 5, 12, noon())

    _, flaws = keys.ring.with_all([msgspec.structs.replace(statement, **change)])

    assert len(flaws) == 1
    assert flaws[0].endswith("is forged")


# --- files and messages -------------------------------------------------------------------------


def test_a_ring_is_stored_in_a_file(keys: Keys, tmp_path: Path) -> None:
    file = tmp_path / "ring.pub"
    file.write_bytes(keyring.encoded(retired(keys)))

    assert public_key(file) == retired(keys)


def test_one_public_key_is_a_ring_of_one(keys: Keys, tmp_path: Path) -> None:
    keys.one.publish(tmp_path / "alone.pub")

    assert public_key(tmp_path / "alone.pub") == Ring(key_of(keys.one.raw))


BROKEN: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "another version": (lambda ring: ring.replace(b"keys/1", b"keys/2"), "Invalid value"),
    "no handovers that fit": (
        lambda ring: ring.replace(b'"signed_at": ', b'"signed_at": 1'),
        "is not signed by both keys",
    ),
    "cut off": (lambda ring: ring[:-10], "truncated"),
}


@pytest.mark.parametrize(("change", "why"), BROKEN.values(), ids=BROKEN)
def test_an_inconsistent_ring_is_refused(
    keys: Keys, tmp_path: Path, change: Callable[[bytes], bytes], why: str
) -> None:
    file = tmp_path / "ring.pub"
    file.write_bytes(change(keyring.encoded(keys.ring)))

    with pytest.raises(KeyRingBroken, match=why):
        public_key(file)


def test_an_invalid_key_file_is_named_but_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "head.key").write_text("-----BEGIN PRIVATE KEY-----\nhunter2\n")
    (tmp_path / "x.pub").write_text("hunter2")

    for read in (
        lambda: Signer.of(tmp_path / "head.key"),
        lambda: public_key(tmp_path / "x.pub"),
    ):
        with pytest.raises(KeyMismatch) as refused:
            read()
        assert "hunter2" not in str(refused.value)


def test_a_statement_is_decoded_as_its_kind(keys: Keys) -> None:
    retirement: Retirement = keys.two.retire(keys.one.key_id, 5, 12, noon())
    for statement in (keys.head("one", 5), keys.handovers[0], retirement):
        assert decode_any(encode(statement)) == statement


def test_statements_count_that_a_key_of_the_log_signed_with_the_keys_handed_over_before(
    keys: Keys,
) -> None:
    ring = Ring(key_of(keys.one.raw))
    forged = msgspec.structs.replace(
        keys.handovers[0], pos=11, old_signature=bytes(64), new_signature=bytes(64)
    )
    signed: list[Signed] = [keys.head("one", 5), keys.handovers[0], keys.head("two", 15)]
    strange: list[Signed] = [keys.head("stranger", 5), forged]

    assert ring.signed_among([*strange, *signed]) == signed
    assert ring.signed_among([keys.head("two", 15)]) == []


def test_a_key_counts_as_compromised_once_it_is_retired(keys: Keys) -> None:
    assert [key.is_compromised for key in retired(keys).keys] == [True, False, False]
