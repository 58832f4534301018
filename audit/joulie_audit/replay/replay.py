"""Folds the recorded ranges again and recomputes every decision and every plan on the way.

Reads the facts, not the rows: the rows are compared with the folded state. One pass: at each
position that a decision or plan was made from, it is made again. With snapshots, several processes
each replay a span between two of them. Every span ends by comparing its state with the digest that
the next span starts from, so no snapshot is trusted without a comparison.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from joulie_audit.archive.combined_history import Sources
from joulie_audit.archive.fact_source import FactSource
from joulie_audit.recompute.answers import Mismatch
from joulie_audit.recompute.fold import Hole
from joulie_audit.replay.recorded import PositionQueue, Sampling, declared_in, first_view, plans_of
from joulie_audit.replay.span import MAX_REPORTED, Span, SpanReport, replay_span
from joulie_audit.workers import worker_pool, worker_process
from joulie_extender.catalogue.declaration import CODE_VERSION as ANSWERS_BY
from joulie_projections.fold.manifest import CODE_VERSION as FOLDED_BY
from joulie_projections.history.history import NEWEST, History

SPAN_POSITIONS = 500_000  # each end lies within a part of the archive, which is read twice
PARTS_PER_JOB = 3  # small enough that no process waits long for the slowest span
Progress = Callable[[int, int], None]  # positions done, positions in total


class Scope(NamedTuple):
    """The positions to compare; folding starts at the nearest snapshot before them."""

    first: int = 1
    last: int = NEWEST
    sample: int = 0  # number of decisions, evenly spread; 0: all
    jobs: int = 1  # processes


WHOLE_LOG = Scope()


class ReplayReport(NamedTuple):
    events: int
    decisions: int
    plans: int
    mismatches: int
    seconds: float
    reported: list[Mismatch]
    set_back: int = 0  # decisions and plans on lost state, which differ
    lost: Sequence[Mismatch] = ()
    uncompared: Mapping[str, int] = {}  # positions whose state was not compared, by fold version
    other_folds: int = 0  # decisions and plans on such state, which differ
    on_other_folds: Sequence[Mismatch] = ()
    holes: Sequence[Hole] = ()  # positions that were not folded: facts are lost
    in_holes: int = 0  # decisions and plans on their state, which were not recomputed
    foreign: int = 0  # decisions that no replica signed, which differ
    foreign_ones: Sequence[Mismatch] = ()
    resizes: int = 0  # orders to change the requests of pods
    step: int = 1  # of a sample: every such decision was recomputed


class OtherVersions(NamedTuple):
    """Other versions that folded or decided a part of the log."""

    folds: list[str]
    answers: list[str]

    def __str__(self) -> str:
        found = []
        if self.folds:
            found.append(f"folds of version {', '.join(self.folds)} (this is {FOLDED_BY})")
        if self.answers:
            found.append(f"decisions of {', '.join(self.answers)} (this is {ANSWERS_BY})")
        return (
            f"Other versions wrote a part of the log: {' and '.join(found)}. "
            "A mismatch may come from the other code; replay with the version that decided."
        )


def other_versions(history: History) -> OtherVersions | None:
    answers = {declared.code for declared in declared_in(history)} - {ANSWERS_BY}
    folds = set(history.fold_versions()) - {FOLDED_BY}
    return OtherVersions(sorted(folds), sorted(answers)) if folds or answers else None


OpenFacts = Callable[[History], AbstractAsyncContextManager[FactSource]]


class WorkerSource(NamedTuple):
    """How a worker process opens the same history. `open_facts` must be picklable."""

    sources: Sources
    open_facts: OpenFacts


async def replay(
    history: History,
    facts: FactSource,
    scope: Scope = WHOLE_LOG,
    progress: Progress | None = None,
    worker_source: WorkerSource | None = None,
) -> ReplayReport:
    """With `worker_source`, several processes share the work if there are snapshots."""
    started = time.perf_counter()
    spans = await _spans(history, facts, scope, scope.jobs if worker_source else 1)
    end = min(scope.last, _newest(history))
    if len(spans) == 1 or worker_source is None:
        report_position = None if progress is None else lambda position: progress(position, end)
        done = [await replay_span(history, facts, span, report_position) for span in spans]
    else:
        done = await _in_workers(
            spans, scope.jobs, worker_source, lambda at: progress(at, end) if progress else 0
        )
    return ReplayReport(
        events=sum(each.events for each in done),
        decisions=sum(each.decisions for each in done),
        plans=sum(each.plans for each in done),
        mismatches=sum(each.mismatches for each in done),
        seconds=time.perf_counter() - started,
        reported=[miss for each in done for miss in each.reported][:MAX_REPORTED],
        set_back=sum(each.set_back for each in done),
        lost=[miss for each in done for miss in each.lost][:MAX_REPORTED],
        uncompared=sum((Counter(each.uncompared) for each in done), Counter[str]()),
        other_folds=sum(each.other_folds for each in done),
        on_other_folds=[miss for each in done for miss in each.on_other_folds][:MAX_REPORTED],
        holes=[hole for each in done for hole in each.holes],
        in_holes=sum(each.in_holes for each in done),
        foreign=sum(each.foreign for each in done),
        foreign_ones=[miss for each in done for miss in each.foreign_ones][:MAX_REPORTED],
        resizes=sum(each.resizes for each in done),
        step=spans[0].sampling.step,
    )


async def _spans(history: History, facts: FactSource, scope: Scope, jobs: int) -> list[Span]:
    """Divides the scope; each span but the first starts at a snapshot."""
    found = await plans_of(history, facts, scope.first, scope.last)
    plans = PositionQueue((each.made.view, each) for each in found.plans)
    resizes = PositionQueue((each.position, each) for each in found.resizes)
    views = first_view(scope.first), scope.last
    count = history.count_answers(*views) if scope.sample else 0
    step = max(1, count // scope.sample) if scope.sample else 1
    cuts = _cuts(history, scope, jobs)
    spans: list[Span] = []
    for begin, last in zip([scope.first - 1, *cuts], [*cuts, scope.last], strict=True):
        before = history.count_answers(views[0], begin) if spans and scope.sample else 0
        inside = [planned for _, planned in plans.up_to(last)]
        ordered = [resize for _, resize in resizes.up_to(last)]
        spans.append(Span(begin + 1, last, inside, Sampling(step, before), ordered))
    return spans


def _cuts(history: History, scope: Scope, jobs: int) -> list[int]:
    """Snapshots that divide the scope into about equal parts, more parts than processes."""
    first, last = scope.first, min(scope.last, _newest(history))
    usable = [at for at in history.starts() if first <= at < last]
    if jobs <= 1 or not usable:
        return []
    parts = max(jobs, min(jobs * PARTS_PER_JOB, (last - first) // SPAN_POSITIONS))
    wanted = [first + (last - first) * part // parts for part in range(1, parts)]
    return sorted({min(usable, key=lambda at: abs(at - goal)) for goal in wanted})


def _newest(history: History) -> int:
    checkpoint = history.checkpoint()
    return checkpoint.position if checkpoint else 0


# --- in worker processes ----------------------------------------------------------------------


async def _in_workers(
    spans: Sequence[Span], jobs: int, worker_source: WorkerSource, progress: Callable[[int], object]
) -> list[SpanReport]:
    loop, done = asyncio.get_running_loop(), 0
    with worker_pool(jobs, __name__) as pool:

        async def one(span: Span) -> SpanReport:
            nonlocal done
            found = await loop.run_in_executor(pool, _replay_in_worker, worker_source, span)
            done += found.events
            progress(done)
            return found

        return list(await asyncio.gather(*map(one, spans)))


def _replay_in_worker(worker_source: WorkerSource, span: Span) -> SpanReport:
    with worker_process("replay"):
        return asyncio.run(_replay_from(worker_source, span))


async def _replay_from(worker_source: WorkerSource, span: Span) -> SpanReport:
    with worker_source.sources.reading() as history:
        async with worker_source.open_facts(history) as facts:
            return await replay_span(history, facts, span)
