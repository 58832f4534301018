"""The whole product, with and without sleeping nodes, over the same simulated pods."""

import json
from pathlib import Path

import pytest

import joulie_forked
from joulie_demo import joulie


@pytest.mark.drill
@pytest.mark.timeout(900)  # two demos of a simulated hour, 60 s each, and what follows
def test_sleeping_nodes_save_energy_for_the_same_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The margins are wide: both runs share the machine with everything else."""
    monkeypatch.setattr(joulie_forked, "PATIENCE_S", 800.0)
    options = ("--nodes", "100", "--seed", "5", "--data", tmp_path)

    done = joulie("demo", "--compare", "-o", "json", *options)

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    usual, asleep = found["runs"]
    assert usual["arrived"] == asleep["arrived"] > 0
    assert asleep["work_kwh"] > 0.9 * usual["work_kwh"] > 0
    assert asleep["kwh_per_work"] < 0.75 * usual["kwh_per_work"]
    assert found["mismatches"] == 0
    assert min(usual["decisions"], asleep["decisions"]) > usual["arrived"]
