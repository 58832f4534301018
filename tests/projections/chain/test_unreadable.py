"""What the log keeps of messages that are no decisions."""

import hashlib
from collections.abc import Sequence

import pytest

from bus_kit import CLUSTER, decided, producer
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.entry import UNREADABLE, Entry, entry_of, message_in
from joulie_projections.chain.log_end import take
from joulie_projections.chain.unreadable import (
    PER_MINUTE,
    PER_SUBJECT,
    SUBJECTS,
    UnreadableQuota,
)

MINUTE = 60 * 10**9
SUBJECT = "joulie.dec.test.extender-0"
FINE = producer("extender-0").stamp(decided("fine"))


def garbage(first: int, count: int, minute: int = 1, subject: str = SUBJECT) -> list[Record]:
    return [
        Record(Stream.DEC, number, minute * MINUTE + number, b"garbage %d" % number, subject)
        for number in range(first, first + count)
    ]


def decision(number: int, minute: int) -> Record:
    return Record(Stream.DEC, number, minute * MINUTE, FINE.data, CLUSTER.decisions("extender-0"))


def entries_of(*batches: Sequence[Record]) -> list[Entry]:
    """With a restart after each batch."""
    made, saved = list[Entry](), b""
    for records in batches:
        taken = UnreadableQuota(saved).take(take(records))
        made += taken.entries
        saved = taken.quota.saved
    return made


def test_the_first_messages_of_a_minute_have_entries_and_the_others_are_counted() -> None:
    records = [*garbage(1, 100), decision(101, minute=2)]
    taken = UnreadableQuota().take(take(records))
    own, counted, fine = taken.entries[:-2], taken.entries[-2], taken.entries[-1]

    assert taken.refused == 100
    assert own == list(map(entry_of, records[:PER_SUBJECT]))
    assert fine == entry_of(records[-1])
    assert counted.fields.event_id == f"unreadable:{PER_SUBJECT + 1}:{100 - PER_SUBJECT}-messages"
    digest, size = b"", 0
    for record in records[PER_SUBJECT:100]:
        digest, size = hashlib.sha256(digest + record.data).digest(), size + len(record.data)
    assert message_in(counted.body).decode() == (
        f"90 messages of {SUBJECT}, #11 to #100, {size} bytes that are not kept, "
        f"chained sha256 {digest.hex()}"
    )


@pytest.mark.parametrize("at", [1, 5, 10, 11, 50, 99])
def test_a_restart_changes_no_entry(at: int) -> None:
    records = [*garbage(1, 100), *garbage(101, 30, minute=2), decision(131, minute=3)]

    assert entries_of(records[:at], records[at:]) == entries_of(records)
    assert entries_of(*([record] for record in records)) == entries_of(records)


def test_decisions_are_no_part_of_the_quota() -> None:
    records = [each for n in range(1, 99, 2) for each in (*garbage(n, 1), decision(n + 1, 1))]
    kinds = [entry.fields.kind for entry in entries_of(records)]

    assert kinds.count(UNREADABLE) == PER_SUBJECT
    assert kinds.count("decision.filter") == 49


def test_many_subjects_share_the_quota_of_a_minute() -> None:
    subjects = [f"joulie.dec.test.evil-{number}" for number in range(200)]
    records = [
        record._replace(subject=subjects[at % 200]) for at, record in enumerate(garbage(1, 5000))
    ]
    made = entries_of(records, [decision(5001, minute=2)])
    counted = [entry for entry in made if "messages" in entry.fields.event_id]

    assert len(made) == PER_MINUTE + SUBJECTS + 1 + 1
    assert b"messages of several subjects, " in counted[-1].body
    notes = [message_in(entry.body).decode() for entry in counted]
    assert sum(int(note.split()[0]) for note in notes) == 5000 - PER_MINUTE


def test_a_clock_that_goes_back_does_not_give_a_new_quota() -> None:
    records = [*garbage(1, 20, minute=5), *garbage(21, 20, minute=4), *garbage(41, 20, minute=5)]

    assert len(entries_of(records)) == PER_SUBJECT


def test_a_new_minute_begins_when_the_clock_of_the_broker_shows_it() -> None:
    last, first = 2 * MINUTE - 1, 2 * MINUTE
    at = [MINUTE] * PER_SUBJECT + [last] + [first] * (PER_SUBJECT + 1)
    records = [record._replace(at=now) for record, now in zip(garbage(1, 99), at, strict=False)]
    made = [entry.fields.event_id for entry in entries_of(records)]

    assert made == [
        *(f"unreadable:{number}" for number in range(1, 11)),
        "unreadable:11:1-messages",
        *(f"unreadable:{number}" for number in range(12, 22)),
    ]


def test_a_long_subject_is_cut_in_the_entry_that_counts_its_messages() -> None:
    records = garbage(1, PER_SUBJECT + 1, subject="s" * 300)
    [*_, counted, _] = entries_of(records, [decision(99, minute=2)])

    assert message_in(counted.body).startswith(b"1 messages of %b, #11 to #11, " % (b"s" * 256))


def test_decisions_alone_use_nothing_of_a_quota() -> None:
    quota, records = UnreadableQuota(), [decision(1, minute=1), decision(2, minute=2)]
    taken = quota.take(take(records))

    assert (taken.entries, taken.refused) == (list(map(entry_of, records)), 0)
    assert taken.quota is quota
