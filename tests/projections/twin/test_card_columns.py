"""Columns of cards: incremental updates equal columns built from all cards."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bus_kit import card, claim, confirmed, node_seen, records, released
from joulie_bus.events import Fact, GpuGone
from joulie_projections.fold.sequence import fold
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.card_columns import Cards
from joulie_projections.twin.columns import TwinColumns

ROWS = np.arange(3)
UUIDS, NODES, PODS = st.sampled_from("abcde"), st.sampled_from(["n1", "n2"]), st.sampled_from("pq")
FACTS = st.lists(
    st.one_of(
        st.builds(card, UUIDS, NODES, used_mb=st.integers(0, 9)),
        st.builds(lambda uuid: GpuGone(uuid=uuid), UUIDS),
        st.builds(claim, UUIDS, PODS, st.integers(1, 9)),
        st.builds(confirmed, UUIDS, PODS),
        st.builds(released, UUIDS, PODS),
        st.builds(node_seen, NODES),
    ),
    max_size=40,
)


def after_each(facts: list[Fact], batch: int = 1) -> tuple[TwinColumns, ClusterState]:
    """Updates the columns incrementally, as a reader does."""
    cluster_state, twin_columns, log = ClusterState(), TwinColumns.empty(), records(*facts)
    for first in range(0, len(log), batch):
        draft = Draft(cluster_state)
        fold(draft, log[first : first + batch], 0)
        nodes, cards = dict(draft.nodes.changes), dict(draft.gpus.changes)
        draft.commit()
        twin_columns = twin_columns.following(cluster_state, nodes, cards)
    return twin_columns, cluster_state


def content(cards: Cards) -> dict[str, object]:
    holders = {uid: sorted(cards.uuids[at] for at in held) for uid, held in cards.holders.items()}
    return {"rows": shown(cards), "holders": holders}


def shown(cards: Cards) -> dict[str, list[object]]:
    """By card, without the assigned numbers and row numbers."""
    plain = ("node", "total_mb", "used_mb", "free_mb", "healthy", "idle")
    return {
        uuid: [cards.columns[name][at].item() for name in plain]
        for at, (uuid, state) in enumerate(zip(cards.uuids, cards.states, strict=True))
        if state is not None
    }


@given(facts=FACTS, batch=st.integers(1, 7))
@settings(deadline=None, max_examples=100)
def test_cards_updated_one_by_one_equal_cards_built_at_once(facts: list[Fact], batch: int) -> None:
    twin_columns, cluster_state = after_each(facts, batch)

    assert content(twin_columns.cards) == content(Cards.of(cluster_state.gpus, twin_columns.rows))


@given(facts=FACTS)
@settings(deadline=None, max_examples=50)
def test_a_row_without_a_card_is_all_zeros(facts: list[Fact]) -> None:
    cards = after_each(facts)[0].cards
    free = sorted(set(range(len(cards.states))) - set(cards.rows.values()))

    assert [cards.states[at] for at in free] == [None] * len(free)
    assert all(not column[free].any() for column in cards.columns.values())


def test_the_cards_of_a_deleted_pod_are_free() -> None:
    facts: list[Fact] = [node_seen("n1"), card("a"), card("b"), claim("a", "p"), claim("b", "q")]
    twin_columns, _ = after_each(facts)
    gone, _ = after_each([*facts, released("a", "p")])

    assert (
        shown(twin_columns.cards.on(ROWS, ["p"])) == shown(gone.cards) != shown(twin_columns.cards)
    )


@given(facts=FACTS)
@settings(deadline=None, max_examples=50)
def test_selecting_nodes_gives_the_cards_on_them(facts: list[Fact]) -> None:
    twin_columns, cluster_state = after_each(facts)

    for row in range(1, 3):
        here = {
            uuid
            for uuid, card in cluster_state.gpus.items()
            if twin_columns.rows.get(card.node) == row
        }
        part = twin_columns.cards.on(np.array([row]))
        assert shown(part) == {uuid: shown(twin_columns.cards)[uuid] for uuid in here}


def test_the_nodes_of_a_pod_are_those_on_which_it_holds_cards() -> None:
    facts: list[Fact] = [node_seen("n1"), node_seen("n2"), card("a", "n2"), claim("a", "p")]
    cards = after_each([*facts, claim("x", "p")])[0].cards

    assert cards.nodes_of(["p"]).tolist() == [2]
    assert cards.nodes_of(["q"]).tolist() == []


def test_unchanged_cards_are_the_same_object() -> None:
    twin_columns, cluster_state = after_each([node_seen("n1"), card("a", "n1")])

    assert (
        twin_columns.following(cluster_state, {"n1": cluster_state.nodes["n1"]}).cards
        is twin_columns.cards
    )
