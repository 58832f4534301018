"""`make simulate SEED=7`: the story of one run; of one that fails, with the fewest faults.

`SEEDS=1000` beside it runs so many seeds from that one on, in as many processes as there are cores,
and prints the story of the first that fails. `HOURS=8` gives each so many quiet hours.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

from simulated_faults import Fault
from simulated_hours import HOUR_S
from simulation import Story, simulated

Fails = Callable[[list[Fault]], bool]
TOLD_EACH = 50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--hours", type=int, default=None)
    asked = parser.parse_args()
    if asked.seeds == 1:
        return _show(_run(asked.hours, asked.seed))
    seeds, run = range(asked.seed, asked.seed + asked.seeds), partial(_run, asked.hours)
    failed: list[Story] = []
    cluster_s = cpu_s = 0.0
    with multiprocessing.get_context("forkserver").Pool(os.cpu_count()) as pool:
        for done, (story, spent_s) in enumerate(pool.imap(partial(_timed, run), seeds), 1):
            cluster_s, cpu_s = cluster_s + story.cluster_s, cpu_s + spent_s
            if story.failure:
                print(f"  seed {story.seed}: {story.failure}", flush=True)
                failed.append(story)
            if done % TOLD_EACH == 0:
                print(f"  {done} seeds, {len(failed)} failed", flush=True)
    print(f"{asked.seeds} seeds from {asked.seed} on: {len(failed)} failed")
    print(f"{cluster_s / HOUR_S:.0f} hours of a cluster in {cpu_s:.0f} s of processor time")
    return _show(failed[0]) if failed else 0


def _run(hours: int | None, seed: int) -> Story:
    return simulated(seed, hours=hours)


def _timed(run: Callable[[int], Story], seed: int) -> tuple[Story, float]:
    began = time.process_time()
    story = run(seed)
    return story, time.process_time() - began


def _show(story: Story) -> int:
    print(story)
    if not story.failure:
        return 0
    print(f"\nWith the fewest faults, seed {story.seed} fails so:\n\n{shortest(story)}")
    return 1


def shortest(story: Story) -> Story:
    """A run of the same seed that fails with as few quiet hours and faults as possible."""
    fewer = (hours for hours in range(story.hours) if _fails(story, story.faults, hours))
    hours = next(fewer, story.hours)

    def fails(faults: list[Fault]) -> bool:
        return _fails(story, faults, hours)

    return simulated(story.seed, shrunk(story.faults, fails), hours)


def _fails(story: Story, faults: list[Fault], hours: int) -> bool:
    return bool(simulated(story.seed, faults, hours).failure)


def shrunk(faults: Sequence[Fault], fails: Fails) -> list[Fault]:
    """Leaves out halves, then quarters, down to single faults, as long as the run fails."""
    left, parts = list(faults), 2
    while left:
        size = max(1, len(left) // parts)
        smaller = _failing_without_a_part(left, size, fails)
        if smaller is not None:
            left, parts = smaller, max(2, parts - 1)
        elif size == 1:
            return left
        else:
            parts *= 2
    return left


def _failing_without_a_part(faults: list[Fault], size: int, fails: Fails) -> list[Fault] | None:
    for start in range(0, len(faults), size):
        others = faults[:start] + faults[start + size :]
        if fails(others):
            return others
    return None


if __name__ == "__main__":
    sys.exit(main())
