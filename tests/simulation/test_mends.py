"""Each mend is taken out of the product, and the simulation finds what breaks without it."""

from collections.abc import Mapping

import pytest
from mends import BY_FAULTS_ONLY, MENDS
from simulate import shortest, shrunk
from simulated_faults import ELECTION, Fault
from simulated_moves import MOVE
from simulation import first_failure, simulated

SEEDS = range(1, 51)
FEW_SEEDS = range(1, 6)  # which projector leads at the start, and what is on its way, differ


def lagging(at: float, lasts: float, lag: float) -> Fault:
    return Fault(at, "failover to a standby that lags", "database", lasts, lag)


# The shortest lists of faults that show what each of them mends.
SHORTEST: Mapping[str, list[Fault]] = {
    "an append requires the entry that it follows": [lagging(3.065, 2.1, 0.333)],
    "no lease is renewed without the broker": [
        Fault(4.0, "cut from the broker", "projector-0", 20.0)
    ],
    "only a majority confirms the broker": [Fault(4.0, "quorum lost", "broker", 10.0)],
    "a snapshot ages": [Fault(4.0, "kill", "projector-0", 4.0)],
    "no older copy is signed": [lagging(11.7, 2.2, 3.4)],
    "a view applies changes of its own history": [
        Fault(5.0, "freeze", "console", 6.0),
        Fault(5.1, "cut from the database", "console", 10.0),
        lagging(6.0, 1.5, 3.0),
    ],
    "a copy that lacks messages is named": [
        Fault(3.0, "copy of a stream incomplete", "broker", 70.0)
    ],
    "a gap in one copy is read elsewhere": [
        Fault(4.0, "copy of a stream incomplete", "broker", 12.0),
        Fault(4.4, "kill", "projector-0", 1.0),
        Fault(8.3, "kill", "projector-1", 1.0),
    ],
    "any copy is read while no consumer can be made": [
        Fault(4.0, ELECTION, "broker", 18.0),
    ],
    "a copy of a trimmed log passes the guards": [
        Fault(26.0, MOVE, "database", 2.0, 12.0),
    ],
    "an empty database records what it replaces": [lagging(4.0, 1.0, 4.0)],
    "a commit notices a promoted server": [
        Fault(3.88, "freeze", "projector-0", 4.53),
        lagging(8.08, 1.75, 2.43),
    ],
    "a head that was published late is restored": [
        Fault(8.5, "broker down", "broker", 6.0),
        lagging(10.6, 4.0, 1.8),
    ],
    "no leadership begins without the broker": [
        lagging(5.1, 1.0, 5.1),
        Fault(5.7, "database down", "database", 2.5),
        Fault(7.46, "cut from the broker", "projector-0", 30.0),
    ],
    "a projector that takes over is not ready": [
        Fault(7.4, "quorum lost", "broker", 14.0),
        lagging(8.0, 1.5, 2.0),
    ],
}


@pytest.mark.parametrize("mend", MENDS)
@pytest.mark.drill
def test_without_a_mend_these_faults_break_a_property(
    mend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out, shown = MENDS[mend]
    with monkeypatch.context() as patch:
        take_out(patch)
        found = first_failure(simulated(seed, SHORTEST[mend]) for seed in FEW_SEEDS)

    assert found is not None
    assert shown in found.failure
    assert simulated(found.seed, SHORTEST[mend]).failure == ""


@pytest.mark.drill
@pytest.mark.parametrize("mend", sorted(MENDS.keys() - BY_FAULTS_ONLY))
def test_without_a_mend_one_of_fifty_seeds_fails(
    mend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out, _ = MENDS[mend]
    take_out(monkeypatch)

    assert first_failure(map(simulated, SEEDS)) is not None


@pytest.mark.drill
def test_a_failing_seed_is_shown_with_the_faults_that_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    MENDS["only a majority confirms the broker"][0](monkeypatch)
    needed = Fault(4.0, "quorum lost", "broker", 10.0)
    others = [Fault(3.0, "kill", "console", 1.0), Fault(9.0, "slow link", "agents", 1.0)]
    story = simulated(1, [others[0], needed, others[1]])

    assert shortest(story).faults == [needed]


def test_the_shortest_list_keeps_faults_that_only_fail_together() -> None:
    faults = [Fault(float(at), "kill", "console", 1.0) for at in range(8)]
    needed = {faults[1], faults[6]}

    assert set(shrunk(faults, lambda left: needed <= set(left))) == needed


def test_a_run_that_fails_without_faults_needs_none() -> None:
    assert shrunk([Fault(1.0, "kill", "console", 1.0)], lambda _: True) == []
