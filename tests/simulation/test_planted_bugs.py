"""The simulation notices each bug that is put into the product, by a few seeds."""

import pytest
from mends import BY_FAULTS_ONLY, MENDS
from planted_bugs import BUGS
from simulated_faults import FORGETS, LOST_ACKS, Fault
from simulation import first_failure, simulated

FEW = range(1, 6)
BLOCKS = [range(first, first + 200) for first in (1, 201, 401)]
ALL = {
    **{name: bug[0] for name, bug in BUGS.items()},
    **{name: mend[0] for name, mend in MENDS.items()},
}
# A broker whose window of duplicates is shorter than the pauses of an operator.
SENT_AGAIN = [Fault(4.0, LOST_ACKS, "operator", 8.0), Fault(4.0, FORGETS, "broker", 8.0)]
FAULTS = {"a repeated message is folded again": SENT_AGAIN}


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_noticed(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, shown = BUGS[bug]
    plant(monkeypatch)

    found = first_failure(simulated(seed, FAULTS.get(bug)) for seed in FEW)

    assert found is not None
    assert shown in found.failure


def test_the_faults_that_show_repeated_messages_break_nothing() -> None:
    assert simulated(1, SENT_AGAIN).failure == ""


@pytest.mark.drill
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"from seed {block[0]} on")
@pytest.mark.parametrize("bug", sorted(ALL.keys() - BY_FAULTS_ONLY))
def test_a_bug_is_noticed_by_each_block_of_seeds(
    bug: str, block: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    ALL[bug](monkeypatch)

    assert first_failure(map(simulated, block)) is not None
