"""Mutates the code that decides, one change at a time, and reports what no test notices.

    make mutants                                   every mutant of every package, for hours
    python tests/mutants/mutate.py fold --sample 40       40 mutants of one package
    python tests/mutants/mutate.py decide --only filter.py

A mutant is one changed comparison, operator, constant, condition or returned value. The tests of
its package are collected once, and run once to learn which of them reach which lines. Each mutant
is then a fork of that process: its function gets the changed code, and the tests that reach the
changed line run, the fastest first, until one fails. Code that runs at import, such as a constant
of a module, is imported anew in a fork that has imported the libraries only, and meets all tests.
A survivor shows a line that no test holds, or a change without an effect.
"""

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
import sqlalchemy
from at_import import survivors_of_import
from collected import Collected, Found, Laws
from forks import EXPLORE_S, be_quiet, in_fork
from mutations import Mutant, mutant_at, places_in
from packages import PACKAGES, ROOT, files_of, words_for

PRELOADED = (msgspec, np, sqlalchemy)  # inherited by each fork


def found_by_collected(package: str, mutants: Sequence[Mutant], folder: str) -> Found | None:
    be_quiet()
    laws = Laws()
    collected = Collected(files_of(package), mutants, laws)
    pytest.main([*words_for(folder), *PACKAGES[package].tests], plugins=[laws, collected])
    return collected.found


def survivors(package: str, mutants: Sequence[Mutant]) -> int | None:
    """How many; they are printed as they are found."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = f"{scratch}/tests"  # pytest empties it
        found = in_fork(lambda: found_by_collected(package, mutants, folder), EXPLORE_S)
        if found is None:
            return None
        if not found.at_import:
            return len(found.survivors)
        left = in_fork(lambda: survivors_of_import(package, mutants, found, folder), EXPLORE_S)
    return None if left is None else len(found.survivors) + len(left)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("packages", nargs="*", choices=[*PACKAGES, []], default=[])
    parser.add_argument("--sample", type=int, help="so many mutants of each package")
    parser.add_argument("--only", default="", help="a module of the package, such as filter.py")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    os.chdir(ROOT)
    survived = total = 0
    for package in args.packages or PACKAGES:
        chosen = _chosen(package, args)
        left = survivors(package, chosen)
        if left is None:
            print(f"{package}: its tests fail without a mutant. No mutant was run.")
            return 2
        print(f"{package}: {len(chosen) - left} of {len(chosen)} mutants were noticed", flush=True)
        survived, total = survived + left, total + len(chosen)
    print(f"{total - survived} of {total}: {100 * (total - survived) / max(total, 1):.1f} %")
    return 1 if survived else 0


def _chosen(package: str, args: argparse.Namespace) -> list[Mutant]:
    wanted = [file for file in files_of(package) if file.name.endswith(args.only)]
    places = [place for file in wanted for place in places_in(file)]
    if args.sample is not None and args.sample < len(places):
        places = random.Random(args.seed).sample(places, args.sample)
    return list(map(mutant_at, places))


if __name__ == "__main__":
    sys.exit(main())
