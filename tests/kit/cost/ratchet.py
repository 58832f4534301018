"""What the drill may cost: numbers kept in the tree, each with the reason of its last change.

    make costs [BECAUSE="..."]

It runs the drill, and keeps smaller numbers. A number that grew by more than LIMIT is kept only
with a reason, which stays beside it.
"""

import argparse
import platform
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from allocations import Allocations
from counting import CallMeter
from drill import COMPONENTS, Measured, Size, drilled

KEPT = Path(__file__).parents[2] / "data" / "costs.json"
PYTHON = "3.11"  # another one makes other calls
LIMIT = 0.03
SIZE = Size()


class Number(msgspec.Struct, frozen=True):
    value: float
    why: str


Numbers = dict[str, dict[str, Number]]  # by component and count
Found = Mapping[str, Mapping[str, float]]


class Change(NamedTuple):
    component: str
    what: str
    kept: float
    found: float

    def __str__(self) -> str:
        change = f"{self.found / self.kept - 1:+.1%}" if self.kept else "new"
        return f"{self.component}: {self.what} {self.kept:,.1f} -> {self.found:,.1f} ({change})"


def is_pinned() -> bool:
    return platform.python_version().startswith(PYTHON + ".")


def measured(planted: Mapping[str, float] | None = None) -> dict[str, dict[str, float]]:
    """Of 100 pods beyond what components do at rest, and of 100 seconds at rest. Raises
    CompilerMissing. Once for a process."""
    with tempfile.TemporaryDirectory() as folder:
        meter = CallMeter(Allocations(Path(folder)), planted)
        return _rounded(drilled(SIZE, meter))


def _rounded(found: Measured) -> dict[str, dict[str, float]]:
    tables = {f"{name}, per pod": each for name, each in found.per_pod(SIZE.pods).items()}
    tables |= {f"{name}, at rest": each for name, each in found.per_second().items()}
    return {
        name: {what: round(value * 100, 1) for what, value in each.items() if round(value * 100)}
        for name, each in tables.items()
    }


def read() -> Numbers:
    return msgspec.json.decode(KEPT.read_bytes(), type=Numbers) if KEPT.exists() else {}


def changes(kept: Numbers, found: Found) -> Iterator[Change]:
    """What differs by more than LIMIT."""
    for component, counts in found.items():
        for what, value in counts.items():
            before = kept.get(component, {}).get(what, Number(0.0, "")).value
            if abs(value - before) > LIMIT * before:
                yield Change(component, what, before, value)


def grown(kept: Numbers, found: Found) -> list[Change]:
    return [each for each in changes(kept, found) if each.found > each.kept]


def renewed(kept: Numbers, found: Found, why: str) -> Numbers:
    """Numbers that changed by less than LIMIT stay, with their reasons."""
    changed = {(each.component, each.what) for each in changes(kept, found)}
    return {
        component: {
            what: Number(value, why) if (component, what) in changed else kept[component][what]
            for what, value in counts.items()
        }
        for component, counts in found.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--because", default="", help="why numbers grew")
    parser.add_argument("--print", action="store_true", help="the numbers, and keep nothing")
    parser.add_argument("--plant", type=float, default=0.0, help="so much more of each component")
    args = parser.parse_args()
    found = measured(dict.fromkeys(COMPONENTS, args.plant))
    if args.print:
        print(msgspec.json.encode(found).decode())
        return 0
    return keep(read(), found, args.because)


def keep(kept: Numbers, found: Found, because: str) -> int:
    for change in changes(kept, found):
        print(change)
    if kept and grown(kept, found) and not because:
        print('Nothing was kept: numbers grew. Say why: make costs BECAUSE="..."', file=sys.stderr)
        return 1
    numbers = renewed(kept, found, because or ("it costs less" if kept else "first count"))
    KEPT.write_bytes(msgspec.json.format(msgspec.json.encode(numbers), indent=1) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
