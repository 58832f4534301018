"""The stand-in does what kube-scheduler 1.34 was seen to do.

docs/contributing/contract.md counts the ways.
"""

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

import go_http
from go_http import CallFailed, Client
from joulie_bus.runtime.ports import free_port
from kube_scheduler import (
    Block,
    ExtenderFailed,
    Filtered,
    KubeScheduler,
    Node,
    SchedulerPanics,
    Victim,
    a_pod,
    event_text,
)

pytestmark = pytest.mark.anyio
POD = a_pod()
Say = Callable[[str, dict[str, Any]], bytes]


def raw(body: bytes, status: str = "200 OK", *fields: str) -> bytes:
    lines = "".join(f"{field}\r\n" for field in fields)
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode() + body


class Peer:
    """An extender that says what the test makes it say, byte for byte."""

    def __init__(self, say: Say, port: int) -> None:
        self._say = say
        self.port = port
        self.requests: list[bytes] = []
        self.clients: list[Client] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(length)
                self.requests.append(head + body)
                said = self._say(head.split()[1].decode(), json.loads(body or b"{}"))
                writer.write(said)
                if b"Connection: close" in said or b"\r\n\r\n" not in said:
                    break
        writer.close()

    @property
    def verbs(self) -> list[str]:
        return [request.split()[1].decode().strip("/") for request in self.requests]

    def block(self, prefix: str = "", **more: Any) -> Block:
        self.clients.append(Client("127.0.0.1", self.port, prefix))
        return Block(self.clients[-1], **more)


@contextlib.asynccontextmanager
async def peer(say: Say | bytes) -> AsyncGenerator[Peer, None]:
    said = say
    answer: Say = (lambda _path, _args: raw(said)) if isinstance(said, bytes) else said
    answering = Peer(answer, free_port())
    server = await asyncio.start_server(answering.serve, "127.0.0.1", answering.port)
    try:
        yield answering
    finally:
        for client in answering.clients:
            await client.close()
        server.close()


def nodes(count: int = 4, **more: Any) -> dict[str, Node]:
    return {f"n{number}": Node(**more) for number in range(count)}


async def filtered(reply: bytes, **more: Any) -> Filtered:
    async with peer(reply) as extender:
        block = extender.block(**more)
        found = await KubeScheduler(nodes(), [block]).filter(POD, ["n0", "n1", "n2"])
    return found


async def scores(reply: bytes, **more: Any) -> tuple[dict[str, int], list[str]]:
    async with peer(reply) as extender:
        block = extender.block(**more)
        scheduler = KubeScheduler(nodes(), [block])
        totals = await scheduler.prioritize(POD, ["n0", "n1", "n2"])
    return totals, scheduler.failed_prioritize


# --- what is sent -----------------------------------------------------------------------------


async def test_the_head_is_gos_and_the_keys_are_capital_with_nulls() -> None:
    async with peer(b'{"NodeNames":["n0"]}') as extender:
        block = extender.block("/x/")
        await KubeScheduler(nodes(2), [block]).filter(POD, ["n0", "n1"])

    head, _, body = extender.requests[0].partition(b"\r\n\r\n")
    assert [line.partition(b":")[0] for line in head.split(b"\r\n")] == [
        *(b"POST /x/filter HTTP/1.1", b"Host", b"User-Agent"),
        *(b"Content-Length", b"Content-Type", b"Accept-Encoding"),
    ]
    assert body.startswith(b'{"Pod":{"metadata":{')
    assert body.endswith(b',"Nodes":null,"NodeNames":["n0","n1"]}')


async def test_whole_nodes_are_a_list_object_and_names_are_null_then() -> None:
    async with peer(b'{"Nodes":{"items":[]}}') as extender:
        block = extender.block(node_cache_capable=False)
        await KubeScheduler(nodes(2), [block]).filter(POD, ["n0"])

    body = json.loads(extender.requests[0].partition(b"\r\n\r\n")[2])
    assert (list(body), body["NodeNames"]) == (["Pod", "Nodes", "NodeNames"], None)
    assert [item["metadata"]["name"] for item in body["Nodes"]["items"]] == ["n0"]


# --- filter -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "passed"),
    [
        (b'{"nodenames":["n1"]}', ["n1"]),
        (b'{"NodeNames":["n1"],"nodenames":["n2"]}', ["n2"]),
        (b"null", []),
        (b"{}", []),
        (b'{"Nodes":null,"NodeNames":null}', []),
        (b'{"Nodes":{"items":[{"metadata":{"name":"n2"}}]}}', ["n2"]),
        (b'{"NodeNames":["n1"],"FailedNodes":null,"Error":null} trailing', ["n1"]),
    ],
    ids=["lower", "last wins", "null", "nothing", "both null", "in Nodes", "nulls, trailing"],
)
async def test_a_filter_reply_is_read_as_go_reads_it(reply: bytes, passed: list[str]) -> None:
    assert (await filtered(reply)).passed == passed


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (b'{"NodeNames":["ghost"]}', "which is not found"),
        (b"", "EOF"),
        (b'{"NodeNames":["n1"', "unexpected EOF"),
        (b"<html>", "invalid character '<'"),
        (b"\xef\xbb\xbf{}", "invalid character"),
        (b'{"NodeNames":["n1",null]}', "not found"),
        (b'{"NodeNames":[1]}', "of type string"),
        (b'{"FailedNodes":["n0"]}', "of type map"),
        (b'{"FailedNodes":{"n0":5}}', "of type string"),
        (b'{"Error":5}', "of type string"),
        (b'{"NodeNames":["n1"],"Error":"no"}', "no"),
    ],
)
async def test_a_filter_reply_that_go_cannot_read_fails_the_call(reply: bytes, told: str) -> None:
    with pytest.raises(ExtenderFailed, match=told):
        await filtered(reply)


async def test_a_full_request_is_not_answered_by_names() -> None:
    assert (await filtered(b'{"NodeNames":["n1"]}', node_cache_capable=False)).passed == []


@pytest.mark.parametrize("is_by_names", [True, False])
async def test_a_node_that_does_not_exist_in_nodes_would_be_bound_to(is_by_names: bool) -> None:
    ghost = b'{"Nodes":{"items":[{"metadata":{"name":"ghost"}}]}}'

    with pytest.raises(AssertionError, match="bound to"):
        await filtered(ghost, node_cache_capable=is_by_names)


@pytest.mark.parametrize("status", ["201 Created", "204 No Content", "500 Oops", "503 Later"])
async def test_only_200_is_a_success(status: str) -> None:
    async with peer(lambda _p, _a: raw(b'{"NodeNames":["n0"]}', status)) as extender:
        with pytest.raises(CallFailed, match=f"code {status[:3]}"):
            await extender.block().client.post("filter", b"{}", 5)


@pytest.mark.parametrize(
    "reply",
    [
        raw(b"{}", "500 Oops"),
        raw(b'{"Error":"no"}'),
        raw(b'{"NodeNames":["ghost"]}'),
        raw(b"<"),
        raw(b""),
        b"",
    ],
    ids=["500", "error", "ghost", "no json", "empty", "hung up"],
)
async def test_a_failure_of_an_ignorable_extender_keeps_all_nodes_and_its_scores(
    reply: bytes,
) -> None:
    def say(path: str, _: dict[str, Any]) -> bytes:
        return reply if path == "/filter" else raw(b'[{"Host":"n1","Score":9}]')

    async with peer(say) as extender:
        attempt = await KubeScheduler(nodes(3), [extender.block(ignorable=True)]).attempt(POD)

    assert (attempt.node, attempt.totals) == ("n1", {"n0": 0, "n1": 90, "n2": 0})


@pytest.mark.parametrize("reply", [b"null", b"{}"])
async def test_an_empty_reply_is_no_failure_that_could_be_ignored(reply: bytes) -> None:
    assert (await filtered(reply, ignorable=True)).passed == []


async def test_of_two_maps_unresolvable_wins_and_of_map_and_list_the_list() -> None:
    found = await filtered(
        b'{"NodeNames":["n1"],"FailedNodes":{"n0":"A","n1":"A"},'
        b'"FailedAndUnresolvableNodes":{"n0":"B"}}'
    )

    assert (found.passed, found.unresolvable) == (["n1"], {"n0": "B"})


async def test_reasons_are_counted_unchecked() -> None:
    async with peer(b'{"NodeNames":[],"FailedNodes":{"n0":"A","g1":"A","g2":"A"}}') as extender:
        attempt = await KubeScheduler(nodes(1), [extender.block()]).attempt(POD)

    assert "0/1 nodes are available: 3 A." in attempt.message


def test_a_percent_sign_is_spoiled_in_the_event() -> None:
    assert event_text("power 95% used") == "power 95%!u(MISSING)sed"


async def test_gzip_is_unpacked_only_if_it_is_announced() -> None:
    zipped = gzip.compress(b'{"NodeNames":["n0"]}')
    told = raw(zipped, "200 OK", "Content-Encoding: gzip")
    async with peer(lambda path, _: told if path == "/a/filter" else raw(zipped)) as extender:
        announced = await extender.block("/a").client.post("filter", b"{}", 5)

        assert announced == b'{"NodeNames":["n0"]}'
        with pytest.raises(ExtenderFailed):
            await KubeScheduler(nodes(), [extender.block("/b")]).filter(POD, ["n0"])


@pytest.mark.parametrize(
    ("status", "method"),
    [("307 T", b"POST"), ("308 P", b"POST"), ("302 Found", b"GET")],
)
async def test_redirects_are_followed_with_the_body_only_by_307_and_308(
    status: str, method: bytes
) -> None:
    def say(path: str, _: dict[str, Any]) -> bytes:
        there = "Location: /there"
        return raw(b"", status, there) if path == "/filter" else raw(b"{}")

    async with peer(say) as extender:
        client = extender.block().client
        await client.post("filter", b'{"a":1}', 5)

    last = extender.requests[-1]
    assert last.startswith(method + b" /there ")
    assert last.endswith(b'{"a":1}') == (method == b"POST")


# --- prioritize -------------------------------------------------------------------------------


async def test_a_point_counts_ten_times_its_weight() -> None:
    totals, _ = await scores(b'[{"Host":"n1","Score":9},{"Host":"n2","Score":1}]', weight=5)

    assert totals["n1"] - totals["n2"] == 400


async def test_nothing_is_clamped() -> None:
    totals, _ = await scores(b'[{"Host":"n1","Score":100},{"Host":"n2","Score":-50}]')

    assert totals == {"n0": 0, "n1": 1000, "n2": -500}


@pytest.mark.parametrize("score", ["5.0", "5.5", "1e1", '"5"', "true", "NaN", str(2**63)])
async def test_a_score_that_is_no_int64_loses_all(score: str) -> None:
    reply = '[{"Host":"n1","Score":3},{"Host":"n2","Score":' + score + "}]"
    totals, failed = await scores(reply.encode())

    assert (totals, len(failed)) == ({"n0": 0, "n1": 0, "n2": 0}, 1)


async def test_a_host_named_twice_gets_the_sum() -> None:
    totals, _ = await scores(b'[{"Host":"n1","Score":3},{"Host":"n1","Score":4}]', weight=5)

    assert totals["n1"] == 350


async def test_what_is_no_candidate_or_no_score_counts_nothing() -> None:
    reply = b'[null,{"Host":"n1","Score":4},{"Host":"ghost","Score":9},{"Host":"n2"}]'
    totals, failed = await scores(reply, weight=5)

    assert (totals, failed) == ({"n0": 0, "n1": 200, "n2": 0}, [])


@pytest.mark.parametrize(
    ("reply", "fails"),
    [
        (b"{}", True),
        (b'{"HostPriorityList":[]}', True),
        (b"", True),
        (b"null", False),
        (b"[]", False),
    ],
)
async def test_a_failed_prioritize_costs_the_scores_alone(reply: bytes, fails: bool) -> None:
    totals, failed = await scores(reply)

    assert (set(totals.values()), bool(failed)) == ({0}, fails)


async def test_a_prioritize_that_hangs_costs_one_timeout() -> None:
    async with peer(lambda path, _: raw(b'{"NodeNames":["n0","n1"]}') if "f" in path else b"") as x:
        block = x.block(timeout_s=0.2)
        scheduler = KubeScheduler(nodes(2), [block])
        attempt = await scheduler.attempt(POD)

    assert attempt.node in ("n0", "n1")
    assert block.calls == {"filter": 1, "prioritize": 1}


# --- one attempt ------------------------------------------------------------------------------


def passes_all(path: str, args: dict[str, Any]) -> bytes:
    if "prioritize" in path:
        return raw(b"[]")
    if "preempt" in path:
        return raw(json.dumps({"NodeNameToMetaVictims": args["NodeNameToMetaVictims"]}).encode())
    return raw(json.dumps({"NodeNames": args["NodeNames"]}).encode())


def refuses_all(path: str, args: dict[str, Any]) -> bytes:
    if "preempt" in path:
        return raw(b'{"NodeNameToMetaVictims":{}}')
    refused = dict.fromkeys(args["NodeNames"], "A")
    return raw(json.dumps({"FailedAndUnresolvableNodes": refused}).encode())


async def test_a_single_feasible_node_is_not_prioritized() -> None:
    async with peer(b'{"NodeNames":["n2"]}') as extender:
        attempt = await KubeScheduler(nodes(), [extender.block()]).attempt(POD)

    assert (attempt.node, extender.verbs) == ("n2", ["filter"])


async def test_filters_come_one_after_another_and_scores_at_once() -> None:
    together: list[str] = []
    async with peer(b'{"NodeNames":["n1","n2"]}') as first, peer(passes_all) as second:
        one, two = first.block(prioritizes=False), second.block()
        third = second.block("/b", filters=False)
        await KubeScheduler(nodes(), [one, two, third]).attempt(POD)
        together = second.verbs

    sent = json.loads(second.requests[0].partition(b"\r\n\r\n")[2])
    assert sent["NodeNames"] == ["n1", "n2"]
    assert sorted(together[1:]) == ["b/prioritize", "prioritize"]


async def test_an_ignorable_extender_is_asked_last() -> None:
    order: list[str] = []

    def say(path: str, args: dict[str, Any]) -> bytes:
        order.append(path)
        return passes_all(path, args)

    async with peer(say) as extender:
        blocks = [
            extender.block("/a", ignorable=True, prioritizes=False),
            extender.block("/b", prioritizes=False),
        ]
        await KubeScheduler(nodes(), blocks).attempt(POD)

    assert order == ["/b/filter", "/a/filter"]


async def test_without_feasible_nodes_no_extender_is_called() -> None:
    async with peer(refuses_all) as first, peer(passes_all) as second:
        await KubeScheduler(nodes(cpu=0), [first.block()]).attempt(POD)
        assert first.requests == []
        await KubeScheduler(nodes(), [first.block(), second.block()]).attempt(POD)

    assert (len(first.requests), second.requests) == (1, [])


async def test_a_pod_without_the_managed_resource_is_sent_to_no_extender() -> None:
    managed = ("nvidia.com/gpu",)
    async with peer(passes_all) as extender:
        block = extender.block(managed=managed)
        await KubeScheduler(nodes(), [block]).attempt(a_pod("plain"))
        assert extender.requests == []
        await KubeScheduler(nodes(), [block]).attempt(a_pod("asks for none", gpus=0))

    assert extender.verbs == ["filter", "prioritize"]


@pytest.mark.parametrize(
    ("count", "sent"),
    [
        *((99, 99), (100, 100), (300, 144), (500, 230), (1000, 420), (2000, 680), (5000, 500)),
        *((10_000, 500), (15_000, 750)),
    ],
)
def test_a_large_cluster_is_sampled(count: int, sent: int) -> None:
    assert KubeScheduler({}, []).sample_size(count) == sent


async def test_the_window_moves_on_by_its_size() -> None:
    asked: set[str] = set()

    def say(path: str, args: dict[str, Any]) -> bytes:
        asked.update(args["NodeNames"])
        return refuses_all(path, args)

    async with peer(say) as extender:
        scheduler = KubeScheduler(nodes(300), [extender.block()])
        for _ in range(3):
            await scheduler.attempt(POD)

    assert len(asked) == 300


async def test_all_nodes_come_where_the_percentage_says_so() -> None:
    async with peer(refuses_all) as extender:
        await KubeScheduler(nodes(300), [extender.block()], percentage=100).attempt(POD)

    sent = json.loads(extender.requests[0].partition(b"\r\n\r\n")[2])
    assert len(sent["NodeNames"]) == 300


@pytest.mark.parametrize("first", [refuses_all("", {"NodeNames": ["n1"]}), raw(b'{"Error":"no"}')])
async def test_a_nominated_node_that_is_refused_costs_a_second_call(first: bytes) -> None:
    async with peer(lambda p, a: first if a["NodeNames"] == ["n1"] else passes_all(p, a)) as x:
        scheduler = KubeScheduler(nodes(), [x.block()])
        scheduler.nominated["p"] = "n1"
        attempt = await scheduler.attempt(POD)

    assert (attempt.node is None, x.verbs) == (False, ["filter", "filter", "prioritize"])


# --- rejections that loop ---------------------------------------------------------------------


def refusing(reason: Callable[[int], str], count: list[int]) -> Say:
    def say(_: str, args: dict[str, Any]) -> bytes:
        count[0] += 1
        refused = {name: reason(at + count[0]) for at, name in enumerate(args["NodeNames"])}
        return raw(json.dumps({"FailedAndUnresolvableNodes": refused}).encode())

    return say


@pytest.mark.parametrize(
    ("reason", "calls"),
    [(lambda _: "always", 2), (lambda at: f"at {at} W", 30)],
    ids=["one text", "a number"],
)
async def test_a_text_that_changes_makes_the_pod_come_back_for_ever(
    reason: Callable[[int], str], calls: int
) -> None:
    async with peer(refusing(reason, [0])) as extender:
        await KubeScheduler(nodes(), [extender.block()]).settle(POD, attempts=30)

    assert len(extender.requests) == calls


@pytest.mark.parametrize(("texts", "loops"), [(1, False), (2, True)])
async def test_two_texts_loop_where_the_cluster_is_sampled(texts: int, loops: bool) -> None:
    def say(_: str, args: dict[str, Any]) -> bytes:
        refused = {n: f"{'AB'[int(n[1:]) % 7 % texts]}" for n in args["NodeNames"]}
        return raw(json.dumps({"FailedAndUnresolvableNodes": refused}).encode())

    async with peer(say) as extender:
        made = await KubeScheduler(nodes(300), [extender.block()]).settle(POD, attempts=8)

    assert (len(made) > 2) == loops


async def test_an_error_rests_for_a_real_back_off() -> None:
    async with peer(b'{"Error":"later"}') as extender:
        made = await KubeScheduler(nodes(), [extender.block()]).settle(POD)

    assert [(attempt.is_error, attempt.message) for attempt in made] == [(True, "later")]


# --- preempt ----------------------------------------------------------------------------------

HIGH = a_pod("high", cpu=4, priority=1000)


def occupied(count: int = 4) -> dict[str, Node]:
    return {f"n{n}": Node(cpu=4, pods=[Victim(f"v{n}", cpu=4)]) for n in range(count)}


async def threatened(reply: bytes | Say, **more: Any) -> tuple[KubeScheduler, str]:
    async with peer(reply) as extender:
        scheduler = KubeScheduler(occupied(), [extender.block(preempts=True, **more)])
        attempt = await scheduler.attempt(HIGH)
    return scheduler, attempt.message


@pytest.mark.parametrize(
    "reply",
    [
        b"{}",
        b"null",
        b'{"NodeNameToMetaVictims":{}}',
        b'{"NodeNameToVictims":{"n1":{"Pods":[{"metadata":{"uid":"v1"}}]}}}',
    ],
)
async def test_a_preempt_reply_without_candidates_evicts_no_pod(reply: bytes) -> None:
    scheduler, message = await threatened(reply)

    assert (scheduler.evicted, "no candidate node" in message) == ([], True)


@pytest.mark.parametrize(
    "reply",
    [b'{"NodeNameToMetaVictims":{"n1":null}}', b'{"NodeNameToMetaVictims":{"n1":{"Pods":[null]}}}'],
)
async def test_a_null_in_a_preempt_reply_ends_kube_scheduler(reply: bytes) -> None:
    with pytest.raises(SchedulerPanics):
        await threatened(reply, ignorable=True)


def meta(node: str, *uids: str) -> bytes:
    pods = [{"UID": uid} for uid in uids]
    return json.dumps({"NodeNameToMetaVictims": {node: {"Pods": pods}}}).encode()


@pytest.mark.parametrize("reply", [meta("ghost", "v1"), meta("n1", "nobody"), meta("n1", "v2")])
@pytest.mark.parametrize("ignorable", [True, False])
async def test_an_unknown_victim_fails_the_call(reply: bytes, ignorable: bool) -> None:
    scheduler, _ = await threatened(reply, ignorable=ignorable)

    assert len(scheduler.evicted) == (1 if ignorable else 0)


@pytest.mark.parametrize("ignorable", [True, False])
async def test_a_node_without_victims_is_dropped_or_fails_the_call(ignorable: bool) -> None:
    scheduler, message = await threatened(meta("n1"), ignorable=ignorable)

    expected = "no candidate node" if ignorable else "expected at least one victim"
    assert (scheduler.evicted, expected in message) == ([], True)


async def test_a_node_that_was_never_sent_is_emptied_if_the_reply_says_so() -> None:
    async with peer(meta("n0", "important")) as extender:
        machines = {**occupied(), "n0": Node(cpu=4, pods=[Victim("important", 4, 10**9)])}
        scheduler = KubeScheduler(machines, [extender.block(preempts=True)])
        await scheduler.attempt(HIGH)

    assert scheduler.evicted == ["important"]


async def test_the_second_extender_sees_what_the_first_left() -> None:
    def keeps_two(path: str, args: dict[str, Any]) -> bytes:
        kept = {name: args["NodeNameToMetaVictims"][name] for name in ("n1", "n2")}
        return raw(json.dumps({"NodeNameToMetaVictims": kept}).encode())

    async with peer(keeps_two) as first, peer(passes_all) as second:
        blocks = [first.block(preempts=True), second.block(preempts=True)]
        await KubeScheduler(occupied(), blocks).attempt(HIGH)

    sent = json.loads(second.requests[0].partition(b"\r\n\r\n")[2])
    assert list(sent["NodeNameToMetaVictims"]) == ["n1", "n2"]


@pytest.mark.parametrize(("preempts", "evicted"), [(False, 4), (True, 0)])
async def test_an_extender_that_refuses_without_a_preempt_verb_empties_the_cluster(
    preempts: bool, evicted: int
) -> None:
    async with peer(refuses_all) as extender:
        scheduler = KubeScheduler(occupied(), [extender.block(preempts=preempts)])
        await scheduler.settle(HIGH)

    assert len(scheduler.evicted) == evicted


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("FailedNodes", "expected at least one victim"),
        ("FailedAndUnresolvableNodes", "no candidate node"),
    ],
)
async def test_a_node_that_failed_is_a_candidate_and_an_unresolvable_one_is_not(
    place: str, text: str
) -> None:
    def say(_: str, args: dict[str, Any]) -> bytes:
        return raw(json.dumps({place: dict.fromkeys(args["NodeNames"], "A")}).encode())

    async with peer(say) as extender:
        attempt = await KubeScheduler(nodes(), [extender.block()]).attempt(a_pod(priority=9))

    assert text in attempt.message


# --- connections ------------------------------------------------------------------------------


async def test_a_close_with_connection_close_loses_no_call() -> None:
    closing = raw(b"{}", "200 OK", "Connection: close")
    async with peer(lambda _p, _a: closing) as extender:
        client = extender.block().client
        for _ in range(3):
            await client.post("filter", b"{}", 5)

    assert client.dialled == 3


async def test_a_close_without_connection_close_costs_a_call() -> None:
    answers = [raw(b"{}"), b""]
    async with peer(lambda _p, _a: answers.pop(0)) as extender:
        client = extender.block().client
        await client.post("filter", b"{}", 5)

        with pytest.raises(CallFailed):
            await client.post("filter", b"{}", 5)


async def test_an_idle_connection_is_dropped_after_90_s() -> None:
    async with peer(b"{}") as extender:
        client = extender.block().client
        await client.post("filter", b"{}", 5)
        client._idle_since -= go_http.IDLE_S + 1
        await client.post("filter", b"{}", 5)

    assert (client.dialled, go_http.IDLE_S) == (2, 90)


# --- bind -------------------------------------------------------------------------------------


@pytest.mark.parametrize("reply", [b"{}", b"null", b'{"Error":""}'])
async def test_a_bind_without_an_error_counts_as_bound_whatever_happened(reply: bytes) -> None:
    async with peer(reply) as extender:
        await extender.block().bind(POD, "n0")

    _, _, body = extender.requests[0].partition(b"\r\n\r\n")
    assert list(json.loads(body)) == ["PodName", "PodNamespace", "PodUID", "Node"]


@pytest.mark.parametrize("reply", [b'{"Error":"no card"}', b"", b"[]"])
async def test_a_failed_bind_replies_with_the_error(reply: bytes) -> None:
    async with peer(reply) as extender:
        with pytest.raises(ExtenderFailed):
            await extender.block().bind(POD, "n0")
