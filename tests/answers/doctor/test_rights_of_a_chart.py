"""Which rights `joulie doctor` requires of the components that it finds."""

from joulie_answers.doctor.observed_cluster import Installed
from joulie_operator.resources.rights import NOMINATE, OPERATOR


def test_nominations_are_required_wherever_an_extender_may_refuse_pods() -> None:
    with_extender = Installed({"operator": [{}], "extender": [{}]})
    without = Installed({"operator": [{}]})
    elsewhere = Installed({})  # no pods of the chart

    assert (
        set(with_extender.rights("operator")) == set(OPERATOR) == set(elsewhere.rights("operator"))
    )
    assert set(OPERATOR) - set(without.rights("operator")) == {NOMINATE}
