"""Writes a batch by bisection: isolates the items that the database refuses."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from joulie_bus.errors import Unwritable

T = TypeVar("T")


async def write_bisecting(
    items: Sequence[T],
    write: Callable[[Sequence[T]], Awaitable[None]],
    set_aside: Callable[[T, str], Awaitable[None]],
) -> None:
    """Writes the items in order, all at once if possible.

    A refused batch is split in halves; a single refused item goes to `set_aside` with the reason.
    Errors that `set_aside` raises propagate.
    """
    try:
        await write(items)
    except Unwritable as error:
        if len(items) == 1:
            await set_aside(items[0], error.why)
            return
        middle = len(items) // 2
        await write_bisecting(items[:middle], write, set_aside)
        await write_bisecting(items[middle:], write, set_aside)
