"""docs/scoring.md promises numbers; the functions that answer kube-scheduler compute them."""

import re
from pathlib import Path

import numpy as np
import pytest

from bus_kit import NOON, SECOND, hardware
from joulie_bus.events import PodAsk
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import rows_by_name
from joulie_extender.decide.scoring import score
from joulie_projections.state.state import NodeState, Sample
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.power import Coefficients, marginal_w

PAGE = (Path(__file__).parents[3] / "docs" / "scoring.md").read_text()
CORES = 100  # so that a pod of one core, with exact coefficients, adds a hundredth of the watts
EXACT = Coefficients(1.0, 1.0, 1.0, False)


def lines_of(title: str) -> list[list[str]]:
    part = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| (.*) \|$", part, re.MULTILINE)
    return [[cell.strip() for cell in line.split(" | ")] for line in found[1:]]


def pod(workload: str, *, cores: float = 0.0, gib: float = 0.0, gpus: int = 0) -> PodAsk:
    return PodAsk(
        uid="p",
        namespace="n",
        name="p",
        workload="performance" if workload == "performance" else "standard",
        rule="annotation",
        cpu_milli=round(cores * 1000),
        memory_bytes=round(gib * 2**30),
        gpu_milli=gpus * 1000,
    )


def readings(watts: float, per_minute: float) -> tuple[Sample, ...]:
    before = Sample(NOON - 60 * SECOND, round((watts - per_minute) * 1000))
    return (before, Sample(NOON, round(watts * 1000)))


def twin_columns_of(profile: str, watts: tuple[float, float, float], cooling: float) -> TwinColumns:
    """One node: what it may draw, what it draws, and how that changes."""
    capped, measured, trend = watts
    state = NodeState(
        ordinal=0,
        at=NOON,
        hardware=hardware("n", cores=CORES, watts=round(capped)),
        profile="" if profile == "draining" else profile,
        draining=profile == "draining",
        samples=readings(measured, trend),
    )
    twin_columns = TwinColumns.of({"n": state}, 0)
    return TwinColumns(
        twin_columns.rows, {**twin_columns.columns, "cooling": np.full(2, cooling)}, 0
    )


@pytest.mark.parametrize("line", lines_of("Nodes"), ids=lambda line: " ".join(line[:7]))
def test_a_score_on_the_page_is_the_one_that_is_given(line: list[str]) -> None:
    workload, profile = line[:2]
    capped, measured, marginal, cooling, trend, promised, answer = map(float, line[2:])
    twin_columns = twin_columns_of(profile, (capped, measured, trend), cooling)
    cores = marginal / capped * CORES
    weights = Weights(coefficients=EXACT if marginal else Coefficients(0.0, 0.0, 0.0, False))

    scores = score(
        pod(workload, cores=cores),
        twin_columns,
        rows_by_name(twin_columns, ["n"]),
        NOON,
        0,
        weights,
    )

    assert (round(float(scores.score[0]), 2), int(scores.answer[0])) == (promised, answer)


@pytest.mark.parametrize("line", lines_of("Pods"), ids=lambda line: line[0])
def test_watts_of_a_pod_on_the_page_are_the_ones_that_are_counted(line: list[str]) -> None:
    cores, gib, gpus, cpu_w, gpu_w, promised = map(float, line[2:])
    asked = pod(line[1], cores=cores, gib=gib, gpus=int(gpus))
    state = NodeState(ordinal=0, at=NOON, hardware=hardware("n", watts=720, gpus=8))
    twin_columns = TwinColumns.of({"n": state}, 0)

    watts = marginal_w(asked, twin_columns.rated(), Coefficients())[
        rows_by_name(twin_columns, ["n"])
    ]

    assert round(float(watts[0]), 1) == promised == pytest.approx(cpu_w + gpu_w)


def test_both_tables_are_there() -> None:
    assert (len(lines_of("Nodes")), len(lines_of("Pods"))) == (9, 5)
