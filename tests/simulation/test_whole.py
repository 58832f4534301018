"""The whole in one process: each seed is one run, and its properties hold."""

import os
import subprocess
import sys

import pytest
from simulated_faults import ELECTION, Fault
from simulation import simulated

SEEDS = range(1, 21)


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
def test_the_same_seed_is_the_same_run_to_the_byte() -> None:
    first, second = (told(seed=2, hash_seed=hash_seed) for hash_seed in ("1", "2"))

    assert first == second
    assert first.startswith(b"seed 2\n")


def test_another_seed_is_another_run() -> None:
    assert simulated(3).faults != simulated(4).faults


def test_a_seed_runs_with_other_faults_than_its_own() -> None:
    fault = Fault(4.0, "kill", "projector-0", 1.0)
    story = simulated(1, [fault])

    assert story.faults == [fault]
    assert story.failure == "", story


def told(seed: int, hash_seed: str) -> bytes:
    """What `make simulate` prints, in a process of its own."""
    paths = [path for path in sys.path if path]
    done = subprocess.run(
        [sys.executable, "-m", "simulate", "--seed", str(seed)],
        env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        check=True,
    )
    return done.stdout
