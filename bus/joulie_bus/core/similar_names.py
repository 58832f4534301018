"""Known names that are similar to an unknown one, for messages."""

import difflib
from collections.abc import Iterable

EXAMPLES = 3


def similar_names(name: str, names: Iterable[str]) -> str:
    """Three known names, the most similar ones first."""
    known = sorted(names)
    similar = difflib.get_close_matches(name, known, EXAMPLES, 0.3)
    found = [*dict.fromkeys([*similar, *known])][:EXAMPLES]
    return f"{', '.join(found)} ({len(known)} in all)" if found else "none"
