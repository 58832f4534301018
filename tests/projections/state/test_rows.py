"""The cluster state as rows, their digests, and the Merkle root of a commit."""

import hashlib
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from bus_kit import ANY_FACTS, any_fact, node_seen, power, records
from joulie_bus.events import Fact
from joulie_projections.fold.manifest import hash_of_all
from joulie_projections.fold.sequence import fold
from joulie_projections.state.rows import (
    STATES,
    VIEWED,
    Digests,
    Row,
    changed_rows,
    cluster_state_of,
    digests_of,
    empty_digests,
    encode,
    state_digest,
    tables_of,
)
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from joulie_projections.store.tables import STATE_TABLES

FACTS = st.lists(st.integers(0, ANY_FACTS - 1).map(any_fact), max_size=40)


def rows_of(cluster_state: ClusterState) -> list[Row]:
    tables = tables_of(cluster_state).items()
    return [Row(table, key, encode(state)) for table, rows in tables for key, state in rows.items()]


def after_each(facts: list[Fact], batch: int) -> tuple[ClusterState, Digests, list[Row]]:
    """The cluster state, the incremental digests, and every row that was written."""
    cluster_state, digests = ClusterState(), empty_digests()
    written: list[Row] = []
    log = records(*facts)
    for first in range(0, len(log), batch):
        draft = Draft(cluster_state)
        fold(draft, log[first : first + batch], first)
        rows, digests = changed_rows(draft.changed(), digests)
        written.extend(rows)
        draft.commit()
    return cluster_state, digests, written


@given(facts=FACTS, batch=st.integers(1, 10), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=100)
def test_an_incremental_digest_equals_one_of_all_rows_in_any_order(
    facts: list[Fact], batch: int, seed: int
) -> None:
    cluster_state, digests, _ = after_each(facts, batch)
    rows = rows_of(cluster_state)
    random.Random(seed).shuffle(rows)

    assert digests_of(rows) == digests


@given(facts=FACTS, batch=st.integers(1, 10))
@settings(deadline=None, max_examples=60)
def test_the_written_rows_rebuild_the_cluster_state(facts: list[Fact], batch: int) -> None:
    cluster_state, _, written = after_each(facts, batch)

    assert sorted(rows_of(cluster_state_of(written))) == sorted(rows_of(cluster_state))


@given(facts=FACTS, batch=st.integers(1, 10), discarded=st.sets(st.integers(0, 20)))
@settings(deadline=None, max_examples=100)
def test_cached_fingerprints_give_the_same_rows_and_digests(
    facts: list[Fact], batch: int, discarded: set[int]
) -> None:
    cluster_state, digests = ClusterState(), empty_digests()
    log = records(*facts)
    for number, first in enumerate(range(0, len(log), batch)):
        draft = Draft(cluster_state)
        fold(draft, log[first : first + batch], first)
        found = changed_rows(draft.changed(), digests, cluster_state.fingerprints)

        assert found == changed_rows(draft.changed(), digests)
        if number not in discarded:
            draft.commit()
            digests = found[1]


def test_readers_follow_every_table_except_producers() -> None:
    assert set(VIEWED) == set(STATES) - {"producer"} == set(STATE_TABLES) - {"producer"}


def test_unchanged_rows_are_not_written() -> None:
    cluster_state, digests, _ = after_each([node_seen("a"), node_seen("b")], 2)
    draft = Draft(cluster_state)
    fold(draft, records(power("a", 1), name="another"), 2)

    rows, _ = changed_rows(draft.changed(), digests)

    assert [(row.table, row.key) for row in rows] == [
        ("node", "a"),
        ("producer", "tel:another"),
        ("cluster", "cluster"),
    ]


def test_deleting_a_missing_row_writes_nothing() -> None:
    draft = Draft(ClusterState())
    draft.nodes.drop("missing")

    assert changed_rows(draft.changed(), empty_digests()) == ([], empty_digests())


@pytest.mark.parametrize(
    "other",
    [
        Row("node", "b", b"1"),
        Row("pod", "a", b"1"),
        Row("node", "a", b"2"),
        Row("node", "a", None),
    ],
    ids=["key", "table", "body", "deleted"],
)
def test_a_different_row_has_a_different_digest(other: Row) -> None:
    one, two = digests_of([Row("node", "a", b"1")]), digests_of([other])

    assert state_digest(one) != state_digest(two)


# --- the hash of a batch ------------------------------------------------------------------------


@pytest.mark.parametrize("count", range(5))
def test_the_hash_of_all_facts_is_that_of_their_hashes(count: int) -> None:
    facts = [bytes([number]) * number for number in range(count)]
    hashes = [hashlib.sha256(b"\x00" + fact).digest() for fact in facts]

    assert hash_of_all(facts) == hashlib.sha256(b"\x01" + b"".join(hashes)).digest()


def test_facts_that_are_joined_in_another_way_have_another_hash() -> None:
    one, two = (hashlib.sha256(b"\x00" + fact).digest() for fact in (b"one", b"two"))

    found = {hash_of_all(facts) for facts in ([b"one", b"two"], [b"onetwo"], [one + two], [one])}

    assert len(found) == 4


def mappings(kind: inspect.Type) -> Iterator[inspect.DictType]:
    """Every mapping in a type, however deep."""
    parts = [getattr(kind, name, None) for name in ("item_type", "key_type", "value_type")]
    parts += [*getattr(kind, "types", ()), *getattr(kind, "item_types", ())]
    parts += [field.type for field in getattr(kind, "fields", ())]
    if isinstance(kind, inspect.DictType):
        yield kind
    for part in parts:
        if part is not None:
            yield from mappings(part)


def test_every_mapping_in_a_row_has_texts_as_keys() -> None:
    """Others cannot be written in a fixed order: facts that lead to such a row would be lost."""
    found = [each for state in STATES.values() for each in mappings(inspect.type_info(state))]

    assert len(found) >= 3
    assert {type(each.key_type) for each in found} == {inspect.StrType}
