"""The model of kube-scheduler against what real ones answered about random pods."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from joulie_simulator.kube_scheduler.schedule import FILTERS, SCORES, profile_of
from kube_worlds import RECORDED, Answer, answers, decided, recorded

FILES = sorted(RECORDED.glob("*.jsonl.gz"))
NEVER_HERE = {"NodeName rejects"}  # no pod that waits names its node


def minor_of(file: Path) -> int:
    return int(file.name.split(".")[1])


@pytest.fixture(scope="module", params=FILES, ids=lambda file: Path(file).name)
def found(request: pytest.FixtureRequest) -> Sequence[Answer]:
    profile = profile_of(minor_of(request.param))
    return [each for world in recorded(request.param) for each in answers(world, profile)]


def test_the_nodes_that_pass_are_the_same_for_every_pod(found: Sequence[Answer]) -> None:
    assert len(found) >= 400
    assert [each for each in found if each.feasible[0] != each.feasible[1]] == []


def test_every_plugin_gives_every_node_the_same_score(found: Sequence[Answer]) -> None:
    assert [each for each in found if each.scores[0] != each.scores[1]] == []


def test_the_chosen_node_is_one_with_the_highest_sum(found: Sequence[Answer]) -> None:
    placed = [each for each in found if each.chosen and each.scores[1]]

    assert len(placed) >= 200
    assert [each for each in placed if each.chosen not in each.best] == []


def test_every_plugin_decides_about_many_of_these_pods(found: Sequence[Answer]) -> None:
    counts = decided(found)
    plugins = {f"{name} rejects" for name in FILTERS} | {f"{name} scores" for name in SCORES}

    assert {name for name in plugins - NEVER_HERE if counts[name] < 20} == set()
