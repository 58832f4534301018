"""Compares packing policies on lists of pods whose mixes differ from those of the published lists.

    make bench NAME=packing_lists ARGS="--folder DIR [--part choose] [--lists a,b] [--seeds 2]"

DIR has openb's node list and its pod lists `default` and `gpuspec25`. A list is drawn from their
pods: so many pods that ask for no GPU, and of the GPUs that are asked for so much by pods of a part
of a card and by pods of several; so many that name models; and the cores of pods with GPUs times a
factor. The lists of `choose` are for choosing rules and weights, those of `judge` for judging them:
look at these last. Columns: percent of all GPUs that are allocated once so many have arrived, mean
of the seeds.
"""

import argparse
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from report import NotMeasured, Table

from joulie_extender.gpu.pool import PoolNode
from joulie_extender.gpu.shapes import CARD, Shape
from joulie_simulator.gpu_packing.published import Row, filled, pool_of
from joulie_simulator.gpu_packing.published_policies import POLICIES
from joulie_simulator.trace_file import machines_of, shapes_of

SMALLEST = {"lists": "cpu20", "policies": "joulie", "seeds": 1}
GPUS = 8000  # that the pods of a list ask for: more than there are
SHOWN = (80, 90, 100)


class Mix(NamedTuple):
    """What of a list differs; the figures of the list `default` are the usual ones."""

    without: float = 0.133  # of all pods, those that ask for no GPU
    shares: float = 0.285  # of the GPUs that are asked for, by pods of a part of a card
    several: float = 0.073  # by pods of several cards
    models: float = 0.0  # of the pods with GPUs, those that name models
    cores: float = 1.0  # times those of pods with GPUs


CHOOSE: Mapping[str, Mix] = {
    "cpu20": Mix(without=0.2),
    "share45": Mix(shares=0.45),
    "several40": Mix(several=0.4),
    "models15": Mix(models=0.15),
    "cores200": Mix(cores=2.0),
    "cores150-several25": Mix(cores=1.5, several=0.25),
}
JUDGE: Mapping[str, Mix] = {
    "cpu05": Mix(without=0.05),
    "cpu30": Mix(without=0.3),
    "share20": Mix(shares=0.2),
    "share80": Mix(shares=0.8, several=0.02),
    "several20": Mix(several=0.2),
    "several50": Mix(several=0.5, shares=0.15),
    "models10": Mix(models=0.1),
    "models33": Mix(models=0.33),
    "cores50": Mix(cores=0.5),
    "cores250": Mix(cores=2.5),
}
PARTS = {"choose": CHOOSE, "judge": JUDGE}


class Source(NamedTuple):
    """The pods that lists are drawn from, by what they ask for, and the nodes."""

    nodes: Sequence[PoolNode]
    none: Sequence[Shape]
    part: Sequence[Shape]
    whole: Sequence[Shape]
    several: Sequence[Shape]
    models: Sequence[tuple[str, ...]]

    @classmethod
    def of(cls, folder: Path) -> "Source":
        machines = machines_of(folder / "openb_node_list_all_node.csv")
        pods = shapes_of(folder / "openb_pod_list_default.csv")
        named = shapes_of(folder / "openb_pod_list_gpuspec25.csv")
        single = [pod for pod in pods if pod.cards == 1]
        return cls(
            [PoolNode(each.milli, each.memory_mib, each.gpus, each.model) for each in machines],
            [pod for pod in pods if not pod.cards],
            [pod for pod in single if pod.share < CARD],
            [pod for pod in single if pod.share == CARD],
            [pod for pod in pods if pod.cards > 1],
            [pod.models for pod in named if pod.models],
        )


def drawn(source: Source, mix: Mix, seed: int = 1) -> list[Shape]:
    draw, found = random.Random(seed), list[Shape]()
    wanted = {"part": mix.shares, "several": mix.several}
    wanted["whole"] = 1 - mix.shares - mix.several
    for name, share in wanted.items():
        found += _asking(draw, getattr(source, name), round(share * GPUS * CARD))
    found = [_varied(draw, source, mix, pod) for pod in found]
    without = round(len(found) * mix.without / (1 - mix.without))
    return found + draw.choices(source.none, k=without)


def _asking(draw: random.Random, pods: Sequence[Shape], milli: int) -> Iterator[Shape]:
    while milli > 0:
        pod = draw.choice(pods)
        milli -= pod.gpu_milli
        yield pod


def _varied(draw: random.Random, source: Source, mix: Mix, pod: Shape) -> Shape:
    models = draw.choice(source.models) if draw.random() < mix.models else ()
    return pod._replace(milli=round(pod.milli * mix.cores), models=models)


def rows_of(folder: Path, run: tuple[str, Mix, str, int]) -> list[Row]:
    _, mix, policy, seed = run
    source = Source.of(folder)
    pods, pool = drawn(source, mix), pool_of(source.nodes)
    return filled(policy, POLICIES[policy](pool, pods, seed), pool, pods, seed)


def compared(args: argparse.Namespace, mix: Mix) -> dict[str, dict[str, float]]:
    policies = args.policies.split(",")
    runs = [("", mix, each, seed) for each in policies for seed in range(1, args.seeds + 1)]
    with ProcessPoolExecutor(min(len(runs), os.cpu_count() or 1)) as pool:
        rows = [row for run in pool.map(partial(rows_of, args.folder), runs) for row in run]
    return {
        policy: {
            f"{level} % arrived": mean(
                row.allocated for row in rows if (row.policy, row.arrived) == (policy, level)
            )
            for level in SHOWN
        }
        for policy in policies
    }


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", type=Path, help="of openb's lists")
    parser.add_argument("--part", choices=PARTS, default="choose")
    parser.add_argument("--lists", default="")
    parser.add_argument("--policies", default="fgd,joulie")
    parser.add_argument("--seeds", type=int, default=2)


def measured(args: argparse.Namespace) -> list[Table]:
    if args.folder is None:
        raise NotMeasured("it needs a folder with openb's node list and pod lists (--folder)")
    mixes = PARTS[args.part]
    names = args.lists.split(",") if args.lists else list(mixes)
    return [Table(title=name, rows=compared(args, mixes[name])) for name in names]
