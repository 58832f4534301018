"""Folds the recorded ranges again and recomputes every decision and every plan on the way.

Reads the facts, not the rows: what the rows claim is compared with what the facts give. One pass:
at each position that somebody looked at, what they decided is decided again on the spot. Where
there are snapshots, several processes each take a span between two of them: every span ends by
comparing its state with the digest that the next one has started from, so none is taken on trust.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from joulie_audit.archive.combined_history import Sources
from joulie_audit.archive.fact_source import Facts
from joulie_audit.replay.recompute import Mismatch
from joulie_audit.replay.recorded import Every, Queue, declared_in, plans_of, seen_from
from joulie_audit.replay.span import KEPT, Span, Spanned, replay_span
from joulie_audit.workers import processes, telling
from joulie_extender.decide.decide import CODE_VERSION as ANSWERS_BY
from joulie_projections.fold.manifest import CODE_VERSION as FOLDED_BY
from joulie_projections.history.history import NEWEST, History

SPAN = 500_000  # positions; both ends of one lie amid a part of an archive, which is read twice
PARTS_PER_JOB = 3  # so that nobody waits long for the one that got the hardest part
Tell = Callable[[int, int], None]  # positions done, of how many


class Scope(NamedTuple):
    """What is compared; folding begins at the nearest snapshot before it."""

    first: int = 1
    last: int = NEWEST
    sample: int = 0  # so many decisions, evenly spread; 0: all
    jobs: int = 1  # processes


ALL = Scope()


class Replayed(NamedTuple):
    events: int
    decisions: int
    plans: int
    mismatches: int
    seconds: float
    told: list[Mismatch]


class Versions(NamedTuple):
    """Programs whose work is in the log, where they are not this one."""

    folds: list[str]
    answers: list[str]

    def __str__(self) -> str:
        told = []
        if self.folds:
            told.append(f"folds of version {', '.join(self.folds)} (here {FOLDED_BY})")
        if self.answers:
            told.append(f"answers of {', '.join(self.answers)} (here {ANSWERS_BY})")
        return (
            f"Other code than this made a part of the log: {' and '.join(told)}. "
            "What differs may be the code's doing; the version that decided decides it the same."
        )


def other_versions(history: History) -> Versions | None:
    answers = {declared.code for declared in declared_in(history)} - {ANSWERS_BY}
    folds = set(history.fold_versions()) - {FOLDED_BY}
    return Versions(sorted(folds), sorted(answers)) if folds or answers else None


Opening = Callable[[History], AbstractAsyncContextManager[Facts]]


class Elsewhere(NamedTuple):
    """How another process gets at the same past. `opening` must be something to pickle."""

    past: Sources
    opening: Opening


async def replay(
    history: History,
    facts: Facts,
    scope: Scope = ALL,
    tell: Tell | None = None,
    elsewhere: Elsewhere | None = None,
) -> Replayed:
    """By `elsewhere` several processes share the work, if there are snapshots to start from."""
    started = time.perf_counter()
    spans = await _spans(history, facts, scope, scope.jobs if elsewhere else 1)
    end = min(scope.last, _newest(history))
    if len(spans) == 1 or elsewhere is None:
        heard = None if tell is None else lambda position: tell(position, end)
        done = [await replay_span(history, facts, span, heard) for span in spans]
    else:
        done = await _shared(spans, scope.jobs, elsewhere, lambda at: tell(at, end) if tell else 0)
    return Replayed(
        events=sum(each.events for each in done),
        decisions=sum(each.decisions for each in done),
        plans=sum(each.plans for each in done),
        mismatches=sum(each.mismatches for each in done),
        seconds=time.perf_counter() - started,
        told=[miss for each in done for miss in each.told][:KEPT],
    )


async def _spans(history: History, facts: Facts, scope: Scope, jobs: int) -> list[Span]:
    """Each but the first begins behind a snapshot."""
    plans = Queue(
        (each.made.view, each) for each in await plans_of(history, facts, scope.first, scope.last)
    )
    looked_at = seen_from(scope.first), scope.last
    count = history.count_answers(*looked_at) if scope.sample else 0
    step = max(1, count // scope.sample) if scope.sample else 1
    cuts = _cuts(history, scope, jobs)
    spans: list[Span] = []
    for begin, last in zip([scope.first - 1, *cuts], [*cuts, scope.last], strict=True):
        before = history.count_answers(looked_at[0], begin) if spans and scope.sample else 0
        mine = [planned for _, planned in plans.up_to(last)]
        spans.append(Span(begin + 1, last, mine, Every(step, before)))
    return spans


def _cuts(history: History, scope: Scope, jobs: int) -> list[int]:
    """Snapshots that divide the scope into about equal parts, more of them than processes."""
    first, last = scope.first, min(scope.last, _newest(history))
    usable = [at for at in history.starts() if first <= at < last]
    if jobs <= 1 or not usable:
        return []
    parts = max(jobs, min(jobs * PARTS_PER_JOB, (last - first) // SPAN))
    wanted = [first + (last - first) * part // parts for part in range(1, parts)]
    return sorted({min(usable, key=lambda at: abs(at - goal)) for goal in wanted})


def _newest(history: History) -> int:
    checkpoint = history.checkpoint()
    return checkpoint.position if checkpoint else 0


# --- in other processes -----------------------------------------------------------------------


async def _shared(
    spans: Sequence[Span], jobs: int, elsewhere: Elsewhere, tell: Callable[[int], object]
) -> list[Spanned]:
    loop, done = asyncio.get_running_loop(), 0
    with processes(jobs) as pool:

        async def one(span: Span) -> Spanned:
            nonlocal done
            found = await loop.run_in_executor(pool, _in_another_process, elsewhere, span)
            done += found.events
            tell(done)
            return found

        return list(await asyncio.gather(*map(one, spans)))


def _in_another_process(elsewhere: Elsewhere, span: Span) -> Spanned:
    with telling("replay"):
        return asyncio.run(_elsewhere(elsewhere, span))


async def _elsewhere(elsewhere: Elsewhere, span: Span) -> Spanned:
    with elsewhere.past.reading() as history:
        async with elsewhere.opening(history) as facts:
            return await replay_span(history, facts, span)
