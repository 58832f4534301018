"""The answer to a query."""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Rows(NamedTuple):
    columns: Sequence[str]
    rows: Sequence[tuple[Any, ...]]
    more: bool  # whether the query has rows beyond these
