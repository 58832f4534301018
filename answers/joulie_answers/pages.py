"""Lists of any length, from answers that come in pages."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from joulie_bus.errors import ConsoleNotReached

PAGE = 1000  # items; the most that a console sends at once


class _Listed(Protocol):
    @property
    def items(self) -> list[Any]: ...
    @property
    def next(self) -> int | None: ...


L = TypeVar("L", bound=_Listed)


def further(following: int, here: int | None, field: str) -> int:
    """Where the next page begins. Raises ConsoleNotReached for a list that leads back: its pages
    would have no end."""
    is_further = here is None or (following > here if field == "offset" else following < here)
    if not is_further:
        why = f"it answers with a list without end: {field}={following} follows {here}."
        raise ConsoleNotReached("the console", why)
    return following


async def all_pages(
    question: Callable[[Any], Awaitable[L]], query: Any, most: int | None = None
) -> L:
    """One answer with the items of all pages, or with the first `most`."""
    field = "before" if "before" in query.__struct_fields__ else "offset"
    whole = page = await question(replace(query, limit=min(PAGE, most or PAGE)))
    items = list(page.items)
    here = getattr(query, field)
    while page.next is not None and (most is None or len(items) < most):
        here = further(page.next, here, field)
        limit = PAGE if most is None else min(PAGE, most - len(items))
        page = await question(replace(query, limit=limit, **{field: page.next}))
        items += page.items
    return replace(whole, items=items, next=page.next)  # type: ignore[type-var]
