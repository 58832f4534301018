"""The model of kube-scheduler against a real one, in worlds that neither has seen before."""

import secrets
from pathlib import Path

import pytest

from joulie_simulator.kube_scheduler.schedule import FILTERS, SCORES, profile_of
from kube_real import ASSETS, SCHEDULER, program_or_skip
from kube_recorder import recorded_worlds
from kube_versions import reported
from kube_worlds import answers, decided

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.timeout(900)]
WORLDS = 40
NEVER_HERE = "NodeName rejects"  # no pod that waits names its node


async def test_the_model_answers_as_kube_scheduler_does_about_new_random_pods(
    tmp_path: Path,
) -> None:
    program_or_skip(ASSETS, "kube-apiserver", "etcd")
    minor = int(reported(program_or_skip(SCHEDULER)).split(".")[1])
    seed = secrets.token_hex(4)

    worlds = await recorded_worlds(tmp_path, seed, WORLDS)

    profile = profile_of(minor)
    found = [each for world in worlds for each in answers(world, profile)]
    placed = [each for each in found if each.chosen and each.scores[1]]
    assert [each for each in found if each.feasible[0] != each.feasible[1]] == [], seed
    assert [each for each in found if each.scores[0] != each.scores[1]] == [], seed
    assert [each for each in placed if each.chosen not in each.best] == [], seed
    counts = decided(found)
    plugins = {f"{name} rejects" for name in FILTERS} | {f"{name} scores" for name in SCORES}
    assert {name for name in plugins - {NEVER_HERE} if counts[name] < 5} == set(), seed
