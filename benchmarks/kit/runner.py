"""Runs a benchmark by its name, and keeps what it measured."""

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from process_usage import Unattributed
from report import RESULTS, FlawedTable, NotMeasured, Table, load_now, read, result_of, write

from joulie_bus.runtime import logging
from kube_real import ProgramMissing

HERE = Path(__file__).parents[1]
MISSING, FLAWED = 77, 1


class Benchmark(Protocol):
    __doc__: str | None
    SMALLEST: Mapping[str, object]

    def declare(self, parser: argparse.ArgumentParser) -> None: ...

    def measured(self, args: argparse.Namespace) -> Sequence[Table]: ...


def names() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.py") if path.stem != "run")


def benchmark(name: str) -> Benchmark:
    found: Any = importlib.import_module(name)
    made: Benchmark = found
    return made


def main(words: Sequence[str]) -> int:
    if not words or words[0] not in names():
        print(f"Name a benchmark: {', '.join(names())}", file=sys.stderr)
        return 2
    name, *rest = words
    module = benchmark(name)
    parser = argparse.ArgumentParser(
        f"run.py {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.declare(parser)
    declared = sorted(vars(parser.parse_args([])))
    parser.add_argument("--smallest", action="store_true", help="a run of seconds")
    parser.add_argument("--keep", default="", help="the name of its file in benchmarks/results")
    parser.add_argument("--results", type=Path, default=RESULTS, help="another folder")
    if "--smallest" in rest:
        parser.set_defaults(**module.SMALLEST)
    args = parser.parse_args(rest)
    logging.configure("error", "console", "bench")
    return measure(name, module, args, declared)


def measure(name: str, module: Benchmark, args: argparse.Namespace, declared: Sequence[str]) -> int:
    load = load_now()
    try:
        tables = module.measured(args)
        given = {each: getattr(args, each) for each in declared}
        options = {each: str(value) for each, value in given.items() if value}
        result = result_of(name, options, load, tables)
    except (NotMeasured, ProgramMissing) as missing:
        print(f"{name} was not measured: {missing}", file=sys.stderr)
        return MISSING
    except (FlawedTable, Unattributed) as flaw:
        print(f"{name}: {flaw} Nothing was kept.", file=sys.stderr)
        return FLAWED
    print(f"\n{result}", flush=True)
    if args.keep:
        file = args.results / f"{args.keep}.json"
        write(result, file)
        print(f"\nkept in {file}: {len(read(file).tables)} tables")
    return 0
