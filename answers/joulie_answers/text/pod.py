"""Why a pod is where it is: one story, as lines of the command and as sentences of the page."""

from collections.abc import Iterator
from typing import NamedTuple

from joulie_answers.schema.responses import Attempt, Outcome, PodBrief, PodDetail
from joulie_answers.text.score_table import score_table
from joulie_answers.text.tables import TextTable, TextWithTables
from joulie_bus.core.times import utc_text
from joulie_projections.pods.load import DEFAULT_CPU_MILLI

# A binding and the scores before it are read from two streams, so the binding may be known first.
NO_SCORES = "the log has no scores of this attempt yet (one node that is left is not scored)"
NO_DECISION = "No decision about it is in the log."
LABEL = 11  # characters


class Line(NamedTuple):
    label: str  # empty: the line continues the one before
    text: str

    def __str__(self) -> str:
        return f"  {self.label:<{LABEL}}{self.text}"


def pod_text(found: PodDetail) -> str:
    attempt, outcome = found.attempt, found.outcome
    lines = list[str | TextTable](_head(found))
    for line in story(found):
        lines.append(str(line))
        if line.label == "scores" and attempt is not None and attempt.scores:
            lines += score_table(attempt.scores, outcome.node if outcome else "")
    lines += map(str, _timeline(found))
    return TextWithTables.of(lines)


def _timeline(found: PodDetail) -> Iterator[Line]:
    """The tables of earlier attempts are in the document."""
    for at, moment in enumerate(found.timeline):
        when = "at an unknown time" if moment.at_ms is None else utc_text(moment.at_ms)
        yield Line("" if at else "timeline", f"{when:<23}  {moment.text}")


def sentences(found: PodDetail) -> list[str]:
    """The story without the table of scores."""
    lines = list[str]()
    for label, text in story(found):
        if label:
            lines.append(f"{label}: {text}")
        else:
            lines[-1] += f" {text}" if lines[-1].endswith(":") else f", {text}"
    return lines


def story(found: PodDetail) -> Iterator[Line]:
    """`found.pod` is the pod as it is now; an attempt has it as it was."""
    attempt = found.attempt
    if attempt is None:
        yield from _undecided_lines(found)
        return
    yield from request_lines(attempt.pod)
    if found.group is not None:
        yield Line("group", found.group.text)
    yield from _view_lines(attempt)
    yield from _filter_lines(attempt)
    yield from _score_lines(attempt)
    yield _outcome_line(attempt, found.outcome)


def _head(found: PodDetail) -> Iterator[str]:
    attempt = found.attempt
    if attempt is None:
        if found.pod is not None:
            yield f"{found.pod.namespace}/{found.pod.name}"
        return
    entries = " and ".join(map(str, attempt.entries))
    tries = f", attempt {attempt.number}" if attempt.number > 1 else ""
    name = f"{attempt.pod.namespace}/{attempt.pod.name}"
    yield f"{name}   {utc_text(attempt.at_ms)}{tries}   (entry {entries})"


def _undecided_lines(found: PodDetail) -> Iterator[Line]:
    """About a pod that was never filtered or scored."""
    pod = found.pod
    if pod is not None:
        yield from request_lines(pod)
    yield Line("decisions", found.decisions[0].text if found.decisions else NO_DECISION)
    if pod is not None:
        yield Line("outcome", f"runs on {pod.node}" if pod.node else "not bound to a node")


def request_lines(pod: PodBrief) -> Iterator[Line]:
    exempt = f"; never refused: {pod.exempt}" if pod.exempt else ""
    yield Line("class", f"{pod.workload}, {pod.placement} (rule: {pod.rule}){exempt}")
    gpus = f", {pod.gpus:g} GPU{'' if pod.gpus == 1 else 's'}" if pod.gpus else ""
    memory = f", {pod.memory_gib:.3g} GiB" if pod.memory_gib else ""
    yield Line("requests", f"{_cores(pod)}{memory}{gpus}")


def _cores(pod: PodBrief) -> str:
    if pod.cores:
        return f"{pod.cores:g} cores"
    return f"no cores, counted as {DEFAULT_CPU_MILLI[pod.workload] / 1000:g}"


def _view_lines(attempt: Attempt) -> Iterator[Line]:
    preset = f" (preset {attempt.preset})" if attempt.preset else ""
    yield Line("view", f"{attempt.view_text}; settings {attempt.settings}{preset}")


def _filter_lines(attempt: Attempt) -> Iterator[Line]:
    if not attempt.filtered:
        return
    yield Line("filter", f"{attempt.filtered}{':' if attempt.refused else ''}")
    for each in attempt.refused:
        more = ", ..." if each.nodes > len(each.examples) else ""
        yield Line("", f"{each.nodes} {each.reason} ({', '.join(each.examples)}{more})")


def _score_lines(attempt: Attempt) -> Iterator[Line]:
    if attempt.tied is None:
        return
    if attempt.in_flight:
        yield Line("in flight", attempt.in_flight)
    if attempt.best:
        yield Line("best", attempt.best)
    tied = f"; {attempt.tied} tie as the best" if attempt.tied > 1 else ""
    trend, pressure = attempt.cluster_trend_w_per_min, attempt.perf_pressure
    read = "" if trend is None else f"; cluster trend {trend:+.0f} W/min, pressure {pressure:.1f}"
    yield Line("scores", f"of {attempt.candidates} candidates{tied}, the sum of their points{read}")
    if attempt.settings_unknown:
        yield Line("points", f"unknown: {attempt.settings_unknown}")
    if attempt.devices:
        yield Line("devices", attempt.devices.text)


def _outcome_line(attempt: Attempt, outcome: Outcome | None) -> Line:
    if outcome is None:
        return Line("outcome", "not bound, as far as the log goes")
    bound = f"bound to {outcome.node}"
    if attempt.tied is None:
        return Line("outcome", f"{bound}; {NO_SCORES}")
    if outcome.rank is None:
        return Line("outcome", f"{bound}, which was not scored")
    source = f"{outcome.score} (from {outcome.source})"
    if outcome.rank == 1 and attempt.tied > 1:
        return Line(
            "outcome",
            f"{bound}*, one of {attempt.tied} nodes that tie as our best with {source}; "
            "kube-scheduler chooses among them",
        )
    return Line(
        "outcome",
        f"{bound}*, our number {outcome.rank} with {source}; kube-scheduler adds its own scores "
        "to ours",
    )
