"""/gpu over HTTP, as kube-scheduler meets it: the article's pod, and what happens at its edges."""

import json
from typing import Any

import pytest

from extender_kit import PATIENT, post, served
from gpu_kit import A100, MB, a_card, a_claim, twin_columns_of
from joulie_bus.events import FallbackAnswered, FilterDecided, PreemptDecided, PrioritizeDecided
from joulie_extender.answering.fallback_policy import FallbackPolicy
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import again
from joulie_extender.gpu.fit import WANTS_CARDS
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.view.view import ViewSnapshot
from kube_scheduler import KubeScheduler, Node, Victim, a_pod

pytestmark = pytest.mark.anyio
NODES = ["n0", "n1", "n2"]
CARDS = {
    "a": a_card("n0", claims={"victim": a_claim(), "other": a_claim(0)}),
    "b": a_card("n1", claims={"v1": a_claim(node="n1")}),
    "c": a_card("n2", model="NVIDIA A10"),
}


def article(**spec: Any) -> dict[str, Any]:
    pod = a_pod("training-job-resnet50", gpus=1, **spec)
    pod["metadata"]["annotations"] = {
        "gpu-extender.mle.com/model": A100,
        "gpu-extender.mle.com/vram-mb": "30000",
    }
    return pod


def look(cards: Any, names: list[str] = NODES) -> Any:
    snapshot = ViewSnapshot(7, twin_columns_of(cards, names), 3)
    return lambda: snapshot


async def asked(verb: str, body: object, cards: Any = CARDS) -> Any:
    async with served(look(cards)) as extender:
        reply = await post(extender.port, f"/gpu/{verb}", json.dumps(body).encode())
    assert reply.status == 200, reply.body
    return reply.json()


async def test_the_articles_own_pod_is_filtered_and_scored_as_it_says() -> None:
    free = {"a": a_card("n0", used_mb=8192), "b": a_card("n1"), "c": a_card("n2", used_mb=20_000)}
    args = {"Pod": article(), "Nodes": None, "NodeNames": NODES}

    assert await asked("filter", args, free) == {
        "Nodes": None,
        "NodeNames": ["n0", "n1"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"n2": WANTS_CARDS},
        "Error": "",
    }
    assert await asked("prioritize", args, free) == [
        {"Host": "n0", "Score": 2},
        {"Host": "n1", "Score": 0},
        {"Host": "n2", "Score": 4},
    ]


async def test_the_articles_whole_nodes_come_back_as_they_were_sent() -> None:
    """Its server reads `Nodes.Items`; `nodeCacheCapable` is not set then."""
    items = [{"metadata": {"name": name, "labels": {"own": name}}} for name in NODES]
    reply = await asked(
        "filter",
        {"Pod": article(), "Nodes": {"items": items}, "NodeNames": None},
        {"a": a_card("n0"), "b": a_card("n1", used_mb=MB)},
    )

    assert reply["Nodes"]["items"] == items[:1]
    assert set(reply["FailedAndUnresolvableNodes"]) == {"n1", "n2"}


@pytest.mark.parametrize("prefix", ["", "/energy", "/gpu"])
async def test_the_path_says_which_rules_are_asked_for(prefix: str) -> None:
    pod = article()
    pod["metadata"]["annotations"]["joulie.io/workload-class"] = "performance"
    args = {"Pod": pod, "Nodes": None, "NodeNames": NODES}
    async with served(look(CARDS)) as extender:
        reply = await post(extender.port, f"{prefix}/filter", json.dumps(args).encode())
        entry = extender.recorded[-1]

    refused = reply.json()["FailedAndUnresolvableNodes"]  # type: ignore[index]
    assert list(refused) == ([] if prefix == "/energy" else NODES)
    assert isinstance(entry, FilterDecided)
    assert entry.duty == {"": "all", "/energy": "energy", "/gpu": "gpu"}[prefix]


async def test_edge_case_1_outage_cards_are_refused_and_energy_is_not() -> None:
    """`ignorable: false` for cards: not given out blindly, and the pod waits with a reason."""
    body = json.dumps({"Pod": article(), "Nodes": None, "NodeNames": NODES}).encode()
    async with served(look({}), is_ready=lambda: False, fallback_policy=PATIENT) as extender:
        gpu = (await post(extender.port, "/gpu/filter", body)).json()
        energy = (await post(extender.port, "/energy/filter", body)).json()
        entry = extender.recorded[0]

    assert isinstance(gpu, dict)
    assert isinstance(energy, dict)
    assert gpu["Error"].startswith("the GPU cards cannot be looked at right now")
    assert (energy["Error"], energy["NodeNames"]) == ("", NODES)
    assert isinstance(entry, FallbackAnswered)
    assert (entry.why, entry.answer) == ("not-ready", "closed")


@pytest.mark.parametrize(
    ("ignorable", "node"), [(False, None), (True, "n0")], ids=["it waits", "it goes anywhere"]
)
async def test_edge_case_1_outage_without_any_extender_ignorable_decides(
    ignorable: bool, node: str | None
) -> None:
    async with served(look({})) as extender:
        block = extender.block(prefix="/gpu", ignorable=ignorable)

    attempt = await KubeScheduler({"n0": Node()}, [block]).attempt(article())

    assert (attempt.node, attempt.is_error) == (node, not ignorable)


async def test_cards_may_be_set_to_fail_open() -> None:
    body = json.dumps({"Pod": article(), "Nodes": None, "NodeNames": NODES}).encode()
    late = FallbackPolicy(gpu_fails="open", deadline_s=-1.0)
    async with served(look({}), fallback_policy=late) as extender:
        reply = (await post(extender.port, "/gpu/filter", body)).json()

    assert isinstance(reply, dict)
    assert reply["NodeNames"] == NODES


async def test_edge_case_3_preemption_keeps_nodes_where_the_victims_cards_make_room() -> None:
    victims = {
        "n0": {"Pods": [{"UID": "victim"}], "NumPDBViolations": 1},
        "n1": {"Pods": [{"UID": "v1"}, {"UID": "v2"}]},
        "n2": {"Pods": [{"UID": "v3"}]},
    }
    reply = await asked("preempt", {"Pod": article(), "NodeNameToMetaVictims": victims})

    assert reply == {
        "NodeNameToMetaVictims": {
            "n1": {"Pods": [{"UID": "v1"}, {"UID": "v2"}], "NumPDBViolations": 0}
        }
    }


async def test_edge_case_3_no_pod_is_evicted_where_no_card_would_be_free() -> None:
    """And the answers are the same during preemption as before it."""
    nodes = {name: Node(cpu=1, pods=[Victim(f"low-{name}")]) for name in NODES}
    async with served(look({"c": CARDS["c"]})) as extender:
        block = extender.block(prefix="/gpu")
        scheduler = KubeScheduler(nodes, [block])
        attempts = await scheduler.settle(article(priority=10))
        await block.client.close()

    assert scheduler.evicted == []
    assert attempts[-1].message.endswith("preemption: no candidate node for preemption")


async def test_edge_case_3_the_holder_of_the_card_is_evicted_and_the_pod_gets_it() -> None:
    holders = {"n0": "victim", "n1": "v1", "n2": "v3"}
    nodes = {name: Node(cpu=1, pods=[Victim(uid)]) for name, uid in holders.items()}
    all_twin_columns = [look(CARDS)(), look({**CARDS, "b": a_card("n1")})()]
    async with served(lambda: all_twin_columns[bool(scheduler.evicted)]) as extender:
        block = extender.block(prefix="/gpu")
        scheduler = KubeScheduler(nodes, [block])
        attempts = await scheduler.settle(article(priority=10))
        await block.client.close()

    assert scheduler.evicted == ["v1"]
    assert [attempt.node for attempt in attempts] == [None, "n1"]


async def test_edge_case_3_answers_are_the_same_during_preemption_as_before_it() -> None:
    args = {"Pod": article(), "Nodes": None, "NodeNames": NODES}
    threat = {"Pod": article(), "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v1"}]}}}
    async with served(look(CARDS)) as extender:

        async def answer(verb: str, body: object) -> object:
            return (await post(extender.port, f"/gpu/{verb}", json.dumps(body).encode())).json()

        before = [await answer(verb, args) for verb in ("filter", "prioritize")]
        threats = [await answer("preempt", threat) for _ in range(2)]
        during = [await answer(verb, args) for verb in ("filter", "prioritize")]

    assert during == before
    assert threats[0] == threats[1]


async def test_a_refused_pod_rests_with_one_reason() -> None:
    nodes = {f"n{number}": Node() for number in range(300)}
    async with served(look(CARDS, list(nodes))) as extender:
        block = extender.block(prefix="/gpu")
        attempts = await KubeScheduler(nodes, [block]).settle(article())
        await block.client.close()

    assert len(attempts) == 2
    assert WANTS_CARDS in attempts[-1].message


async def test_every_recorded_answer_can_be_given_again() -> None:
    args = {"Pod": article(), "Nodes": None, "NodeNames": NODES}
    threat = {"Pod": article(), "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v1"}]}}}
    twin_columns: TwinColumns = look(CARDS)().twin_columns
    async with served(look(CARDS)) as extender:
        for path in ("/filter", "/prioritize", "/gpu/filter", "/gpu/prioritize"):
            await post(extender.port, path, json.dumps(args).encode())
        for path in ("/preempt", "/gpu/preempt"):
            await post(extender.port, path, json.dumps(threat).encode())

    answers = [
        entry
        for entry in extender.recorded
        if isinstance(entry, FilterDecided | PrioritizeDecided | PreemptDecided)
    ]
    assert len(answers) == 6
    assert [again(answer, twin_columns, Weights()) for answer in answers] == answers


async def test_bind_without_a_binder_is_an_error() -> None:
    args = {"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n0"}

    assert "EXTENDER_BINDS is empty" in (await asked("bind", args))["Error"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"PodName":"p","Node":"n"}', b'{"Node":5}'])
async def test_a_binding_that_kube_scheduler_never_sends_is_refused(body: bytes) -> None:
    async with served(look(CARDS)) as extender:
        assert (await post(extender.port, "/gpu/bind", body)).status == 400


@pytest.mark.parametrize("name", ["p?dryRun=All&x=", "../../nodes/n0", "p/eviction", "p%2Fbinding"])
async def test_a_binding_whose_name_leads_elsewhere_is_refused_and_never_logged(name: str) -> None:
    args = {"PodName": name, "PodNamespace": "d", "PodUID": "u", "Node": "n0"}
    async with served(look(CARDS)) as extender:
        reply = await post(extender.port, "/bind", json.dumps(args).encode())

        assert (reply.status, extender.recorded) == (400, [])
