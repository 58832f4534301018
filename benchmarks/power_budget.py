"""A power target on a feed of simulated nodes: met, held, lost and given back.

    make bench NAME=power_budget [ARGS="--nodes 5000 --hours 3 --share 0.7"]

Time is virtual. The plans are the operator's, at its pace; the orders and the writers of caps are
those of the product, and the physics of the simulator obey the limits that they set. Each node runs
one job after the other on nearly all of it, of class performance on nodes of that class, for 10 to
60 minutes and 50 to 100 % busy. In the first 30 s of the target a tick is a second, while it is
held `--tick` seconds: a plan is made once a tick at most, and the power is looked at.

With `--mixed`, a node of class performance with cards runs a job of its class on half of them and
one of class standard on the others.

The settings are the defaults, but for the share of performance nodes (`--performance`: a tenth;
these are the nodes with the most cards) and the caps of eco nodes before the target (`--eco-cap`).
At the end the broker is cut off for two minutes (`--lost`, in seconds), and new jobs are 100 % busy
meanwhile.
"""

import argparse
import logging
import tempfile
from pathlib import Path

import structlog
from report import Table

from budget_drill import Drill, Report, drill
from joulie_operator.planning.rules import Rules

LOST_S = 120
SMALLEST = {"nodes": 20, "hours": 0.05}


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--hours", type=float, default=3.0)
    parser.add_argument("--share", type=float, default=0.7, help="of the power before")
    parser.add_argument("--performance", type=float, default=0.1, help="share of the nodes")
    parser.add_argument("--eco-cap", type=int, default=100, help="per cent, without a target")
    parser.add_argument("--mixed", action="store_true", help="see above")
    parser.add_argument("--tick", type=int, default=30)
    parser.add_argument("--lost", type=int, default=LOST_S, help="seconds without a broker")
    parser.add_argument("--folder", type=Path, help="where the writers keep limits")


def measured(args: argparse.Namespace) -> list[Table]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    rules = Rules(
        static_hp_frac=args.performance,
        cpu_eco_pct=args.eco_cap,
        gpu_eco_pct=args.eco_cap,
    )
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        made = Drill(args.nodes, rules, Path(folder), mixed=args.mixed)
        found = drill(made, args.share, round(args.hours * 3600), args.lost, args.tick)
    return [table(found)]


MAY_BE_ZERO = {
    "met within 30 s",
    "met after s",
    "above the target, s",
    "times that a performance pod was capped",
    "cards of class standard capped beside them, at most",
}


def table(found: Report) -> Table:
    """Shares are in % of the target, but the last."""
    figures = {
        "power before, MW": found.before_w / 1e6,
        "target, MW": found.target_w / 1e6,
        "met within 30 s": float(found.met_s is not None),
        "met after s": float(found.met_s or 0),
        "mean while held, %": found.held_mean * 100,
        "most while held, %": found.held_most * 100,
        "above the target, s": float(found.above_s),
        "most without a broker, until the safe caps, %": found.lost_most * 100,
        "most with the safe caps, %": found.safe_most * 100,
        "power afterwards, % of that before": found.after * 100,
        "times that a performance pod was capped": float(found.slowed),
        "cards of class standard capped beside them, at most": float(found.capped_cards),
        "plans": float(found.plans),
        "CPU of a plan, ms": found.plan_ms,
    }
    return Table.of("power target", figures, zero=MAY_BE_ZERO)
