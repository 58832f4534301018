"""Warnings about components that are stale or down."""

from typing import NamedTuple

from joulie_console.schema.responses import Warning

SILENT_MS = 2_000  # eight missed heartbeats
GONE_MS = 15_000
LAGGING = 5_000  # facts
PLANLESS_S = 180.0  # three of the operator's longest intervals
UNDECIDED_S = 30.0


class HealthInputs(NamedTuple):
    """The values that the warnings depend on."""

    age_ms: int
    lag: int
    planned_s: float | None  # since the operator's last plan; None: it has made none
    nodes: int
    unmeasured: int
    pending: int
    decided_s: float | None  # since the last decision; None: there is none
    database: str  # why it cannot be read; empty if it can
    cards_unhealthy: int


def warnings_of(inputs: HealthInputs) -> list[Warning]:
    found = [
        _projector(inputs),
        _lag(inputs),
        _database(inputs),
        _operator(inputs),
        _telemetry(inputs),
        _extender(inputs),
        _cards(inputs),
    ]
    return [warning for warning in found if warning is not None]


def _projector(inputs: HealthInputs) -> Warning | None:
    if inputs.age_ms < SILENT_MS:
        return None
    level = "serious" if inputs.age_ms >= GONE_MS else "warning"
    text = f"This page is {inputs.age_ms / 1000:.0f} s old: "
    text += "the projector, the broker or the database may be down."
    return Warning(part="projector", level=level, text=text)  # type: ignore[arg-type]


def _lag(inputs: HealthInputs) -> Warning | None:
    if inputs.lag < LAGGING:
        return None
    text = f"{inputs.lag} facts are not committed yet: this page lags behind the cluster."
    return Warning(part="projector", level="warning", text=text)


def _database(inputs: HealthInputs) -> Warning | None:
    if not inputs.database:
        return None
    text = (
        f"The database cannot be read ({inputs.database}): decisions and past states are missing."
    )
    return Warning(part="database", level="serious", text=text)


def _operator(inputs: HealthInputs) -> Warning | None:
    if not inputs.nodes or (inputs.planned_s is not None and inputs.planned_s < PLANLESS_S):
        return None
    when = "never" if inputs.planned_s is None else f"{inputs.planned_s:.0f} s ago"
    text = f"The operator's last plan: {when}. Profiles and caps stay as they are."
    return Warning(part="operator", level="warning", text=text)


def _telemetry(inputs: HealthInputs) -> Warning | None:
    if not inputs.unmeasured:
        return None
    level = "serious" if inputs.unmeasured == inputs.nodes else "warning"
    text = f"{inputs.unmeasured} of {inputs.nodes} nodes have no fresh power reading: "
    text += "they are scored by caps and hardware alone."
    return Warning(part="telemetry", level=level, text=text)  # type: ignore[arg-type]


def _extender(inputs: HealthInputs) -> Warning | None:
    if not inputs.pending or (inputs.decided_s is not None and inputs.decided_s < UNDECIDED_S):
        return None
    last = "no decision was made yet"
    if inputs.decided_s is not None:
        last = f"the last decision was {inputs.decided_s:.0f} s ago"
    text = f"{inputs.pending} pod(s) are pending, and {last}. "
    text += "Is the extender up, and does kube-scheduler call it?"
    return Warning(part="extender", level="warning", text=text)


def _cards(inputs: HealthInputs) -> Warning | None:
    if not inputs.cards_unhealthy:
        return None
    text = f"{inputs.cards_unhealthy} GPU card(s) are not healthy."
    return Warning(part="cards", level="warning", text=text)
