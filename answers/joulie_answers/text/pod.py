"""Why a pod is where it is, on one screen."""

from collections.abc import Iterator

from joulie_answers.schema.responses import Attempt, Outcome, PodDetail
from joulie_answers.text.score_table import score_table
from joulie_bus.core.times import utc_text

# A binding and the scores before it are read from two streams, so the binding may be known first.
NO_SCORES = "the log has no scores of this attempt yet (one node that is left is not scored)"


def pod_text(found: PodDetail) -> str:
    attempt = found.attempt
    if attempt is None:
        return "\n".join(found.explanation)
    group = [f"  group      {found.group.text}"] if found.group else []
    return "\n".join(
        [
            *_request_lines(attempt),
            *group,
            *_view_lines(attempt),
            *_filter_lines(attempt),
            *_score_lines(attempt, found.outcome),
            _outcome_line(found.outcome, scored=attempt.cluster_trend_w_per_min is not None),
        ]
    )


def _request_lines(attempt: Attempt) -> Iterator[str]:
    pod = attempt.pod
    entries = " and ".join(map(str, attempt.entries))
    tries = f", attempt {attempt.number}" if attempt.number > 1 else ""
    yield f"{pod.namespace}/{pod.name}   {utc_text(attempt.at_ms)}{tries}   (entry {entries})"
    yield f"  class      {pod.workload}, {pod.placement} (rule: {pod.rule})" + (
        f"; never refused: {pod.exempt}" if pod.exempt else ""
    )
    gpus = f", {pod.gpus:g} GPU{'' if pod.gpus == 1 else 's'}" if pod.gpus else ""
    memory = f", {pod.memory_gib:.3g} GiB" if pod.memory_gib else ""
    yield f"  requests   {pod.cores:g} cores{memory}{gpus}"


def _view_lines(attempt: Attempt) -> Iterator[str]:
    preset = f" (preset {attempt.preset})" if attempt.preset else ""
    yield f"  view       {attempt.view_text}; settings {attempt.settings}{preset}"


def _filter_lines(attempt: Attempt) -> Iterator[str]:
    if not attempt.filtered:
        return
    yield f"  filter     {attempt.filtered}{':' if attempt.refused else ''}"
    for each in attempt.refused:
        more = ", ..." if each.nodes > len(each.examples) else ""
        yield f"             {each.nodes} {each.reason} ({', '.join(each.examples)}{more})"


def _score_lines(attempt: Attempt, outcome: Outcome | None) -> Iterator[str]:
    if attempt.cluster_trend_w_per_min is None:
        return
    if attempt.in_flight:
        yield f"  in flight  {attempt.in_flight}"
    yield (
        f"  scores     of {attempt.candidates} candidates, the sum of their points; cluster trend "
        f"{attempt.cluster_trend_w_per_min:+.0f} W/min, pressure {attempt.perf_pressure or 0:.1f}"
    )
    yield from score_table(attempt.scores, outcome.node if outcome else "")
    if attempt.devices:
        yield f"  devices    {attempt.devices.text}"


def _outcome_line(outcome: Outcome | None, *, scored: bool) -> str:
    if outcome is None:
        return "  outcome    not bound, as far as the log goes"
    if not scored:
        return f"  outcome    bound to {outcome.node}; {NO_SCORES}"
    if outcome.rank is None:
        return f"  outcome    bound to {outcome.node}, which was not scored"
    return (
        f"  outcome    bound to {outcome.node}*, our number {outcome.rank} with "
        f"{outcome.score} (from {outcome.source}); kube-scheduler adds its own scores to ours"
    )
