"""Which values `joulie whatif --set` replaces in the settings of a decision."""

from joulie_cli.ask.whatif import other_of
from joulie_extender.catalogue.weights import Weights
from joulie_extender.gpu.fit import GpuWeights
from joulie_extender.terms.preferences import Preference, Preferences, Team

TEAMS = (Team("red", ("team",), (Preference("pool", "spot", 5.0),)),)
THEN = Weights(preferences=Preferences((), TEAMS), gpu=GpuWeights(binpack=0.5), eco_bonus=3.0)


def revalued(**given: str) -> Weights:
    revalue = other_of(given).weights
    assert revalue is not None
    return revalue(THEN)


def test_a_number_of_the_formula_is_replaced_and_the_others_stay() -> None:
    found = revalued(MARGINAL_CPU_UTIL_COEFF="0.25", TWIN_STALENESS_THRESHOLD="7s")

    assert (found.staleness_s, found.coefficients.cpu, found.eco_bonus) == (7.0, 0.25, 3.0)


def test_the_numbers_of_a_burst_are_replaced_with_the_scale_of_trends() -> None:
    found = revalued(SCORE_TREND_SCALE="12")

    assert (found.trend_scale, found.trend_burst_scale, found.burst_w_per_min) == (12, 4, 1000)


def test_the_packing_of_cards_is_replaced_and_its_weight_stays() -> None:
    found = revalued(gpu_packing="fit")

    assert (found.gpu.packing, found.gpu.binpack) == ("fit", 0.5)


def test_preferences_for_all_pods_are_replaced_and_those_of_teams_stay() -> None:
    found = revalued(NODE_LABEL_SCORES="zone=a:2").preferences

    assert found == Preferences((Preference("zone", "a", 2.0),), TEAMS)
