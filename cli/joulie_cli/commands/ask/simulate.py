"""compare placement policies with kube-scheduler's default, by GPUs or energy."""

import argparse
from pathlib import Path

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program


def options(parser: argparse.ArgumentParser) -> None:
    _both(parser)
    _of_energy(parser)


def _both(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument("what", choices=("gpus", "energy"), help="the comparison")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="openb's pod list (suite trace)")
    parser.add_argument("--cluster", type=Path, metavar="FILE", help="gpus: openb's node list")
    parser.add_argument(
        "--published", action="store_true", help="gpus: by the published method, beside a bound"
    )
    parser.add_argument(
        "--defragment",
        action="store_true",
        help="published: move 1 pod in 100 so that free GPUs are of use",
    )
    parser.add_argument("--nodes", type=int, metavar="N", help="nodes (500; suite compat 2500)")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="runs of each policy (3)")
    parser.add_argument(
        "--seed", type=int, metavar="N", help="energy: the first seed, of --seeds consecutive ones"
    )
    parser.add_argument(
        "--weight", type=int, default=1, metavar="W", help="gpus: the extender's weight (1)"
    )


def _of_energy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--suite", choices=("fair", "compat", "trace"), default="fair", help="energy: the jobs"
    )
    parser.add_argument("--hours", type=float, metavar="H", help="energy: simulated time (48)")
    parser.add_argument(
        "--policies", default="", metavar="A,B", help="energy, published: all by default"
    )
    parser.add_argument(
        "--quick", action="store_true", help="energy: fewer nodes and hours, one seed"
    )
    parser.add_argument("--loads", default="", metavar="A,B", help="energy: low, mid, high (all)")
    parser.add_argument(
        "--sleep", choices=("on", "off", "both"), help="energy: whether empty nodes sleep (both)"
    )
    parser.add_argument(
        "--idle", choices=("measured", "peer"), help="energy: idle power (measured)"
    )
    parser.add_argument(
        "--sensitivity",
        action="store_true",
        help="energy: under conditions that differ in one thing",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="energy, published: an SVG plot")


def program() -> Program:
    from joulie_cli.ask import simulate

    return simulate
