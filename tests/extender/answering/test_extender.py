"""The app as kube-scheduler and people meet it: over a real socket, from one snapshot."""

import asyncio
import json
import math
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from bus_kit import NOON, SECOND, hardware
from extender_kit import (
    PATIENT,
    Received,
    get,
    post,
    request,
    served,
    snapshot_of,
)
from go_http import Client
from joulie_bus.events import (
    DecisionEntry,
    FallbackAnswered,
    FilterDecided,
    PreemptDecided,
    PrioritizeDecided,
    WorkloadClass,
)
from joulie_bus.http.exchange import Reply, Request
from joulie_bus.runtime import metrics
from joulie_extender.answering.extender import Extender
from joulie_extender.catalogue.declaration import settings_id
from joulie_extender.catalogue.weights import Weights
from joulie_extender.gpu.fit import GpuWeights
from joulie_extender.http.routes import routed
from joulie_projections.pods.load import Load
from joulie_projections.state.state import Arrival, NodeState, Sample
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.view.view import ViewSnapshot

pytestmark = pytest.mark.anyio
N0 = NodeState(
    ordinal=0,
    at=NOON,
    hardware=hardware("n0", cores=128, watts=700, gpus=8),
    profile="performance",
    samples=(Sample(NOON - 60 * SECOND, 460_400), Sample(NOON, 450_000)),
)
N1 = NodeState(ordinal=1, at=NOON, hardware=hardware("n1"), profile="eco")
N2 = NodeState(ordinal=2, at=NOON - 400 * SECOND, hardware=hardware("n2"))
SNAPSHOT = snapshot_of(N0, N1, N2)
POD = {
    "metadata": {
        "name": "p",
        "uid": "u1",
        "annotations": {"joulie.io/workload-class": "performance"},
    }
}
ARGS: dict[str, Any] = {"Pod": POD, "Nodes": None, "NodeNames": ["n1", "n0", "ghost"]}
BODY = json.dumps(ARGS).encode()
VICTIMS = {"n0": {"Pods": [{"UID": "a"}], "NumPDBViolations": 0}, "n1": {"Pods": [{"UID": "b"}]}}
PREEMPT = json.dumps({"Pod": POD, "NodeNameToMetaVictims": VICTIMS}).encode()


def look() -> ViewSnapshot:
    return SNAPSHOT


async def answered(verb: str, body: bytes = BODY) -> Any:
    async with served(look) as extender:
        reply = await post(extender.port, f"/{verb}", body)
    assert reply.status == 200, reply.body
    return reply.json()


@pytest.mark.parametrize("prefix", ["", "energy/"])
async def test_filter_answers_over_a_real_socket(prefix: str) -> None:
    reply = await answered(f"{prefix}filter")

    assert reply["NodeNames"] == ["n0", "ghost"]
    assert list(reply["FailedAndUnresolvableNodes"]) == ["n1"]


@pytest.mark.parametrize("prefix", ["", "energy/"])
async def test_prioritize_scores_every_name_with_a_whole_number(prefix: str) -> None:
    reply = await answered(f"{prefix}prioritize")

    assert [entry["Host"] for entry in reply] == ARGS["NodeNames"]
    assert [type(entry["Score"]) for entry in reply] == [int, int, int]


@pytest.mark.parametrize("prefix", ["", "energy/"])
async def test_preempt_keeps_the_nodes_that_the_filter_would_let_through(prefix: str) -> None:
    reply = await answered(f"{prefix}preempt", PREEMPT)

    assert reply == {
        "NodeNameToMetaVictims": {"n0": {"Pods": [{"UID": "a"}], "NumPDBViolations": 0}}
    }


async def test_every_answer_is_recorded_with_what_it_rests_on() -> None:
    async with served(look) as extender:
        for verb, body in (("filter", BODY), ("prioritize", BODY), ("preempt", PREEMPT)):
            await post(extender.port, f"/{verb}", body)

    kinds = [type(entry) for entry in extender.recorded]
    assert kinds == [FilterDecided, PrioritizeDecided, PreemptDecided]
    for entry in extender.recorded:
        assert isinstance(entry, FilterDecided | PrioritizeDecided | PreemptDecided)
        assert (entry.basis.view, entry.basis.view_age_ms, entry.basis.now) == (17, 3, NOON)


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
async def test_every_answer_names_the_position_and_the_age_of_what_it_rests_on(verb: str) -> None:
    async with served(look) as extender:
        reply = await post(extender.port, f"/{verb}", BODY)

    assert b"\r\nJoulie-View: 17\r\nJoulie-View-Age-Ms: 3\r\n" in reply.head


async def test_pods_ask_for_cards_by_the_resources_of_the_settings() -> None:
    """However the request is read: by names, by whole nodes, for a preemption; pretty or not."""
    weights = Weights(gpu=GpuWeights(resources="nvidia.com/gpu,vendor.example/gpu"))
    told: list[DecisionEntry] = []
    extender = Extender(look, told.append, weights, lambda: NOON, fallback_policy=PATIENT)
    wants = {"name": "c", "resources": {"limits": {"vendor.example/gpu": "3"}}}
    asked = {"Pod": POD | {"spec": {"containers": [wants]}}}
    nodes = {"items": [{"metadata": {"name": "n0"}}]}

    for fields, ask in (
        ({"Nodes": None, "NodeNames": ["n0"]}, extender.filter),
        ({"Nodes": nodes, "NodeNames": None}, extender.filter),
        ({"Nodes": None, "NodeNames": ["n0"]}, extender.prioritize),
        ({"NodeNameToMetaVictims": VICTIMS}, extender.preempt),
    ):
        for separators in ((",", ":"), (", ", ": ")):
            ask(request(json.dumps(asked | fields, separators=separators).encode()))

    assert len(told) == 8
    for entry in told:
        assert isinstance(entry, FilterDecided | PrioritizeDecided | PreemptDecided)
        assert (entry.pod.gpu_cards, entry.pod.gpu_milli) == (3, 3000)
        assert entry.basis.settings == settings_id(weights)


async def test_no_answer_is_given_that_was_not_recorded_before() -> None:
    def refuse(_: DecisionEntry) -> None:
        raise RuntimeError("nothing can be recorded")

    extender = Extender(look, refuse, Weights(), lambda: NOON, fallback_policy=PATIENT)

    with pytest.raises(RuntimeError, match="nothing can be recorded"):
        extender.filter(request(BODY))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "not an Extender"),
        (b"{}", "no Pod"),
        (b'{"Pod":{},"NodeNames":[1],"NodeNameToMetaVictims":[1]}', "$.NodeName"),
        (
            b'{"Pod":{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"lots"}}}]}}'
            b',"NodeNames":[]}',
            "quantity 'lots'",
        ),
    ],
    ids=["empty", "no pod", "a number as a name", "no quantity"],
)
@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
async def test_garbage_is_refused_with_a_reason(verb: str, body: bytes, told: str) -> None:
    async with served(look) as extender:
        reply = await post(extender.port, f"/{verb}", body)

    assert reply.status == 400
    assert told in json.loads(reply.body)["error"]
    assert extender.recorded == []


async def test_a_pod_that_asks_for_more_than_there_can_be_is_answered() -> None:
    container = {"name": "c", "resources": {"requests": {"cpu": "9223372036854775807"}}}
    greedy = {**ARGS, "Pod": {"metadata": {"name": "p"}, "spec": {"containers": [container]}}}

    assert len(await answered("prioritize", json.dumps(greedy).encode())) == 3


VRAM = "joulie.io/gpu-vram-mb"
ENDLESS = ["0000001" + "0" * 23, "0" * 11 + "1" + "0" * 5000, "9" * 5000, "0000001000000000000"]


@pytest.mark.parametrize("text", ENDLESS, ids=["24 digits", "5 kB", "5,000 nines", "10^12"])
@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
async def test_a_pod_with_an_endless_number_is_answered(verb: str, text: str) -> None:
    pod = {"metadata": {"name": "p", "uid": "u", "annotations": {VRAM: text}}}
    args = {**ARGS, "Pod": pod, "NodeNameToMetaVictims": VICTIMS}

    await answered(verb, json.dumps(args).encode())


@pytest.mark.parametrize("cpu", ["1e14", "20T", "9" * 5000, "16Ei"], ids=lambda cpu: cpu[:9])
async def test_a_pod_that_asks_for_more_than_any_machine_has_is_answered(cpu: str) -> None:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    greedy = {**ARGS, "Pod": {"metadata": {"name": "p"}, "spec": {"containers": [container]}}}

    assert len(await answered("prioritize", json.dumps(greedy).encode())) == 3


def replaced(tree: Any, by: object) -> Iterator[Any]:
    """Copies of the tree, in each of which one value is replaced."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in pairs:
        changed = list(replaced(value, by)) if isinstance(value, dict | list) else []
        for each in (*changed, by):
            yield (
                {**tree, key: each}
                if isinstance(tree, dict)
                else [*tree[:key], each, *tree[key + 1 :]]
            )


ONE = {
    "metadata": {"name": "p", "uid": "u", "annotations": {"a": "b"}, "labels": {"a": "b"}},
    "spec": {
        "priority": 5,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": 1, "memory": 1}}}],
        "overhead": {"cpu": 1},
    },
}
WHOLE = {"metadata": {"name": "n0", "labels": {"a": "b"}}, "spec": {"taints": [{"key": "k"}]}}
FORMS = {
    "by names": ("filter", {"Pod": ONE, "Nodes": None, "NodeNames": ["n0"]}),
    "whole": ("filter", {"Pod": ONE, "Nodes": {"items": [WHOLE]}, "NodeNames": None}),
    "scores": ("prioritize", {"Pod": ONE, "Nodes": {"items": [WHOLE]}, "NodeNames": None}),
    "victims": ("preempt", {"Pod": ONE, "NodeNameToMetaVictims": VICTIMS}),
}
MARK = "REPLACED"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "value",
    [b"1" + b"0" * 30, b"-1" + b"0" * 30, b"1" * 400, b'"\xff\xfe"', b"[" * 3000],
    ids=["beyond 64 bits", "below 64 bits", "400 digits", "no UTF-8", "deep"],
)
def test_no_value_of_a_request_causes_a_500_or_a_reply_that_is_no_json(
    form: str, value: bytes
) -> None:
    verb, args = FORMS[form]
    handler = routed(Moving().extender, lambda: False)
    for changed in replaced(args, MARK):
        body = json.dumps(changed).encode().replace(f'"{MARK}"'.encode(), value)
        reply = handler(Request("POST", f"/{verb}", body, math.inf))

        assert isinstance(reply, Reply)
        assert reply.status in (200, 400)
        json.loads(reply.body.decode())


IMPOSSIBLE = {
    "a long name": {"metadata": {"name": "x" * 254}},
    "a long uid": {"metadata": {"name": "p", "uid": "x" * 65}},
    "a NUL": {"metadata": {"name": "a\0b"}},
    "a line": {"metadata": {"name": "p", "namespace": "a\nb"}},
    "a long team": {"metadata": {"name": "p", "labels": {"joulie.io/team": "x" * 300}}},
}


@pytest.mark.parametrize("pod", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
async def test_a_pod_that_no_api_server_has_is_refused_with_a_reason(
    verb: str, pod: dict[str, Any]
) -> None:
    args = {**ARGS, "Pod": pod, "NodeNameToMetaVictims": VICTIMS}
    async with served(look) as extender:
        reply = await post(extender.port, f"/{verb}", json.dumps(args).encode())

    assert reply.status == 400
    reason = json.loads(reply.body)["error"]
    assert "beyond the bounds" in reason or "which is not" in reason
    assert extender.recorded == []


@pytest.mark.parametrize("name", ["x" * 254, "a\0b"])
@pytest.mark.parametrize("verb", ["filter", "prioritize"])
async def test_a_node_that_no_api_server_has_is_refused_with_a_reason(verb: str, name: str) -> None:
    async with served(look) as extender:
        body = json.dumps({**ARGS, "NodeNames": ["n0", name]}).encode()
        reply = await post(extender.port, f"/{verb}", body)

    assert (reply.status, extender.recorded) == (400, [])


@pytest.mark.parametrize("field", ["PodName", "PodNamespace", "PodUID", "Node"])
@pytest.mark.parametrize("value", ["x" * 300, "a\0b"])
async def test_a_binding_of_names_that_no_api_server_has_is_refused(field: str, value: str) -> None:
    args = {"PodName": "p", "PodNamespace": "t", "PodUID": "u", "Node": "n0", field: value}
    async with served(look) as extender:
        reply = await post(extender.port, "/bind", json.dumps(args).encode())

    assert (reply.status, extender.recorded) == (400, [])


# --- the full form ----------------------------------------------------------------------------


def full(*names: str, **labels: str) -> bytes:
    items = [{"metadata": {"name": name, "labels": labels}, "spec": {"x": 1}} for name in names]
    return json.dumps({"Pod": POD, "Nodes": {"items": items}, "NodeNames": None}).encode()


async def test_whole_nodes_come_back_whole() -> None:
    reply = await answered("filter", full("n0", "n1"))

    [node] = reply["Nodes"]["items"]
    assert node == {"metadata": {"name": "n0", "labels": {}}, "spec": {"x": 1}}
    assert (reply["NodeNames"], list(reply["FailedAndUnresolvableNodes"])) == (None, ["n1"])


async def test_the_label_of_a_node_without_a_twin_decides() -> None:
    reply = await answered("filter", full("stranger", **{"joulie.io/power-profile": "eco"}))

    assert reply["Nodes"] == {"items": []}
    assert list(reply["FailedAndUnresolvableNodes"]) == ["stranger"]


# --- namespaces -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "passed"),
    [({"team": "performance"}, ["n0", "ghost"]), ({"other": "performance"}, ["n1", "n0", "ghost"])],
    ids=["its namespace gives it a class", "another namespace"],
)
def test_a_pod_without_a_class_has_the_class_of_its_namespace(
    given: dict[str, WorkloadClass], passed: list[str]
) -> None:
    state = Moving()
    state.snapshot = SNAPSHOT._replace(namespaces=given)
    silent = {"metadata": {"name": "p", "uid": "u1", "namespace": "team"}}
    reply = json.loads(state.filter(json.dumps(ARGS | {"Pod": silent}).encode()))
    [decision] = state.recorded

    assert reply["NodeNames"] == passed
    assert isinstance(decision, FilterDecided)
    assert decision.pod.rule == ("namespace" if "team" in given else "default")


# --- memory -----------------------------------------------------------------------------------


def count(name: str, **labels: str) -> float:
    return metrics.shown_by("extender").get_sample_value(name, labels) or 0.0


class Moving:
    """A state that the test changes between two questions."""

    def __init__(self) -> None:
        self.now = NOON
        self.snapshot = SNAPSHOT
        self.recorded: list[DecisionEntry] = []
        self.extender = Extender(
            lambda: self.snapshot,
            self.recorded.append,
            Weights(),
            lambda: self.now,
            fallback_policy=PATIENT,
        )

    def filter(self, body: bytes = BODY) -> bytes:
        reply = self.extender.filter(request(body))
        assert isinstance(reply, Reply)
        return reply.body


def test_the_same_question_gets_the_same_answer_and_an_entry_of_its_own() -> None:
    state = Moving()
    first = state.filter()
    state.now += SECOND

    assert state.filter() == first
    one, two = state.recorded
    assert isinstance(one, FilterDecided)
    assert isinstance(two, FilterDecided)
    assert replace(two, basis=one.basis) == one
    assert two.basis.now == NOON + SECOND


async def test_calls_and_repeats_are_counted_per_verb() -> None:
    labels = {"verb": "filter"}
    calls = count("joulie_answers_total", outcome="answered", **labels)
    repeats = count("joulie_answers_repeated_total", **labels)
    async with served(look) as extender:
        for _ in range(3):
            await post(extender.port, "/filter", BODY)

    assert count("joulie_answers_total", outcome="answered", **labels) == calls + 3
    assert count("joulie_answers_repeated_total", **labels) == repeats + 2


async def test_scores_that_would_have_been_added_up_are_counted() -> None:
    before = count("joulie_scores_saved_total")
    twice = json.dumps({"Pod": POD, "NodeNames": ["n0", "n0", "n1"]}).encode()

    assert len(await answered("prioritize", twice)) == 2
    assert count("joulie_scores_saved_total") == before + 1


# --- when there is no answer to give ----------------------------------------------------------

NOBODY_REFUSED: dict[str, Any] = {"FailedNodes": {}, "FailedAndUnresolvableNodes": {}}
ALL_VICTIMS = {
    "n0": {"Pods": [{"UID": "a"}], "NumPDBViolations": 0},
    "n1": {"Pods": [{"UID": "b"}], "NumPDBViolations": 0},
}
NEUTRAL = [{"Host": name, "Score": 50} for name in ARGS["NodeNames"]]
NOT_NOW = "the energy rules cannot be looked at right now and are set to refuse in that case"
OPEN = {
    "filter": {"Nodes": None, "NodeNames": ARGS["NodeNames"], **NOBODY_REFUSED, "Error": ""},
    "prioritize": NEUTRAL,
    "preempt": {"NodeNameToMetaVictims": ALL_VICTIMS},
}
CLOSED = {
    "filter": {"Nodes": None, "NodeNames": None, **NOBODY_REFUSED, "Error": NOT_NOW},
    "prioritize": NEUTRAL,
    "preempt": {"NodeNameToMetaVictims": {}},
}
BODIES = {"filter": BODY, "prioritize": BODY, "preempt": PREEMPT}


def broken() -> ViewSnapshot:
    twin_columns = TwinColumns({"n0": 1}, {}, 0)  # no column at all
    return ViewSnapshot(1, twin_columns, 0)


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
@pytest.mark.parametrize(("fails", "expected"), [("open", OPEN), ("closed", CLOSED)])
async def test_a_failure_within_is_open_or_closed_and_never_a_500(
    verb: str, fails: Any, expected: dict[str, Any]
) -> None:
    async with served(broken, fallback_policy=PATIENT._replace(fails=fails)) as extender:
        reply = await post(extender.port, f"/{verb}", BODIES[verb])

    assert (reply.status, reply.json()) == (200, expected[verb])
    [entry] = extender.recorded
    assert isinstance(entry, FallbackAnswered)
    assert (entry.verb, entry.why, entry.answer) == (verb, "failed", fails)


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
@pytest.mark.parametrize(("fails", "expected"), [("open", OPEN), ("closed", CLOSED)])
async def test_a_request_that_waited_too_long_is_not_thought_about(
    verb: str, fails: Any, expected: dict[str, Any]
) -> None:
    fallback_policy = PATIENT._replace(fails=fails, deadline_s=1.0)
    async with served(look, fallback_policy=fallback_policy) as extender:
        extender.extender.filter(request(BODY, begun=0.0))
        reply = getattr(extender.extender, verb)(request(BODIES[verb], begun=0.0))

    assert json.loads(reply.body) == expected[verb]
    entry = extender.recorded[-1]
    assert isinstance(entry, FallbackAnswered)
    assert (entry.why, entry.answer, entry.basis.view) == ("overdue", fails, 17)


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
async def test_closed_without_a_view_nothing_is_let_through(verb: str) -> None:
    fallback_policy = PATIENT._replace(fails="closed")
    async with served(look, is_ready=lambda: False, fallback_policy=fallback_policy) as extender:
        reply = await post(extender.port, f"/{verb}", BODIES[verb])

    assert reply.json() == CLOSED[verb]
    [entry] = extender.recorded
    assert isinstance(entry, FallbackAnswered)
    assert entry.why == "not-ready"


async def test_the_full_form_is_let_through_whole() -> None:
    async with served(broken) as extender:
        reply = await post(extender.port, "/filter", full("n0", "n1"))

    passed = json.loads(reply.body)["Nodes"]["items"]
    assert [node["metadata"]["name"] for node in passed] == ["n0", "n1"]


# --- pages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ready", "status"), [(True, 200), (False, 503)])
async def test_readiness_waits_for_the_projection_and_liveness_does_not(
    ready: bool, status: int
) -> None:
    async with served(look, is_ready=lambda: ready) as extender:
        readiness = await get(extender.port, "/readyz")
        liveness = await get(extender.port, "/healthz")

    assert (readiness.status, liveness.status) == (status, 200)


async def page(path: str) -> Any:
    async with served(look) as extender:
        shown = await get(extender.port, path)
    assert shown.status == 200
    return shown.json()


async def test_the_debug_page_shows_what_a_score_is_made_of() -> None:
    shown = await page("/debug/scoring")

    assert shown["coefficients"] == {
        "cpuUtilCoeff": 0.7,
        "gpuUtilCoeffStandard": 0.65,
        "gpuUtilCoeffPerformance": 0.85,
        "memoryFactor": True,
    }
    assert (shown["position"], shown["viewAgeMs"]) == (17, 3)
    assert shown["weights"]["draining_penalty"] == 20
    [first, *_] = shown["nodes"]
    assert first == {
        "nodeName": "n0",
        "schedulableClass": "performance",
        "headroom": 0.0,
        "coolingStress": 100.0,
        "measuredPowerW": 450.0,
        "cappedPowerW": 6300.0,
        "nodeTdpW": 6300.0,
        "powerTrendWPerMin": pytest.approx(-10.4),
        "baseScore": pytest.approx(0.7 * 5850 / 63 + 10.4 / 6),
        "cpuTotalCores": 128.0,
        "cpuMaxWattsTotal": 700.0,
        "gpuCount": 8,
        "gpuMaxWattsPerGpu": 700.0,
        "hasGpu": True,
        "assumedPowerW": 0.0,
        "stale": False,
    }


async def test_the_base_score_counts_the_assumed_power_beside_it() -> None:
    pods = Load(cpu_milli=64_000, warm_cpu_micro=64_000_000)
    arrived = replace(N0, load=pods, pods=1, arrivals=(Arrival("a", NOON, pods),))
    snapshot = snapshot_of(arrived, N1, N2)

    async with served(lambda: snapshot) as extender:
        shown: Any = (await get(extender.port, "/debug/scoring")).json()
        body = json.dumps(ARGS | {"NodeNames": ["n0"]}).encode()
        scored: Any = (await post(extender.port, "/prioritize", body)).json()

    node = shown["nodes"][0]
    assert node["assumedPowerW"] == pytest.approx(0.7 * 700 / 2)
    left_w = 6300 - 450 - node["assumedPowerW"]
    assert node["baseScore"] == pytest.approx(0.7 * left_w / 63 + 10.4 / 6)
    assert node["baseScore"] - scored[0]["Score"] < 1.1  # the pod itself adds 2 W


async def test_the_debug_page_shows_the_stress_of_the_model_in_use() -> None:
    weights = Weights(cooling_power="measured")

    async with served(look, weights=weights) as extender:
        shown: Any = (await get(extender.port, "/debug/scoring")).json()

    assert shown["nodes"][0]["coolingStress"] == pytest.approx(450 / 4000 * 80)


async def test_the_debug_page_lists_nodes_by_name_and_says_which_are_stale() -> None:
    shown = await page("/debug/scoring")

    told = [(node["nodeName"], node["stale"]) for node in shown["nodes"]]
    assert told == [("n0", False), ("n1", False), ("n2", True)]
    assert shown["nodes"][2]["baseScore"] == 50


async def test_a_pod_is_explained_with_every_answer_about_it() -> None:
    async with served(look) as extender:
        for verb, body in (("filter", BODY), ("prioritize", BODY), ("preempt", PREEMPT)):
            await post(extender.port, f"/{verb}", body)
        shown: Any = (await get(extender.port, "/explain/u1")).json()

    filtered, scored, preempted = shown["answers"]
    assert shown["pod"]["workload"] == "performance"
    assert (filtered["verb"], filtered["refused"], filtered["basis"]["view"]) == (
        *("filter", {"n1": "eco"}),
        17,
    )
    assert (scored["verb"], list(scored["scores"])) == ("prioritize", ARGS["NodeNames"])
    assert set(scored["best"][0]) >= {"node", "score", "headroom", "cooling", "trend", "marginal_w"}
    assert (preempted["verb"], preempted["refused"]) == ("preempt", {"n1": "eco"})


def test_an_answer_is_explained_by_the_names_of_its_view() -> None:
    state = Moving()
    state.filter()
    other = N1.__class__(ordinal=1, at=NOON, hardware=hardware("other"), profile="eco")
    columns = TwinColumns.of({"n0": N0, "other": other, "n2": N2}, 0)
    state.snapshot = SNAPSHOT._replace(position=18, twin_columns=columns)
    state.filter(BODY.replace(b"n1", b"other"))

    shown = json.loads(state.extender.explain("u1") or b"{}")
    assert [answer["refused"] for answer in shown["answers"]] == [{"n1": "eco"}, {"other": "eco"}]


async def test_a_pod_without_a_request_cannot_be_explained() -> None:
    async with served(look) as extender:
        reply = await get(extender.port, "/explain/absent")

    assert reply.status == 404
    assert "`joulie explain UID` reads the decision log" in json.loads(reply.body)["error"]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/gpu/", "and to /gpu/bind"),
        ("/energy/bind", "Take bindVerb out"),
        ("/filter/", "kube-scheduler posts to /filter"),
        ("/", "GET answers /explain/POD-UID"),
    ],
)
async def test_the_error_of_an_unknown_path_says_what_to_do(path: str, told: str) -> None:
    async with served(look) as extender:
        reply = await post(extender.port, path, BODY)

    assert reply.status == 404
    assert told in json.loads(reply.body)["error"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/filter", b"POST"),
        ("PUT", "/prioritize", b"POST"),
        ("GET", "/energy/preempt", b"POST"),
        ("DELETE", "/healthz", b"GET, HEAD"),
        ("PATCH", "/debug/scoring", b"GET, HEAD"),
        ("OPTIONS", "/explain/u1", b"GET, HEAD"),
    ],
)
async def test_another_method_is_refused_with_the_allowed_methods(
    method: str, path: str, allowed: bytes
) -> None:
    async with served(look) as extender:
        reply = await get(extender.port, path, method)

    assert reply.status == 405
    assert b"\r\nAllow: %b\r\n" % allowed in reply.head


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/debug/scoring", "/openapi.json"])
async def test_head_replies_with_the_length_and_without_the_body(path: str) -> None:
    aged = snapshot_of(N0, N1, N2, age_ms=1_000)  # its age keeps four digits for nine seconds
    async with served(lambda: aged) as extender:
        whole, bare = await get(extender.port, path), await get(extender.port, path, "HEAD")

    length = b"Content-Length: %d\r\n" % len(whole.body)
    assert length in whole.head
    assert length in bare.head
    assert (bare.status, bare.body) == (200, b"")


def test_a_stopping_replica_is_not_ready() -> None:
    extender = Extender(look, list[DecisionEntry]().append, Weights(), lambda: NOON)

    reply = routed(extender, lambda: True)(Request("GET", "/readyz", b"", 0.0))

    assert isinstance(reply, Reply)
    assert (reply.status, reply.body) == (503, b"this replica is leaving\n")


# --- the examples that users have -------------------------------------------------------------


async def curled(command: str) -> Received:
    done = await asyncio.to_thread(
        subprocess.run, shlex.split(command), capture_output=True, check=True, timeout=60
    )
    return Received(200, b"", done.stdout)


async def test_the_curl_example_of_the_documents_works_as_written() -> None:
    pod = '{"metadata": {"annotations": {"joulie.io/workload-class": "performance"}}}'
    nodes = '[{"metadata": {"name": "n0"}}, {"metadata": {"name": "n1"}}]'
    async with served(look) as extender:
        reply = await curled(
            f"""curl -sf -X POST \
              http://localhost:{extender.port}/filter \
              -H 'Content-Type: application/json' \
              -d '{{"pod": {pod}, "nodes": {{"items": {nodes}}}}}'"""
        )

    told: Any = reply.json()
    assert [item["metadata"]["name"] for item in told["Nodes"]["items"]] == ["n0"]
    assert list(told["FailedAndUnresolvableNodes"]) == ["n1"]


async def test_curl_may_ask_first_whether_a_large_body_is_welcome() -> None:
    names = json.dumps([f"node-{number}" for number in range(500)])
    async with served(look) as extender:
        reply = await curled(
            f"""curl -sf -H 'Expect: 100-continue' \
              -H 'Content-Type: application/json' http://localhost:{extender.port}/prioritize \
              -d '{{"pod": {{}}, "nodenames": {names}}}'"""
        )

    assert len(json.loads(reply.body)) == 500


async def test_one_connection_serves_many_calls() -> None:
    async with served(look) as extender:
        client = Client("127.0.0.1", extender.port)
        for verb in ("filter", "prioritize", "filter", "prioritize"):
            await client.post(verb, BODY, 20)
        await client.close()

    assert client.dialled == 1
