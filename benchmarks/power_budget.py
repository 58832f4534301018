"""A power target on a feed of simulated nodes: met, held, lost and given back.

    .venv/bin/python benchmarks/power_budget.py [--nodes 5000] [--hours 3] [--share 0.7]

Time is virtual. The plans are the operator's, at its pace; the orders and the writers of caps are
those of the product, and the physics of the simulator obey the limits that they set. Each node runs
one job after the other on nearly all of it, of class performance on nodes of that class, for 10 to
60 minutes and 50 to 100 % busy. In the first 30 s of the target a tick is a second, while it is
held `--tick` seconds: a plan is made once a tick at most, and the power is looked at.

With `--mixed`, a node of class performance with cards runs a job of its class on half of them and
one of class standard on the others. `--rules 3` plans as before cards were capped one by one.

The settings are the defaults, but for the share of performance nodes (`--performance`: a tenth;
these are the nodes with the most cards) and the caps of eco nodes before the target (`--eco-cap`).
At the end the broker is cut off for two minutes (`--lost`, in seconds), and new jobs are 100 % busy
meanwhile.
"""

import argparse
import logging
import sys
import tempfile
from pathlib import Path

import structlog

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kit" / "energy"))

from budget_drill import Drill, Report, drill
from joulie_operator.planning.rules import Rules

LOST_S = 120


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--hours", type=float, default=3.0)
    parser.add_argument("--share", type=float, default=0.7, help="of the power before")
    parser.add_argument("--performance", type=float, default=0.1, help="share of the nodes")
    parser.add_argument("--eco-cap", type=int, default=100, help="per cent, without a target")
    parser.add_argument("--mixed", action="store_true", help="see below")
    parser.add_argument("--rules", type=int, default=Rules().target_rules, help="see below")
    parser.add_argument("--tick", type=int, default=30)
    parser.add_argument("--lost", type=int, default=LOST_S, help="seconds without a broker")
    parser.add_argument("--folder", type=Path, help="where the writers keep limits")
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    rules = Rules(
        static_hp_frac=args.performance,
        cpu_eco_pct=args.eco_cap,
        gpu_eco_pct=args.eco_cap,
        target_rules=args.rules,
    )
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        made = Drill(args.nodes, rules, Path(folder), mixed=args.mixed)
        print(shown(drill(made, args.share, round(args.hours * 3600), args.lost, args.tick)))


def shown(found: Report) -> str:
    met = "not met within 30 s" if found.met_s is None else f"met after {found.met_s} s"
    return "\n".join(
        (
            f"before {found.before_w / 1e6:.3f} MW, target {found.target_w / 1e6:.3f} MW: {met}",
            f"held: {found.held_mean:.1%} of the target, {found.held_most:.1%} at most, "
            f"{found.above_s} s above it",
            f"broker cut off: {found.lost_most:.1%} at most until the safe caps, "
            f"{found.safe_most:.1%} with them",
            f"given back: {found.after:.1%} of the power before",
            f"times that a performance pod was capped: {found.slowed}",
            f"cards of class standard that were capped beside them: {found.capped_cards} at most",
            f"{found.plans} plans, {found.plan_ms:.0f} ms of a core each",
        )
    )


if __name__ == "__main__":
    main()
