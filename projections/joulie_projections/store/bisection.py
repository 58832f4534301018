"""Finds the one among many that is refused, and puts all the others. Pure but for what it calls."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from joulie_bus.errors import Unwritable

T = TypeVar("T")


async def write_bisecting(
    items: Sequence[T],
    put: Callable[[Sequence[T]], Awaitable[None]],
    set_aside: Callable[[T, str], Awaitable[None]],
) -> None:
    """In their order: all together, where that is refused in halves, and what is refused alone goes
    to `set_aside` with the reason. What `set_aside` raises is not about the values, and goes on.
    """
    try:
        await put(items)
    except Unwritable as error:
        if len(items) == 1:
            await set_aside(items[0], error.why)
            return
        middle = len(items) // 2
        await write_bisecting(items[:middle], put, set_aside)
        await write_bisecting(items[middle:], put, set_aside)
