"""The simulation notices each bug that is put into the product, by a few seeds."""

import pytest
from noticed import ALL, BLOCKS, noticed_in
from planted_bugs import BUGS
from simulate import shortest
from simulated_faults import FAILOVER, FORGETS, LOST_ACKS, VERSION, Fault
from simulated_moves import HOLE
from simulation import first_failure, simulated

FEW = range(1, 6)
# A broker whose window of duplicates is shorter than the pauses of an operator.
SENT_AGAIN = [Fault(4.0, LOST_ACKS, "operator", 8.0), Fault(4.0, FORGETS, "broker", 8.0)]
# What the seeds have now and then, and these bugs need.
FAULTS = {
    "a repeated message is folded again": SENT_AGAIN,
    "states of another version are compared": [Fault(5.0, VERSION, "projector-0", 8.0)],
    "the ledger stops at lost messages": [Fault(22.0, HOLE, "database", 2.0, 11.0)],
    "the ledger keeps a state that was refused": [Fault(9.0, FAILOVER, "database", 1.0, 4.5)],
}
HOURS = {"an hour of the ledger is counted again": 2}


@pytest.mark.drill
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_noticed(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, shown = BUGS[bug]
    plant(monkeypatch)

    hours = HOURS.get(bug, 0)
    faults = [] if hours else FAULTS.get(bug)
    found = first_failure(simulated(seed, faults, hours) for seed in FEW)

    assert found is not None
    assert shown in found.failure


def test_the_faults_that_show_repeated_messages_break_nothing() -> None:
    assert simulated(1, SENT_AGAIN).failure == ""


@pytest.mark.drill
def test_a_failing_seed_is_shown_with_the_quiet_hours_that_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    BUGS["an hour of the ledger is counted again"][0](monkeypatch)
    story = simulated(1, [Fault(3.0, "kill", "console", 1.0)], hours=2)

    least = shortest(story)

    assert (least.hours, least.faults) == (1, [])
    assert "the ledger counts" in least.failure


@pytest.mark.drill
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"from seed {block[0]} on")
@pytest.mark.parametrize("bug", ALL)
def test_a_bug_is_noticed_by_each_block_of_seeds(bug: str, block: range) -> None:
    assert noticed_in(bug, block).seed is not None
