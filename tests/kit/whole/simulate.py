"""`make simulate SEED=7`: the story of one run; of one that fails, with the fewest faults.

`SEEDS=1000` beside it runs so many seeds from that one on, in as many processes as there are cores,
and prints the story of the first that fails.
"""

import argparse
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence

from simulated_faults import Fault
from simulation import Story, simulated

Fails = Callable[[list[Fault]], bool]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    if asked.seeds == 1:
        return _show(simulated(asked.seed))
    seeds = range(asked.seed, asked.seed + asked.seeds)
    with multiprocessing.get_context("forkserver").Pool(os.cpu_count()) as pool:
        failed = [story for story in pool.imap(simulated, seeds, chunksize=5) if story.failure]
    print(f"{asked.seeds} seeds from {asked.seed} on: {len(failed)} failed")
    for story in failed:
        print(f"  seed {story.seed}: {story.failure}")
    return _show(failed[0]) if failed else 0


def _show(story: Story) -> int:
    print(story)
    if not story.failure:
        return 0
    print(f"\nWith the fewest faults, seed {story.seed} fails so:\n\n{shortest(story)}")
    return 1


def shortest(story: Story) -> Story:
    """A run of the same seed that fails with as few faults as possible."""

    def fails(faults: list[Fault]) -> bool:
        return bool(simulated(story.seed, faults).failure)

    return simulated(story.seed, shrunk(story.faults, fails))


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
