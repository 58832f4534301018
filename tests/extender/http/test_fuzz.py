"""Every request gets a reply: none is a 5xx, and none hangs."""

import asyncio
import json
import resource
import threading
from collections.abc import Generator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import negative_data_rejection

from extender_kit import PATIENCE_S, QUICK, Received, performing, post, saving, served, snapshot_of
from joulie_extender.verbs.openapi import DOCUMENT
from kube_scheduler import a_pod

pytestmark = pytest.mark.long

SNAPSHOT = snapshot_of(*(performing(f"n{at}", at) for at in range(5)), saving("n5", 5))
VERBS = ("filter", "prioritize", "preempt")
LARGE = QUICK._replace(body=10_000_000)


class Running:
    """An extender on a loop of its own, for tests that know none."""

    def __init__(self) -> None:
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._up, self._end = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        async with served(lambda: SNAPSHOT, limits=LARGE) as extender:
            self.port = extender.port
            self._up.set()
            await self._end.wait()

    def start(self) -> None:
        self._thread.start()
        assert self._up.wait(PATIENCE_S)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(PATIENCE_S)

    def post(self, path: str, body: bytes) -> Received:
        future = asyncio.run_coroutine_threadsafe(post(self.port, path, body), self._loop)
        return future.result(PATIENCE_S)


@pytest.fixture(scope="module")
def running() -> Generator[Running, None, None]:
    found = Running()
    found.start()
    yield found
    found.stop()


nothing = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
anything = st.recursive(
    nothing, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
names = st.lists(st.sampled_from([f"n{at}" for at in range(6)]) | st.text(), max_size=8)
strangers = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,9}[a-z0-9])?(\.[a-z0-9]+)?", fullmatch=True)
quantities = st.sampled_from(["1", "500m", "1Gi", "129e6", "-1", "lots", "", "1e99"])
pods = st.builds(
    lambda annotations, cpu, spec: {
        "metadata": {"name": "p", "uid": "u", "annotations": annotations},
        "spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}], **spec},
    },
    st.none() | st.dictionaries(st.text(), st.text(), max_size=3),
    quantities | anything,
    st.dictionaries(st.sampled_from(["priority", "affinity", "nodeSelector"]), anything),
)
nodes = st.builds(lambda found: {"items": [{"metadata": {"name": n}} for n in found]}, names)
victims = st.dictionaries(
    st.sampled_from(["n0", "n5", "ghost"]),
    st.none() | st.fixed_dictionaries({"Pods": st.none() | st.lists(anything, max_size=3)}),
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "Pod": pods | anything,
        "pod": pods,
        "Nodes": st.none() | nodes | anything,
        "NodeNames": st.none() | names | anything,
        "nodenames": names,
        "NodeNameToVictims": st.none() | victims | anything,
        "NodeNameToMetaVictims": st.none() | victims | anything,
    },
)
CALM = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
SLOW = [*CALM, HealthCheck.filter_too_much]
calm = settings(deadline=None, max_examples=50, suppress_health_check=CALM)


def check(reply: Received) -> Any:
    assert reply.status in (200, 400), reply
    told = json.loads(reply.body)
    assert told is not None
    assert reply.status == 200 or told["error"]
    return told


@calm
@given(st.sampled_from(VERBS), bodies)
def test_any_json_is_answered_or_refused_with_a_reason(
    running: Running, verb: str, body: dict[str, Any]
) -> None:
    check(running.post(f"/{verb}", json.dumps(body).encode()))


@calm
@given(st.sampled_from(VERBS), st.binary(max_size=200))
def test_any_bytes_are_refused_with_a_reason(running: Running, verb: str, body: bytes) -> None:
    assert "error" in check(running.post(f"/{verb}", body)) or body.strip() == b"{}"


@calm
@given(st.sampled_from(VERBS), st.data())
def test_a_body_that_is_cut_or_bent_anywhere_is_refused_or_answered(
    running: Running, verb: str, data: st.DataObject
) -> None:
    meta = {"n0": {"Pods": [{"UID": "v"}], "NumPDBViolations": 0}}
    whole = json.dumps(
        {"Pod": a_pod(), "NodeNames": ["n0", "n1", "n5"], "NodeNameToMetaVictims": meta},
        separators=(",", ":"),
    ).encode()
    at = data.draw(st.integers(0, len(whole) - 1))
    bent = bytearray(whole)
    bent[at] = data.draw(st.integers(0, 255))

    check(running.post(f"/{verb}", whole))
    check(running.post(f"/{verb}", bytes(bent)))
    check(running.post(f"/{verb}", whole[:at]))


@calm
@given(st.lists(st.sampled_from([f"n{at}" for at in range(6)]) | strangers, max_size=8))
def test_every_name_is_in_exactly_one_list_and_every_host_scored_once(
    running: Running, asked: list[str]
) -> None:
    body = json.dumps({"Pod": a_pod(workload="performance"), "NodeNames": asked}).encode()
    filtered = check(running.post("/filter", body))
    scored = check(running.post("/prioritize", body))

    refused = filtered["FailedAndUnresolvableNodes"]
    assert filtered["NodeNames"] == [name for name in asked if name not in refused]
    assert set(refused) <= {"n5"}
    assert [each["Host"] for each in scored] == list(dict.fromkeys(asked))


schema = schemathesis.openapi.from_dict(json.loads(DOCUMENT))


@pytest.mark.slow
@schema.parametrize()  # pyright: ignore[reportUntypedFunctionDecorator]
@settings(deadline=None, max_examples=8, suppress_health_check=SLOW)
def test_the_openapi_document_matches_the_replies(
    case: schemathesis.Case[Any], running: Running
) -> None:
    # What breaks the document in a place that nobody reads is answered, as Go would answer it.
    case.call_and_validate(
        base_url=f"http://127.0.0.1:{running.port}",
        timeout=PATIENCE_S,
        excluded_checks=[negative_data_rejection],
    )


def test_a_thousand_mistakes_leave_nothing_behind(running: Running) -> None:
    def mistakes(count: int) -> int:
        for number in range(count):
            pod = {"metadata": {"uid": f"u{number}", "name": "x" * 100}, "spec": None}
            running.post("/filter", json.dumps({"Pod": pod, "NodeNames": ["n0"]}).encode())
            running.post("/prioritize", b'{"Pod":{},"NodeNames":["' + b"x" * 2000 + b'"]')
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = mistakes(200)

    assert mistakes(800) - before < 30_000  # KiB
