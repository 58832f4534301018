"""What fits stays in a line; else words break before names, and columns go below before numbers
break."""

from hypothesis import given
from hypothesis import strategies as st

from joulie_answers.text.tables import TextTable
from joulie_cli.display.table_widths import GAP, fitted, parts_of

WIDE = TextTable(
    ("node", "watts then", "now", "because"),
    [("gpu-h100-0193", "12,345 W", "7 W", "it is empty")],
    {"watts then", "now"},
)


def test_columns_are_as_wide_as_their_cells_where_there_is_room() -> None:
    assert fitted(WIDE, 100) == [13, 10, 3, 11]
    assert [*parts_of(WIDE, 100)] == [WIDE]


def test_titles_and_sentences_continue_in_the_next_line_and_numbers_stay_whole() -> None:
    assert fitted(WIDE, 37) == [13, 8, 3, 7]


def test_columns_that_do_not_fit_follow_below_the_names_of_the_rows() -> None:
    first, second = parts_of(WIDE, 30)

    assert first.head == ["node", "watts then", "now"]
    assert second.head == ["node", "because"]
    assert second.rows == [["gpu-h100-0193", "it is empty"]]
    assert second.numbers == WIDE.numbers


def test_a_table_without_rows_has_its_titles() -> None:
    assert fitted(WIDE._replace(rows=[]), 100) == [4, 10, 3, 7]


cells = st.text("ab 1", max_size=30)


@st.composite
def any_table(draw: st.DrawFn) -> TextTable:
    head = draw(st.lists(cells, min_size=1, max_size=6))
    row = st.tuples(*[cells for _ in head])
    numbers = {name for name in head if draw(st.booleans())}
    keys = draw(st.integers(1, len(head)))
    return TextTable(head, draw(st.lists(row, max_size=3)), numbers, keys=keys)


@given(any_table(), st.integers(1, 200))
def test_each_column_is_in_one_part_with_all_its_cells(table: TextTable, room: int) -> None:
    parts = [*parts_of(table, room)]
    keys = table.keys

    assert [name for part in parts for name in part.head[keys:]] == [*table.head[keys:]]
    assert all([*part.head[:keys]] == [*table.head[:keys]] for part in parts)
    assert all(len(part.rows) == len(table.rows) for part in parts)
    if len(parts) == 1 and table.numbers == set():
        natural = sum(fitted(table, 10_000)) + GAP * (len(table.head) - 1)
        assert sum(fitted(table, room)) <= natural
