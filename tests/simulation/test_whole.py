"""The whole in one process: each seed is one run, and its properties hold."""

import os
import subprocess
import sys

import pytest
from simulated_faults import ELECTION, FAILOVER, VERSION, Fault
from simulated_moves import HOLE
from simulation import simulated

# `make simulate` runs a thousand. The last has quiet hours.
SEEDS = [*range(1, 8), pytest.param(20, marks=pytest.mark.long)]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_property_of_the_whole_holds(seed: int) -> None:
    story = simulated(seed)

    assert story.failure == "", story


def test_a_run_without_faults_loses_nothing_and_is_recomputed() -> None:
    story = simulated(1, [])

    assert story.failure == "", story
    assert "decisions and" in story.lines[-1]


def test_a_projector_that_takes_over_while_no_consumer_can_be_made_reads_each_stream() -> None:
    """Also those of which nothing was read before, and not one after the other."""
    faults = [
        Fault(3.39, ELECTION, "broker", 20.29),
        Fault(6.61, "freeze", "projector-1", 3.67),
    ]
    story = simulated(147, faults)

    assert story.failure == "", story


@pytest.mark.long
@pytest.mark.parametrize("hours", [0, pytest.param(1, marks=pytest.mark.drill)])
def test_the_same_seed_is_the_same_run_to_the_byte(hours: int) -> None:
    first, second = (told(seed=2, hours=hours, hash_seed=hash_seed) for hash_seed in ("1", "2"))

    assert first == second
    assert first.startswith(b"seed 2, 1 h\n" if hours else b"seed 2\n")


@pytest.mark.long
def test_the_time_of_quiet_hours_is_skipped_from_reading_to_reading() -> None:
    story = simulated(1, [], hours=2)

    assert story.failure == "", story
    assert story.cluster_s > 7200
    assert story.run_s < story.cluster_s / 15


@pytest.mark.long
def test_a_standby_that_lags_by_half_an_hour_of_readings_loses_nothing() -> None:
    story = simulated(1, [Fault(3601.0, FAILOVER, "database", 1.0, 1800.0)], hours=1)

    assert story.failure == "", story
    assert any("restored position=" in line for line in story.lines)


def test_two_versions_of_the_folds_lead_in_turn() -> None:
    story = simulated(1, [Fault(5.0, VERSION, "projector-0", 8.0)])

    assert story.failure == "", story
    assert "facts of another version" in story.lines[-1]


def test_a_log_is_restored_from_an_archive_with_a_hole() -> None:
    story = simulated(1, [Fault(22.0, HOLE, "database", 2.0, 11.0)])

    assert story.failure == "", story
    assert any("restored with a hole" in line for line in story.lines)
    assert "not recomputed, in a hole" in story.lines[-1]


@pytest.mark.long
def test_another_seed_is_another_run() -> None:
    assert simulated(3).faults != simulated(4).faults


def test_a_seed_runs_with_other_faults_than_its_own() -> None:
    fault = Fault(4.0, "kill", "projector-0", 1.0)
    story = simulated(1, [fault])

    assert story.faults == [fault]
    assert story.failure == "", story


def told(seed: int, hours: int, hash_seed: str) -> bytes:
    """What `make simulate` prints, in a process of its own."""
    paths = [path for path in sys.path if path]
    done = subprocess.run(
        [sys.executable, "-m", "simulate", "--seed", str(seed), "--hours", str(hours)],
        env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        check=True,
    )
    return done.stdout
