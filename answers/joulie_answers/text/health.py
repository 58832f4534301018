"""The health of everything in one sentence: the worst first, else that all is well."""

import math
from collections.abc import Sequence

from joulie_answers.schema.responses import Health, Level, Status, Warning
from joulie_bus.streams.roles import Role

MS = 1000


def health_of(warnings: Sequence[Warning], oldest_ms: int | None) -> Health:
    """`warnings`: those of one level in the order in which they follow from each other.
    `oldest_ms`: the age of the data; None: not known."""
    if not warnings:
        return Health(level="well", text=_well(oldest_ms), others=[])
    worst, *others = sorted(warnings, key=lambda each: each.level != "serious")
    return Health(level=worst.level, text=worst.text, others=[each.text for each in others])


def health_of_status(found: Status, stale: Sequence[str]) -> Health:
    """Of what a command reads, which has no view of its own."""
    if not found.running and found.commit_age_s is None:
        why = "Nothing runs here, or nothing was recorded yet."
        return Health(level="unknown", text=why, others=[])
    level: Level = "serious" if _is_down(found) else "warning"
    warnings = [Warning(part="projector", level=level, text=_sentence(each)) for each in stale]
    return health_of(warnings, _oldest_ms(found))


def _oldest_ms(found: Status) -> int | None:
    """By the projector: on a quiet cluster the last commit is old, and nothing is missing."""
    own = next((part.lag_s for part in found.parts if part.name == Role.PROJECTOR), None)
    oldest_s = own if found.elsewhere is None else found.elsewhere.projector.behind_s
    return None if oldest_s is None else round(oldest_s * MS)


def _is_down(found: Status) -> bool:
    has_room = not found.room.full
    return not (found.running and has_room and all(part.alive for part in found.parts))


def _well(oldest_ms: int | None) -> str:
    """Whole seconds, as an upper bound: a sentence that changes all the time is not read."""
    if oldest_ms is None:
        return "All components run; the age of the data is not known."
    return f"All components run; data of {max(1, math.ceil(oldest_ms / MS))} s ago."


def _sentence(text: str) -> str:
    capital = text[:1].upper() + text[1:]
    return capital if capital.endswith(".") else f"{capital}."
