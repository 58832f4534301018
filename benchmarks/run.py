"""Runs one benchmark, prints what it measured, and keeps it as JSON.

    make bench NAME=scheduler [ARGS="--rounds 3"] [KEPT=scheduler-apart]
    .venv/bin/python benchmarks/run.py scheduler [--rounds 3] [--keep NAME] [--smallest]

A benchmark is a module beside this one: its docstring says what it measures, `declare` adds its
options to a parser, SMALLEST has the values of a run of seconds, and `measured` returns tables.
Without --keep nothing is written. The exit code is 77 if a program that it needs is missing.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
KIT = HERE.parent / "tests" / "kit"
KITS = ("broker", "cost", "energy", "kube", "node", "process", "three", "whole")

if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    sys.path.insert(0, str(HERE / "kit"))
    sys.path.extend([str(KIT), *(str(KIT / each) for each in KITS)])
    from runner import main

    sys.exit(main(sys.argv[1:]))
