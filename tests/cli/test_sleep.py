"""The whole product, with and without sleeping nodes, over the same simulated pods."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from joulie_demo import joulie

SLEEP = {
    "SCORING": "energy",
    "POLICY_TYPE": "consolidate_and_sleep",
    "POLICY_NUMBERS": "sleep_after_s=5,max_step=1",
}


class Outcome(NamedTuple):
    pods: int
    kwh: float
    replayed: str


def simulated(data: Path, **settings: str) -> Outcome:
    options = ("--nodes", "100", "--seed", "5", "--for", "40s", "--data", data)
    pods: dict[str, Any] = json.loads(
        joulie("demo", "--headless", "--json", *options, **settings).stdout
    )
    joulie("ledger", "--once", "--data", data)
    energy = json.loads(joulie("energy", "--json", "--data", data).stdout)
    replayed = joulie("replay", "--data", data).stdout
    return Outcome(pods["pods"], energy["meter_kwh"], replayed)


@pytest.mark.drill
def test_sleeping_nodes_save_energy_for_the_same_pods(tmp_path: Path) -> None:
    """The margins are wide: both runs share the machine with everything else."""
    usual = simulated(tmp_path / "usual")
    asleep = simulated(tmp_path / "asleep", **SLEEP)

    assert asleep.pods > 0.9 * usual.pods
    assert 0 < asleep.kwh < 0.75 * usual.kwh
    assert "no mismatches" in usual.replayed
    assert "no mismatches" in asleep.replayed
