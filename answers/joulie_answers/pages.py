"""Lists of any length, from answers that come in pages."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

PAGE = 1000  # items; the most that a console sends at once


class _Listed(Protocol):
    @property
    def items(self) -> list[Any]: ...
    @property
    def next(self) -> int | None: ...


L = TypeVar("L", bound=_Listed)


async def all_pages(
    question: Callable[[Any], Awaitable[L]], query: Any, most: int | None = None
) -> L:
    """One answer with the items of all pages, or with the first `most`."""
    field = "before" if "before" in query.__struct_fields__ else "offset"
    whole = page = await question(replace(query, limit=min(PAGE, most or PAGE)))
    items = list(page.items)
    while page.next is not None and (most is None or len(items) < most):
        limit = PAGE if most is None else min(PAGE, most - len(items))
        page = await question(replace(query, limit=limit, **{field: page.next}))
        items += page.items
    return replace(whole, items=items, next=page.next)  # type: ignore[type-var]
