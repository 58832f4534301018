"""Names found by the index are those found one by one."""

import json
from itertools import compress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulie_extender.protocol.candidates import Names, candidates_of, failed_nodes, rows_by_name
from joulie_extender.protocol.name_index import NameIndex
from joulie_projections.twin.columns import TwinColumns

LETTERS = st.text("abcn01-.", min_size=1, max_size=12)
ODD = st.sampled_from(['qu"ote', "back\\slash", "ünïcode", "", "a,b", "x" * 253])
KNOWN = st.lists(LETTERS, unique=True, min_size=1, max_size=40)


def index_of(names: list[str]) -> NameIndex:
    return NameIndex({name: row for row, name in enumerate(names, 1)})


def found(index: NameIndex, raw: bytes) -> list[int] | None:
    names = Names.found(raw, index)
    assert isinstance(index.rows, dict)
    return None if names is None else names.rows_on(TwinColumns(index.rows, {}, 0)).tolist()


def compact(names: list[str]) -> bytes:
    return json.dumps(names, separators=(",", ":")).encode()


@given(known=KNOWN, data=st.data())
@settings(deadline=None, max_examples=200)
def test_a_list_of_known_names_is_found_as_one_by_one(
    known: list[str], data: st.DataObject
) -> None:
    asked = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=60))
    index = index_of(known)

    assert found(index, compact(asked)) == [index.rows[name] for name in asked]


@given(known=KNOWN, stranger=LETTERS | ODD, data=st.data())
@settings(deadline=None, max_examples=200)
def test_with_a_stranger_among_them_nothing_is_found(
    known: list[str], stranger: str, data: st.DataObject
) -> None:
    asked = [*data.draw(st.lists(st.sampled_from(known))), stranger]
    expected = None if stranger not in known else [known.index(name) + 1 for name in asked]

    assert found(index_of(known), compact(asked)) == expected


@given(known=st.lists(LETTERS | ODD, unique=True, min_size=1, max_size=20))
@settings(deadline=None, max_examples=100)
def test_whatever_nodes_are_called_no_name_is_taken_for_another(known: list[str]) -> None:
    rows = found(index_of(known), compact(known))

    assert rows in (None, list(range(1, len(known) + 1)))


@pytest.mark.parametrize("byte", [b"\xff", b"\0", b" "])
@pytest.mark.parametrize("length", [4, 5, 13, 21])
def test_bytes_that_are_no_name_are_not_found(byte: bytes, length: int) -> None:
    known = [f"n{number:0{length - 1}d}" for number in range(1, 9)]
    index = NameIndex(
        {name: row for row, name in enumerate(known, 3)}
    )  # rows without a name before
    whole = compact(known)
    step = length + 3

    torn = whole[: 2 + step] + byte * step + whole[2 + 2 * step :]

    assert (found(index, whole), found(index, torn)) == (list(range(3, 11)), None)


@pytest.mark.parametrize(
    "raw",
    [
        b"[]",
        b"null",
        b'["n0", "n1"]',
        b'[ "n0","n1"]',
        b'["n0";"n1"]',
        b'["n0","n1"',
        b'["n0""n1"]',
        b'["n0",,"n1"]',
        b'["n0",1,"n1"]',
        b'["n0","n1",]',
        b'["n\\u0030","n1"]',
        b'["n0",["n1"]]',
    ],
    ids=repr,
)
def test_a_list_in_another_format_is_decoded_as_a_whole(raw: bytes) -> None:
    assert found(index_of(["n0", "n1"]), raw) is None


@given(known=KNOWN, data=st.data())
@settings(deadline=None, max_examples=100)
def test_passed_names_are_cut_out_as_they_were_sent(known: list[str], data: st.DataObject) -> None:
    fits = data.draw(st.lists(st.booleans(), min_size=len(known), max_size=len(known)))
    names = Names.found(compact(known), index_of(known))
    assert names is not None

    assert [names[at] for at in range(len(names))] == known
    assert names.where(np.array(fits, np.bool_)) == compact(list(compress(known, fits)))


@given(known=KNOWN, data=st.data())
@settings(deadline=None, max_examples=100)
def test_every_refused_name_has_a_reason(known: list[str], data: st.DataObject) -> None:
    fits = data.draw(st.lists(st.booleans(), min_size=len(known), max_size=len(known)))
    names = Names.found(compact(known), index_of(known))
    assert names is not None

    reply = failed_nodes(names, fits, 'it "saves"')

    out = {name: 'it "saves"' for name, fit in zip(known, fits, strict=True) if not fit}
    assert reply == json.dumps(out, separators=(",", ":")).encode()


@given(known=KNOWN, strangers=st.lists(LETTERS, max_size=5), data=st.data())
@settings(deadline=None, max_examples=100)
def test_found_names_have_the_same_candidates_as_names_looked_up_one_by_one(
    known: list[str], strangers: list[str], data: st.DataObject
) -> None:
    asked = data.draw(st.permutations([*known, *strangers]))
    twin_columns = TwinColumns({name: row for row, name in enumerate(known, 1)}, {}, 0)
    names = Names.found(compact(asked), index_of(known)) or Names.of(asked)
    rows = rows_by_name(twin_columns, asked)

    assert names.rows_on(twin_columns).tolist() == rows.tolist()
    assert names.candidates_on(twin_columns) == candidates_of(asked, rows)


@given(known=KNOWN, data=st.data())
@settings(deadline=None, max_examples=100)
def test_a_reply_names_each_host_once_with_its_score(known: list[str], data: st.DataObject) -> None:
    asked = data.draw(st.lists(st.sampled_from(known), unique=True, min_size=1))
    scores = data.draw(st.lists(st.integers(0, 100), min_size=len(asked), max_size=len(asked)))
    index = index_of(known)
    rows = np.array([index.rows[name] for name in asked])

    reply = index.host_priorities(rows, np.array(scores))

    assert reply is not None
    assert json.loads(reply) == [
        {"Host": name, "Score": score} for name, score in zip(asked, scores, strict=True)
    ]


@pytest.mark.parametrize("rows", [[1, 2, 1], [1, 0], []], ids=["twice", "a stranger", "nobody"])
def test_a_reply_that_is_not_that_simple_is_left_to_others(rows: list[int]) -> None:
    scores = np.zeros(len(rows), np.int64)

    assert index_of(["a", "b"]).host_priorities(np.array(rows, np.int64), scores) is None
