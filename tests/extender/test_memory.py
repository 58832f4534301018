"""What the extender remembers stays small, and is let go of in time."""

import gc
import weakref

from joulie_bus.testing import NOON, ask
from joulie_extender.candidates import Names
from joulie_extender.memory import REJECTIONS, Rejection, Rejections
from joulie_extender.moment import Moment
from joulie_extender.standing import Weights
from joulie_projections.board import Board

NAMES = Names.of(["a", "b"])
POD = ask("p")


def rejection(board: Board, uid: str = "p", names: Names = NAMES) -> Rejection:
    return Rejection(ask(uid), names, board, NOON + 1, b"\x01" * len(names), "because", b"{}")


def found(kept: Rejections, board: Board, uid: str = "p") -> Rejection | None:
    return kept.find(ask(uid), NAMES, Moment(board, 7, 0, NOON), Weights())


def test_a_rejection_is_found_while_all_is_as_it_was() -> None:
    kept, board = Rejections(), Board.empty()
    kept.keep(rejection(board))

    assert found(kept, board) == rejection(board)
    assert found(kept, board, "q") is found(kept, Board.empty()) is None


def test_nothing_is_kept_of_a_board_that_is_no_more() -> None:
    kept, old, new = Rejections(), Board.empty(), Board.empty()
    kept.keep(rejection(old, "p"))
    kept.keep(rejection(new, "q"))
    seen = weakref.ref(old)
    del old
    gc.collect()

    assert seen() is None
    assert found(kept, new, "q") is not None


def test_so_many_pods_are_remembered_and_the_oldest_goes_first() -> None:
    kept, board = Rejections(), Board.empty()
    for number in range(REJECTIONS + 1):
        kept.keep(rejection(board, f"p{number}"))

    assert len(kept) == REJECTIONS
    assert found(kept, board, "p0") is None


def test_long_lists_leave_room_for_fewer_pods() -> None:
    kept, board = Rejections(limit=10_000), Board.empty()
    names = Names.of([f"n{number}" for number in range(20)])  # 3,200 bytes of memory
    for uid in ("p", "p", "q", "r", "s"):
        kept.keep(rejection(board, uid, names))

    assert len(kept) == 3


def test_what_is_larger_than_all_room_is_not_remembered() -> None:
    kept, board = Rejections(limit=100), Board.empty()
    kept.keep(rejection(board))

    assert len(kept) == 0
