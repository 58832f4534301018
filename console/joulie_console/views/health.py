"""Warnings about components that are stale or down."""

from collections.abc import Sequence
from typing import NamedTuple

from joulie_answers.schema.responses import ReplicaSpool, Warning
from joulie_answers.text.status import spool_warning, unsigned_warning
from joulie_bus.core.times import duration
from joulie_bus.events import PlanMade
from joulie_bus.streams.incomplete import described
from joulie_bus.streams.records import IncompleteCopy
from joulie_projections.energy.report import BEHIND_S
from joulie_projections.state.completeness import NEVER_MS

SILENT_MS = 2_000  # eight missed heartbeats; content that is less behind counts as fresh
GONE_MS = 15_000
BROKER_SILENT_MS = 3_000  # twelve questions to the broker, of which each took a second more
PLANLESS_S = 180.0  # at least; longer if three of the operator's longest intervals are longer
INTERVALS = 3
UNDECIDED_S = 30.0
UNREAD_S = 10.0


class HealthInputs(NamedTuple):
    """The values that the warnings depend on."""

    heard_ms: int  # since the last message of the projector
    behind_ms: int  # how far the page is behind the streams
    projector_behind_ms: int  # how far the projector was, at its last message
    waiting: int  # facts that the projector had not committed
    broker_ms: int  # since a majority of the broker answered the projector, at its last message
    planned_s: float | None  # since the operator's last plan; None: it has made none
    interval_s: float  # the longest time between two of its plans
    nodes: int
    unmeasured: int
    pending: int
    decided_s: float | None  # since the last decision that is known; None: there is none
    unwritten: int  # entries of the decision log that the projector had not written
    database: str  # why it cannot be read; empty if it can
    cards_unhealthy: int
    decisions_read_s: float = 0.0  # since the log was read for decisions
    # How long ago the oldest fact was committed that the ledger lacks; None: it cannot be read.
    ledger_s: float | None = 0.0
    incomplete: Sequence[IncompleteCopy] = ()
    spools: Sequence[ReplicaSpool] = ()
    unsigned_s: float | None = None  # the age of the first entry without a signed head
    unread_s: float | None = None  # the age of the oldest reading that is not fresh; None: none was

    @property
    def is_current(self) -> bool:
        """Whether what the page lacks can only have happened within the last seconds."""
        return max(self.heard_ms, self.behind_ms) < SILENT_MS


def warnings_of(inputs: HealthInputs) -> list[Warning]:
    found = [
        _silence(inputs),
        _broker(inputs),
        _lag(inputs),
        _database(inputs),
        _operator(inputs),
        _telemetry(inputs),
        _extender(inputs),
        _cards(inputs),
        _ledger(inputs),
        _log(inputs),
    ]
    return [
        *(warning for warning in found if warning is not None),
        *_copies(inputs),
        *_spools(inputs),
    ]


def _copies(inputs: HealthInputs) -> list[Warning]:
    return [
        Warning(part="broker", level="serious", text=f"{text[0].upper()}{text[1:]}.")
        for text in described(inputs.incomplete).values()
    ]


def _spools(inputs: HealthInputs) -> list[Warning]:
    late = filter(None, map(spool_warning, inputs.spools))
    return [Warning(part="extender", level="warning", text=f"{each}.") for each in late]


def _log(inputs: HealthInputs) -> Warning | None:
    if not (sentence := unsigned_warning(inputs.unsigned_s)):
        return None
    text = f"{sentence[0].upper()}{sentence[1:]}. Figures are not affected: what is newer can be "
    text += "verified once a head is signed."
    return Warning(part="log", level="warning", text=text)


def _silence(inputs: HealthInputs) -> Warning | None:
    if inputs.heard_ms < SILENT_MS:
        return None
    level = "serious" if inputs.heard_ms >= GONE_MS else "warning"
    text = f"The console has received no message of the projector for {seconds(inputs.heard_ms)}: "
    text += "the projector or the broker may be down, or the console has no CPU. "
    text += f"This page is {most(inputs.behind_ms)} behind the cluster."
    return Warning(part="projector", level=level, text=text)  # type: ignore[arg-type]


def _broker(inputs: HealthInputs) -> Warning | None:
    if inputs.heard_ms >= SILENT_MS or inputs.broker_ms < BROKER_SILENT_MS:
        return None
    silent = seconds(inputs.broker_ms)
    silence = f"The projector has read no answer of a majority of the broker for {silent}"
    text = f"{silence}: the broker is down, is not reached, or has no CPU. "
    text += "What has happened since then is not in view."
    return Warning(part="broker", level="serious", text=text)


def _lag(inputs: HealthInputs) -> Warning | None:
    """Names the component that is behind; a silent projector or broker is reported instead."""
    is_explained = inputs.heard_ms >= SILENT_MS or inputs.broker_ms >= BROKER_SILENT_MS
    if is_explained or inputs.behind_ms < SILENT_MS:
        return None
    level = "serious" if inputs.behind_ms >= GONE_MS else "warning"
    text = f"This page is {most(inputs.behind_ms)} behind the cluster: "
    if 2 * inputs.projector_behind_ms >= inputs.behind_ms:
        waiting = f"{inputs.waiting} facts are not folded yet"
        why = waiting if inputs.waiting else "it reads answers of the broker late"
        text += f"the projector is behind, {why}."
        return Warning(part="projector", level=level, text=text)  # type: ignore[arg-type]
    text += "the console has not read what the projector committed."
    return Warning(part="console", level=level, text=text)  # type: ignore[arg-type]


def most(ms: int) -> str:
    """An age is an upper bound: a component without CPU reads late what arrived."""
    return seconds(ms) if ms >= NEVER_MS else f"up to {seconds(ms)}"


def seconds(ms: int) -> str:
    return "an unknown time" if ms >= NEVER_MS else f"{ms / 1000:.0f} s"


def _database(inputs: HealthInputs) -> Warning | None:
    if not inputs.database:
        return None
    text = (
        f"The console did not read the database ({inputs.database}): "
        "decisions and past states are missing."
    )
    return Warning(part="database", level="serious", text=text)


def _operator(inputs: HealthInputs) -> Warning | None:
    """Plans that the page lacks were made since it is behind, if at all."""
    latest_s = max(PLANLESS_S, INTERVALS * inputs.interval_s) + inputs.behind_ms / 1000
    if not inputs.nodes or (inputs.planned_s is not None and inputs.planned_s < latest_s):
        return None
    if inputs.planned_s is None and not inputs.is_current:
        return None
    when = "never" if inputs.planned_s is None else f"{inputs.planned_s:.0f} s ago"
    text = f"The operator's last plan: {when}. Profiles and caps stay as they are, and nodes and "
    text += "pods that it watches may have changed since."
    return Warning(part="operator", level="warning", text=text)


def _telemetry(inputs: HealthInputs) -> Warning | None:
    if not inputs.unmeasured or not inputs.is_current:
        return None  # readings may exist that the page lacks
    level = "serious" if inputs.unmeasured == inputs.nodes else "warning"
    text = f"{inputs.unmeasured} of {inputs.nodes} nodes have no fresh power reading"
    text += f"{_silent(inputs.unread_s)}: "
    text += (
        "the power in view is that of the others, and these are scored by caps and hardware alone."
    )
    return Warning(part="telemetry", level=level, text=text)  # type: ignore[arg-type]


def _silent(oldest_s: float | None) -> str:
    return "" if oldest_s is None else f", the longest silent for {duration(oldest_s)}"


def _extender(inputs: HealthInputs) -> Warning | None:
    is_known = inputs.is_current and not inputs.unwritten and not inputs.database
    if not inputs.pending or not is_known:
        return None  # decisions may exist that the page lacks
    # A console without CPU has not read what was decided since.
    unread_s = inputs.decisions_read_s
    if unread_s >= UNREAD_S:
        return None
    if inputs.decided_s is not None and inputs.decided_s - unread_s < UNDECIDED_S:
        return None
    last = "no decision was made yet"
    if inputs.decided_s is not None:
        last = f"the last decision was {inputs.decided_s:.0f} s ago"
    text = f"{inputs.pending} pod(s) are pending, and {last}. "
    text += "Is the extender up, and does kube-scheduler call it? Without it no pod is placed by "
    text += "energy, and the list of decisions ends there. Other figures are not affected."
    return Warning(part="extender", level="warning", text=text)


def _cards(inputs: HealthInputs) -> Warning | None:
    if not inputs.cards_unhealthy:
        return None
    text = (
        f"{inputs.cards_unhealthy} GPU card(s) are not healthy: no pod gets them, and they count "
    )
    text += "as cards in the figures of their nodes."
    return Warning(part="cards", level="warning", text=text)


def interval_s_of(plan: PlanMade) -> float:
    """The RECONCILE_INTERVAL of the operator that made the plan; 0 if the plan lacks it."""
    found = plan.settings.get("RECONCILE_INTERVAL", 0.0)
    return float(found) if isinstance(found, int | float) else 0.0


def _ledger(inputs: HealthInputs) -> Warning | None:
    if inputs.ledger_s is None:
        text = "The ledger cannot be read: no figures of energy are known."
        return Warning(part="ledger", level="warning", text=text)
    if inputs.ledger_s <= BEHIND_S:
        return None
    text = f"The ledger lacks facts of the last {inputs.ledger_s:.0f} s: "
    text += "figures of energy end before that. Does `joulie ledger` run?"
    return Warning(part="ledger", level="warning", text=text)
