"""What is stale or down, said plainly. Pure."""

from typing import NamedTuple

from joulie_console.schema.responses import Warning

SILENT_MS = 2_000  # eight beats missed
GONE_MS = 15_000
LAGGING = 5_000  # facts
PLANLESS_S = 180.0  # three of the operator's longest pauses
UNDECIDED_S = 30.0


class Signs(NamedTuple):
    """What the warnings rest on."""

    age_ms: int
    lag: int
    planned_s: float | None  # since the operator last looked; None: it never has
    nodes: int
    unmeasured: int
    pending: int
    decided_s: float | None  # since the last answer; None: there is none
    database: str  # why it cannot be read; empty if it can
    cards_unhealthy: int


def warnings_of(signs: Signs) -> list[Warning]:
    found = [
        _projector(signs),
        _lag(signs),
        _database(signs),
        _operator(signs),
        _telemetry(signs),
        _extender(signs),
        _cards(signs),
    ]
    return [warning for warning in found if warning is not None]


def _projector(signs: Signs) -> Warning | None:
    if signs.age_ms < SILENT_MS:
        return None
    level = "serious" if signs.age_ms >= GONE_MS else "warning"
    text = f"Nothing has been heard of the projector for {signs.age_ms / 1000:.0f} s: "
    text += "what you see is that old. The projector or the broker may be down."
    return Warning(part="projector", level=level, text=text)  # type: ignore[arg-type]


def _lag(signs: Signs) -> Warning | None:
    if signs.lag < LAGGING:
        return None
    text = f"{signs.lag} facts wait to be committed: what you see is behind what happens."
    return Warning(part="projector", level="warning", text=text)


def _database(signs: Signs) -> Warning | None:
    if not signs.database:
        return None
    text = f"The database cannot be read ({signs.database}): decisions and the past are missing."
    return Warning(part="database", level="serious", text=text)


def _operator(signs: Signs) -> Warning | None:
    if not signs.nodes or (signs.planned_s is not None and signs.planned_s < PLANLESS_S):
        return None
    when = "never" if signs.planned_s is None else f"{signs.planned_s:.0f} s ago"
    text = f"The operator last looked: {when}. Profiles and caps stay as they are."
    return Warning(part="operator", level="warning", text=text)


def _telemetry(signs: Signs) -> Warning | None:
    if not signs.unmeasured:
        return None
    level = "serious" if signs.unmeasured == signs.nodes else "warning"
    text = f"{signs.unmeasured} of {signs.nodes} nodes have no fresh power reading: "
    text += "they are scored by caps and hardware alone."
    return Warning(part="telemetry", level=level, text=text)  # type: ignore[arg-type]


def _extender(signs: Signs) -> Warning | None:
    if not signs.pending or (signs.decided_s is not None and signs.decided_s < UNDECIDED_S):
        return None
    when = "never" if signs.decided_s is None else f"{signs.decided_s:.0f} s ago"
    text = f"{signs.pending} pod(s) wait, and the last answer was given: {when}. "
    text += "Is the extender up, and does kube-scheduler ask it?"
    return Warning(part="extender", level="warning", text=text)


def _cards(signs: Signs) -> Warning | None:
    if not signs.cards_unhealthy:
        return None
    text = f"{signs.cards_unhealthy} GPU card(s) are not healthy."
    return Warning(part="cards", level="warning", text=text)
