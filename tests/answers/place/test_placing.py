"""Where pods are foretold to go, beside what the extender answers when they really ask."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from foretelling import Case, case, known, require_right
from joulie_answers.place.fits import CARD_MILLI, MIB, nearest
from joulie_answers.place.foretold import Question, foretold
from joulie_answers.place.known import with_amounts
from joulie_answers.place.manifest import read
from joulie_answers.place.placing import Moment, Placing
from joulie_audit.recompute.added_watts import added_watts
from joulie_bus.events import PodAsk, PodBound
from joulie_projections.fold.registry import evolve
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.columns import TwinColumns

CASES = 250


@pytest.mark.parametrize("number", range(CASES))
def test_the_foretold_node_is_the_one_that_the_extender_then_decides(number: int) -> None:
    require_right(case(number))


def test_the_cases_have_all_outcomes() -> None:
    found = [Placing(of.moment).look(*known(of, of.moment.state)) for of in map(case, range(CASES))]
    reasons = {why for look in found for why in look.refused}

    assert sum(len(look.nodes) > 1 for look in found) > CASES / 6
    assert sum(not look.nodes for look in found) > CASES / 10
    assert {"insufficient cpu", "insufficient GPUs", "asleep", "waking up", "cordoned"} <= reasons
    assert {"not ready", "no cards"} <= reasons


# --- one after the other ----------------------------------------------------------------------


def replicas(of: Case, count: int) -> str:
    template = {"metadata": of.manifest["metadata"], "spec": of.manifest["spec"]}
    metadata = {"name": "new", "namespace": "team"}
    spec = {"replicas": count, "template": template}
    return json.dumps({"kind": "ReplicaSet", "metadata": metadata, "spec": spec})


def answer(of: Case, count: int) -> Any:
    found = foretold(of.moment, Question(read(replicas(of, count)), None, True), lambda: False)
    [group] = found["groups"]
    return group


@pytest.mark.parametrize("number", range(0, CASES, 10))
def test_as_many_are_placed_as_fit_and_one_more_is_refused_by_a_rule(number: int) -> None:
    of, many = case(number), 40
    group = answer(of, many)

    assert sum(each.pods for each in group.nodes) == group.placed
    assert bool(group.refused) == (group.placed < many)
    if 0 < group.placed < many:
        assert answer(of, group.placed).placed == group.placed
        assert answer(of, group.placed + 1).placed == group.placed


@pytest.mark.parametrize("number", range(0, CASES, 10))
def test_each_replica_goes_where_the_extender_sends_it_when_the_earlier_ones_run(
    number: int,
) -> None:
    """The state between two replicas is the fold of a binding."""
    of, many = case(number), 3
    group = answer(of, many)
    expected = list[str]()
    for at in range(group.placed):
        pod, ask = known(of, of.moment.state)
        best = Placing(of.moment).look(pod, ask).best[0]
        expected.append(best)
        of = of._replace(moment=bound(of.moment, replace(ask, uid=f"r{at}"), best))

    assert {each.node: each.pods for each in group.nodes} == {
        node: expected.count(node) for node in expected
    } or any(each.cards for each in group.nodes)  # which claims change, too


def bound(moment: Moment, ask: PodAsk, node: str) -> Moment:
    draft = Draft(moment.state)
    evolve(draft, PodBound(pod=ask, node=node), moment.at)
    draft.commit()
    return moment._replace(columns=TwinColumns.of_state(moment.state))


def refused_cases() -> Iterator[Case]:
    for of in map(case, range(CASES)):
        if not Placing(of.moment).look(*known(of, of.moment.state)).nodes:
            yield of


def test_the_nearest_request_fits_and_a_larger_one_does_not() -> None:
    seen = set[str]()
    for of in refused_cases():
        pod, ask = known(of, of.moment.state)
        placing = Placing(of.moment)
        for near in nearest(placing, pod, ask):
            seen.add(near.resource)
            step = changed(ask, near.resource, near.fits)
            more = changed(ask, near.resource, near.fits + STEPS[near.resource])

            assert placing.look(with_amounts(pod, step), step).nodes
            assert not placing.look(with_amounts(pod, more), more).nodes
            assert 0 < near.fits < near.asked

    assert seen >= {"GPUs", "cores"}


STEPS = {"cores": 0.001, "MiB": 1, "GPUs": 1}


def changed(ask: PodAsk, resource: str, amount: float) -> PodAsk:
    match resource:
        case "cores":
            return replace(ask, cpu_milli=round(amount * 1000))
        case "MiB":
            return replace(ask, memory_bytes=round(amount) * MIB)
        case _:
            cards = round(amount)
            return replace(ask, gpu_cards=cards, gpu_milli=cards * CARD_MILLI)


@pytest.mark.parametrize("number", range(0, CASES, 10))
def test_watts_are_those_that_what_if_counts_for_the_node(number: int) -> None:
    of = case(number)
    look = Placing(of.moment).look(*known(of, of.moment.state))
    if look.scored is not None:
        moment, best = of.moment, look.best[:1]
        whole = added_watts(look.scored, moment.columns, moment.weights, best)

        assert [answer(of, 1).added_w] == pytest.approx(whole)


@pytest.mark.parametrize("number", range(0, CASES, 25))
def test_the_state_and_the_columns_of_the_question_stay_as_they_were(number: int) -> None:
    of = case(number)
    state, columns = of.moment.state, of.moment.columns
    before = copy.deepcopy([vars(state)[name] for name in ("nodes", "pods", "gpus", "cluster")])
    arrays = {name: column.copy() for name, column in columns.columns.items()}
    answer(of, 10)

    assert before == [vars(state)[name] for name in ("nodes", "pods", "gpus", "cluster")]
    assert all(np.array_equal(arrays[name], column) for name, column in columns.columns.items())
