"""The API over a real socket: every query, and the errors."""

import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from bus_kit import NOON, ask, bound, eco, hardware, node_seen, pending
from console_kit import ConsoleHarness
from joulie.client.console import ConsoleClient
from joulie_answers.schema import requests
from joulie_answers.text.pod import pod_text
from joulie_bus.events import NodeGone, SettingsDeclared
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import DecisionContext, decide_prioritize
from joulie_projections.state.state import NodeState
from joulie_projections.twin.columns import TwinColumns

pytestmark = pytest.mark.anyio
Client = httpx2.AsyncClient
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]
TITLES = {400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 410: "Gone"}


async def get(browser: Client, path: str, **query: str | int) -> Any:
    answer = await browser.get(f"/v1/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def get_problem(browser: Client, path: str, **query: str | int) -> tuple[int, str]:
    answer = await browser.get(f"/v1/{path}", params=query)
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert set(problem) == {"type", "title", "status", "detail"}
    assert problem["status"] == answer.status_code
    assert problem["title"] == TITLES[answer.status_code]
    assert len(problem["detail"].split()) > 2, "the title again explains nothing"
    return answer.status_code, problem["detail"]


async def test_the_cluster_summary_has_counts_and_watts(
    browser: Client, scenario: ConsoleHarness
) -> None:
    found = await get(browser, "cluster")

    assert (found["position"], found["entries"]) == (scenario.view.position, scenario.entries)
    assert found["classes"] == {"performance": 1, "eco": 1, "draining": 1, "unknown": 0}
    assert (found["measured_w"], found["unmeasured"]) == (450.0, 1)
    assert found["capped_w"] == 600 + 360 + 400 + 5600
    assert (found["pods_running"], found["pods_pending"]) == (2, 1)
    assert (found["cards"], found["ambient_c"], found["it_w"]) == (1, 24.5, 1000.0)


async def test_stale_telemetry_is_a_warning(browser: Client) -> None:
    warnings = (await get(browser, "cluster"))["warnings"]

    assert [warning["part"] for warning in warnings] == ["telemetry"]
    assert "1 of 3 nodes have no fresh power reading" in warnings[0]["text"]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, ["n1", "n2", "n3"]),
        ({"order": "desc"}, ["n3", "n2", "n1"]),
        ({"class": "eco"}, ["n2"]),
        ({"rack": "r2"}, ["n2", "n3"]),
        ({"q": "3"}, ["n3"]),
        ({"sort": "measured", "order": "desc"}, ["n2", "n1", "n3"]),
        ({"sort": "measured"}, ["n1", "n2", "n3"]),
        ({"sort": "pods", "order": "desc"}, ["n1", "n3", "n2"]),
        ({"limit": 2}, ["n1", "n2"]),
        ({"limit": 2, "offset": 2}, ["n3"]),
    ],
    ids=str,
)
async def test_nodes_are_filtered_sorted_and_paged(
    browser: Client, query: dict[str, str | int], names: list[str]
) -> None:
    found = await get(browser, "nodes", **query)

    assert [node["name"] for node in found["items"]] == names


async def test_a_page_has_the_offset_of_the_next_one(browser: Client) -> None:
    first, last = (
        await get(browser, "nodes", limit=2),
        await get(browser, "nodes", limit=2, offset=2),
    )

    assert (first["next"], first["total"], last["next"]) == (2, 3, None)


async def test_a_node_has_its_readings_and_transitions(browser: Client) -> None:
    found = await get(browser, "nodes/n2")

    assert found["node"]["class"] == "eco"
    assert found["node"]["headroom"] == pytest.approx((360 - 300) / 360 * 100)
    assert [sample[1] for sample in found["samples"]] == [300.0]
    assert [move["to"] for move in found["transitions"]] == ["caps: CPU 60 %, GPU none", "eco"]


async def test_a_draining_node_shows_what_it_waits_for(browser: Client) -> None:
    found = await get(browser, "nodes/n3")

    assert found["machine"]["now"] == "draining"
    assert found["machine"]["following"] == ["performance", "eco"]
    assert found["machine"]["waits_for"] == "1 performance pod(s) still run here"
    assert [pod["name"] for pod in found["pods"]] == ["heavy"]
    assert [card["uuid"] for card in found["cards"]] == ["g1"]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, ["heavy", "runs", "waits"]),
        ({"phase": "pending"}, ["waits"]),
        ({"class": "performance"}, ["heavy"]),
        ({"node": "n1"}, ["runs"]),
        ({"q": "team/ru"}, ["runs"]),
        ({"q": "absent"}, []),
    ],
    ids=str,
)
async def test_pods_are_found(
    browser: Client, query: dict[str, str | int], names: list[str]
) -> None:
    found = await get(browser, "pods", **query)

    assert [pod["name"] for pod in found["items"]] == names


async def test_a_pod_is_explained(browser: Client) -> None:
    found = await get(browser, "pods/heavy")

    lines = dict(line.split(": ", 1) for line in found["explanation"])
    assert lines["class"] == "performance, general (rule: annotation)"
    assert lines["filter"] == (
        "1 of 3 nodes pass: the node is reserved for saving energy and the pod asks for "
        "performance: 1 eco (n2), 1 draining (n3)"
    )
    assert lines["best"].startswith("n1 scores")
    assert lines["outcome"].startswith("bound to n3*, our number ")
    assert found["attempt"]["entries"] == [4, 5]


async def test_the_command_prints_what_the_page_shows_about_a_pod(
    browser: Client, scenario: ConsoleHarness
) -> None:
    async with ConsoleClient(scenario.url) as console:
        text = pod_text(await console.pod("heavy", requests.Pod()))
    shown = (await get(browser, "pods/heavy"))["explanation"]

    for line in shown:
        label, _, words = line.partition(": ")
        assert f"\n  {label} " in text
        assert all(part in text for part in re.split("[:,] ", words)), words


async def test_an_earlier_state_of_a_pod_has_the_attempts_until_then(
    new_harness: NewHarness,
) -> None:
    async with new_harness() as harness, Client(base_url=harness.url) as browser:
        await harness.publish(node_seen("n1"), hardware("n1"), pending("web"))
        await harness.decide(ask("web"))
        await harness.publish(node_seen("n2"), hardware("n2"))
        await harness.decide(ask("web"))
        await harness.publish(bound("web", "n2"))
        harness.entries += 1  # its outcome
        await harness.filter(ask("other"))
        before, first, now = [
            await get(browser, "pods/web", **query) for query in ({"at": 3}, {"at": 5}, {})
        ]

    assert (before["attempt"], before["outcome"], before["decisions"]) == (None, None, [])
    assert "decisions: No decision about it is in the log." in before["explanation"]
    assert (first["attempt"]["number"], first["attempt"]["entries"]) == (1, [2, 3])
    assert (first["outcome"], len(first["decisions"])) == (None, 2)
    assert (now["attempt"]["number"], now["attempt"]["entries"]) == (2, [4, 5])
    assert now["outcome"]["node"] == "n2"


async def test_a_decision_with_unknown_settings_says_so_and_has_no_points(
    new_harness: NewHarness,
) -> None:
    nodes = {"n1": NodeState(ordinal=0, at=NOON), "n2": NodeState(ordinal=1, at=NOON)}
    moment = DecisionContext(TwinColumns.of(nodes, 0), 2, 0, NOON)
    scored = decide_prioritize(ask("web"), ["n1", "n2"], moment, Weights(cooling=0.3))
    later = SettingsDeclared(settings="later", code="joulie/999", values={"tide": 1.0})
    by_later = replace(scored, basis=replace(scored.basis, settings="later"))
    async with new_harness() as harness, Client(base_url=harness.url) as browser:
        await harness.publish(node_seen("n1"), node_seen("n2"))
        await harness.publish_decisions(later, scored, by_later)
        undeclared, declared = [await get(browser, f"decisions/{entry}") for entry in (2, 3)]
        pod = await get(browser, "pods/web")

    settings = scored.basis.settings
    assert undeclared["settings_unknown"] == f"the settings {settings} are not in the log"
    assert declared["settings_unknown"] == (
        "the settings later, of joulie/999, have values that this version does not know"
    )
    for found in (undeclared["candidates"], declared["candidates"], pod["attempt"]["scores"]):
        assert [each["terms"]["points"] for each in found] == [None, None]
    assert f"points: unknown: {declared['settings_unknown']}" in pod["explanation"]


async def test_cards_have_their_claims(browser: Client) -> None:
    (found,) = (await get(browser, "gpus"))["items"]

    assert (found["uuid"], found["node"], found["allocated_mb"]) == ("g1", "n3", 40_000)
    assert [claim["pod_uid"] for claim in found["claims"]] == ["heavy"]


@pytest.mark.parametrize(
    ("query", "entries"),
    [
        ({}, [7, 6, 5, 4, 3, 2, 1]),
        ({"verb": "prioritize"}, [5, 3]),
        ({"verb": "unreadable"}, []),
        ({"pod": "team/runs"}, [6, 3, 2]),
        ({"uid": "heavy"}, [7, 5, 4]),
        ({"class": "standard"}, [3, 2]),
        ({"node": "n2"}, [4]),
        ({"before": 3}, [2, 1]),
        ({"limit": 2}, [7, 6]),
        ({"until": "2020-01-01T00:00:00Z"}, []),
        ({"since": "2020-01-01T00:00:00Z", "verb": "filter"}, [4, 2]),
    ],
    ids=str,
)
async def test_decisions_are_found_newest_first(
    browser: Client, query: dict[str, str | int], entries: list[int]
) -> None:
    found = await get(browser, "decisions", **query)

    assert [decision["entry"] for decision in found["items"]] == entries


async def test_decisions_are_paged_by_position(browser: Client) -> None:
    page = await get(browser, "decisions", limit=2)
    following = await get(browser, "decisions", limit=2, before=page["next"])

    assert [decision["entry"] for decision in following["items"]] == [5, 4]


async def test_a_decision_has_every_term_and_the_loss_of_the_others(browser: Client) -> None:
    found = await get(browser, "decisions/3")
    winner, runner_up, _ = found["candidates"]

    assert found["decision"]["winner"] == winner["node"]
    points = winner["terms"]["points"]
    assert sum(points.values()) == pytest.approx(winner["terms"]["score"])
    assert runner_up["loss"]["behind"] == pytest.approx(
        winner["terms"]["score"] - runner_up["terms"]["score"]
    )
    assert found["values"]["headroom"] == 0.7


async def test_a_recomputed_decision_is_equal_to_the_last_bit(
    browser: Client,
) -> None:
    found = await get(browser, "decisions/5", terms="all")

    assert found["same_digest"] is True
    assert all(candidate["terms"] for candidate in found["candidates"])


async def test_plans_and_transitions_come_newest_first_with_their_positions(
    browser: Client,
) -> None:
    found = await get(browser, "plans")

    kinds = [entry.get("transition", {}).get("kind", "plan") for entry in found["items"]]
    assert kinds == [
        *("draining-begun", "caps-set", "profile-assigned", "profile-assigned", "plan")
    ]
    assert [entry["position"] for entry in found["items"]] == [13, 12, 11, 10, 9]


async def test_a_query_by_position_returns_that_state(browser: Client) -> None:
    before, after = await get(browser, "cluster", at=8), await get(browser, "cluster", at=13)

    assert before["classes"] == {"performance": 0, "eco": 0, "draining": 0, "unknown": 3}
    assert after["classes"] == {"performance": 1, "eco": 1, "draining": 1, "unknown": 0}


async def test_a_twin_at_a_position_is_the_twin_of_that_state(browser: Client) -> None:
    found = await get(browser, "nodes/n2", at=9)

    assert (found["position"], found["node"]["class"]) == (9, "unknown")
    assert found["transitions"] == []


@pytest.mark.parametrize(
    ("at", "classes"),
    [
        (9, ["unknown", "unknown", "unknown"]),
        (10, ["performance", "unknown", "unknown"]),
        (11, ["performance", "eco", "unknown"]),
        (12, ["performance", "eco", "unknown"]),
        (13, ["performance", "eco", "draining"]),
    ],
)
async def test_every_position_within_a_batch_has_its_own_state(
    browser: Client, at: int, classes: list[str]
) -> None:
    found = await get(browser, "nodes", at=at)

    assert [node["class"] for node in found["items"]] == classes


async def test_a_query_by_time_returns_the_last_commit_by_then(
    browser: Client, scenario: ConsoleHarness
) -> None:
    reach = await get(browser, "reach")
    at_ms = reach["first_at_ms"] + 1
    seconds, ms = divmod(at_ms, 1000)
    when = f"{_utc(seconds)}.{ms:03d}Z"

    found = await get(browser, "cluster", time=when)

    # Two commits may be less than a millisecond apart.
    by_then = [made for made in scenario.commits() if made.committed_at <= at_ms * 1_000_000]
    assert by_then[0].p_to == reach["first"]
    assert found["position"] == by_then[-1].p_to


def _utc(seconds: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("nodes", {"sort": "beauty"}, 400),
        ("nodes", {"limit": 0}, 400),
        ("nodes", {"nodes": "n1"}, 400),
        ("cluster", {"at": 8, "time": "2030-01-01T00:00:00Z"}, 400),
        ("cluster", {"at": 10**9}, 404),
        ("cluster", {"time": "1970-01-01T00:00:01Z"}, 410),
        ("cluster", {"time": "2199-01-01T00:00:00Z"}, 404),
        ("nodes/absent", {}, 404),
        ("pods/absent", {}, 404),
        ("decisions/99", {}, 404),
        ("decisions/none", {}, 404),
        ("nothing", {}, 404),
        ("stream", {"topics": "gossip"}, 400),
        ("stream", {"after": "1"}, 400),
    ],
    ids=str,
)
async def test_an_error_is_a_problem_document_with_a_reason(
    browser: Client, path: str, query: dict[str, str | int], status: int
) -> None:
    found, detail = await get_problem(browser, path, **query)

    assert found == status
    assert detail


async def test_a_parameter_that_occurs_twice_is_an_error(browser: Client) -> None:
    answer = await browser.get("/v1/nodes?q=a&q=b")

    assert answer.status_code == 400


async def test_an_unchanged_response_is_not_sent_again(browser: Client) -> None:
    first = await browser.get("/v1/cluster", params={"at": 13})
    again = await browser.get(
        "/v1/cluster", params={"at": 13}, headers={"If-None-Match": first.headers["etag"]}
    )

    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["joulie-position"] == "13"


async def test_long_responses_are_compressed(browser: Client) -> None:
    answer = await browser.get("/v1/cluster", headers={"Accept-Encoding": "gzip"})
    assert answer.headers.get("content-encoding") is None or len(answer.content) >= 1000

    document = await browser.get("/openapi.json", headers={"Accept-Encoding": "gzip"})
    assert document.headers["content-encoding"] == "gzip"


async def test_a_refusal_keeps_the_name_of_its_time_when_another_node_takes_the_row(
    new_harness: NewHarness,
) -> None:
    async with new_harness() as harness, Client(base_url=harness.url) as browser:
        for name in ("spot-a", "spot-b"):
            await harness.publish(NodeGone(node="spot-a"), node_seen(name))
            await harness.publish(eco(name))
            await harness.filter(ask(f"for-{name}", performance=True))
        for entry, name in ((2, "spot-a"), (3, "spot-b")):
            found = await get(browser, f"decisions/{entry}")
            assert [each["node"] for each in found["candidates"]] == [name]
        about = {
            name: [item["name"] for item in (await get(browser, "decisions", node=name))["items"]]
            for name in ("spot-a", "spot-b")
        }

    assert about == {"spot-a": ["for-spot-a"], "spot-b": ["for-spot-b"]}


async def test_heads_count_the_entries_that_are_not_signed(browser: Client) -> None:
    found = await get(browser, "heads")

    assert found["unsigned"] + (found["items"][0]["entry"] if found["items"] else 0) == 7


@pytest.mark.parametrize("path", ["/v1/cluster/", "/openapi.json/", "//evil.example/", "/v1"])
async def test_no_path_is_redirected(browser: httpx2.AsyncClient, path: str) -> None:
    """A redirect would lead to the Host that the client sent."""
    answer = await browser.get(f"{str(browser.base_url).rstrip('/')}{path}")

    assert (answer.status_code, answer.headers.get("location")) == (404, None)


async def test_cards_of_a_past_state_are_not_known_to_be_idle(browser: Client) -> None:
    assert (await get(browser, "gpus"))["idle"] == []
    assert (await get(browser, "gpus", at=12))["idle"] is None
