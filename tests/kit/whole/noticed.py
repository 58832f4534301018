"""`make simulate BUGS=all`: a seed of each block of 200 that notices a bug that is put in.

`BUGS="a view keeps deleted rows"` tries one. Of a block, the seeds with the faults that a bug needs
run first, and those with quiet hours last, if it does not need these. The first run that fails ends
the block.
"""

import argparse
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import pytest
from mends import BY_FAULTS_ONLY, MENDS
from planted_bugs import BUGS
from simulated_faults import FAILOVER, FORGETS, VERSION
from simulated_moves import HOLE
from simulation import faults_of, first_failure, hours_of, simulated

PER_BLOCK = 200
BLOCKS = [range(first, first + PER_BLOCK) for first in (1, 201, 401)]
ALL: Mapping[str, Callable[[pytest.MonkeyPatch], None]] = {
    **{name: plant for name, (plant, _) in BUGS.items()},
    **{name: take_out for name, (take_out, _) in MENDS.items() if name not in BY_FAULTS_ONLY},
}


# A bug without a row needs no fault.
NEEDS: Mapping[str, str] = {
    "a takeover passes over a reading": "kill",
    "a repeated message is folded again": FORGETS,
    "states of another version are compared": VERSION,
    "the ledger stops at lost messages": HOLE,
    "the ledger keeps a state that was refused": FAILOVER,
    "an append requires the entry that it follows": FAILOVER,
    "no lease is renewed without the broker": "cut from the broker",
    "a snapshot ages": "kill",
    "no older copy is signed": FAILOVER,
    "a view applies changes of its own history": FAILOVER,
    "an empty database records what it replaces": FAILOVER,
}
NEED_HOURS = {"an hour of the ledger is counted again"}


class Noticed(NamedTuple):
    bug: str
    block: range
    seed: int | None
    failure: str = ""


def noticed_in(bug: str, block: range) -> Noticed:
    with pytest.MonkeyPatch.context() as patch:
        ALL[bug](patch)
        story = first_failure(map(simulated, sorted(block, key=partial(_turn, bug))))
    if story is None:
        return Noticed(bug, block, None)
    return Noticed(bug, block, story.seed, story.failure)


def _turn(bug: str, seed: int) -> tuple[bool, bool]:
    hours = hours_of(seed)
    kinds = {fault.kind for fault in faults_of(seed, hours)}
    lacks = NEEDS[bug] not in kinds if bug in NEEDS else False
    return lacks, (hours > 0) != (bug in NEED_HOURS)


def _tried(task: tuple[str, range]) -> Noticed:
    return noticed_in(*task)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bugs", default="all", choices=["all", *ALL])
    asked = parser.parse_args()
    bugs = list(ALL) if asked.bugs == "all" else [asked.bugs]
    tasks = [(bug, block) for bug in bugs for block in BLOCKS]
    with multiprocessing.get_context("forkserver").Pool(os.cpu_count()) as pool:
        found = list(_told(pool.imap(_tried, tasks)))
    missed = [each for each in found if each.seed is None]
    print(f"\n{_table(bugs, found)}\n\n{len(bugs)} bugs, {len(missed)} blocks without one")
    return 1 if missed else 0


def _told(found: Iterable[Noticed]) -> Iterator[Noticed]:
    for each in found:
        where = f"{each.block[0]} to {each.block[-1]}"
        print(f"{each.bug}, {where}: {each.seed}: {each.failure}", flush=True)
        yield each


def _table(bugs: Iterable[str], found: Iterable[Noticed]) -> str:
    seeds = {(each.bug, each.block): each.seed for each in found}
    heads = [f"{block[0]} to {block[-1]}" for block in BLOCKS]
    lines = [f"| Bug | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for bug in bugs:
        first = [str(seeds[bug, block] or "none") for block in BLOCKS]
        lines.append(f"| {bug} | {' | '.join(first)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
