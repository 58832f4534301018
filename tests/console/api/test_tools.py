"""Tools of a language model, over the answers of a console and of the local data."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console_kit import ConsoleHarness
from joulie.client import ConsoleClient
from joulie_answers.tools import BY_NAME, LONGEST_TEXT, TOOLS
from joulie_cli.asking import context_protocol
from joulie_cli.asking.context_protocol import answered

pytestmark = pytest.mark.anyio


class Ask(NamedTuple):
    """A question of a person, the call that answers it, and what the answer must show."""

    question: str
    tool: str
    arguments: Mapping[str, Any]
    shows: tuple[str, ...]


POD = "kind: Pod\nmetadata: {name: new}\nspec: {containers: [{name: c}]}"
LARGE = POD.replace("name: c", "name: c, resources: {limits: {nvidia.com/gpu: 80}}")
# Facts of `scenario`: two nodes and a draining one, a card, three pods, plan p8.
BANK = [
    Ask("Why is team/runs on its node?", "pod", {"uid": "team/runs"}, ("runs", "n1", "entry")),
    Ask("Where did team/heavy go?", "pod", {"uid": "team/heavy"}, ("heavy", "n3")),
    Ask("Which card has team/heavy?", "gpus", {"pod": "team/heavy"}, ("g1", "n3")),
    Ask("Which entry decided runs?", "decisions", {"pod": "runs"}, ("filter", "prioritize")),
    Ask("What about n2 for runs?", "pod", {"uid": "runs", "candidate": "n2"}, ("n2",)),
    Ask("Is a pod waiting?", "pending", {}, ("waits",)),
    Ask("Since when does waits wait?", "pending", {}, ("since_ms",)),
    Ask("What became of waits?", "pod", {"uid": "team/waits"}, ("waits",)),
    Ask("Which pods are on n1?", "pods", {"node": "n1"}, ("runs",)),
    Ask("Which pods wait?", "pods", {"phase": "pending"}, ("waits",)),
    Ask("Which performance pods are there?", "pods", {"class": "performance"}, ("heavy",)),
    Ask("Which nodes are there?", "nodes", {}, ("n1", "n2", "n3")),
    Ask("Which nodes are eco?", "nodes", {"class": "eco"}, ("n2",)),
    Ask("Which nodes drain?", "nodes", {"class": "draining"}, ("n3",)),
    Ask("Which node draws most?", "nodes", {"sort": "measured", "order": "desc"}, ("n2",)),
    Ask("How is n1?", "node", {"name": "n1"}, ("n1", "performance")),
    Ask("Is n2 capped?", "node", {"name": "n2"}, ("60",)),
    Ask("Why does n3 drain?", "node", {"name": "n3"}, ("drain",)),
    Ask("How was n2 before?", "node", {"name": "n2", "at": 8}, ("position 8", "n2")),
    Ask("Which cards are there?", "gpus", {}, ("g1",)),
    Ask("Which cards are on n3?", "gpus", {"node": "n3"}, ("g1",)),
    Ask("Is a card free?", "gpus", {"free": True}, ("position",)),
    Ask("What did the operator plan?", "plans", {}, ("p8",)),
    Ask("What did plans do to n2?", "plans", {"node": "n2"}, ("n2",)),
    Ask("What is in plan p8?", "plan", {"plan": "p8"}, ("p8", "changes")),
    Ask("What would be planned next?", "next_plan", {}, ("plan",)),
    Ask("And in ten minutes?", "next_plan", {"after_s": 600}, ("plan",)),
    Ask("Which pods should move?", "defragment", {}, ("moves",)),
    Ask("Where would it go?", "place", {"manifest": POD}, ("Pod default/new: would be placed",)),
    Ask("Would 8 cards fit?", "place", {"manifest": LARGE}, ("would wait", "insufficient GPUs")),
    Ask("Is this a manifest?", "place", {"manifest": "a"}, ("not an object with a kind",)),
    Ask("What was decided last?", "decisions", {"limit": 1}, ("ENTRY", "team/heavy")),
    Ask("What was decided in team?", "decisions", {"namespace": "team"}, ("heavy", "runs")),
    Ask("What was filtered?", "decisions", {"verb": "filter"}, ("filter",)),
    Ask("Who considered n2?", "decisions", {"candidate": "n2"}, ("runs",)),
    Ask("What ended on n1?", "decisions", {"node": "n1"}, ("runs",)),
    Ask("What is entry 2?", "decision", {"entry": 2}, ("filter",)),
    Ask("All terms of entry 3?", "decision", {"entry": 3, "terms": "all"}, ("terms",)),
    Ask("Who uses energy?", "energy", {"by": "namespace", "hours": 8784}, ("kWh",)),
    Ask("Which node uses most?", "energy", {"by": "node", "hours": 8784}, ("n2",)),
    Ask("Which pod uses energy?", "energy", {"by": "pod", "hours": 8784}, ("runs",)),
    Ask("Who pays for idle power?", "energy", {"by": "node", "hours": 8784}, ("idle",)),
    Ask("What was saved?", "saved", {}, ("today",)),
    Ask("Who requests too much?", "workload_requests", {}, ("position",)),
    Ask("Is everything well?", "status", {}, ("position",)),
    Ask("How old is the data?", "status", {}, ("last commit", "readings")),
    Ask("Is the log signed?", "heads", {}, ("items",)),
    # What is not known is said.
    Ask(
        "Why is nobody there?", "pod", {"uid": "team/nobody"}, ("No decision about 'team/nobody'",)
    ),
    Ask("How is n99?", "node", {"name": "n99"}, ("n99",)),
    Ask("What is plan p99?", "plan", {"plan": "p99"}, ("p99",)),
    Ask("What is entry 999?", "decision", {"entry": 999}, ("999",)),
    Ask("How was n1 at 999999?", "node", {"name": "n1", "at": 999999}, ("no position 999999",)),
    Ask("Which nodes are red?", "nodes", {"class": "red"}, ("Nothing was read",)),
]


def request(method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).encode()


async def asked(harness: ConsoleHarness, method: str, **params: Any) -> dict[str, Any]:
    @asynccontextmanager
    async def opened() -> AsyncGenerator[ConsoleClient]:
        async with ConsoleClient(harness.url) as console:
            yield console

    answer = await answered(request(method, **params), opened)
    assert answer is not None
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", 7)
    return answer


async def test_fifty_questions_are_answered_with_the_facts_that_they_ask_for(
    scenario: ConsoleHarness,
) -> None:
    wrong = list[str]()
    for ask in BANK:
        answer = await asked(scenario, "tools/call", name=ask.tool, arguments=dict(ask.arguments))
        text = answer["result"]["content"][0]["text"]
        if missing := [each for each in ask.shows if each not in text]:
            wrong.append(f"{ask.question} {ask.tool}: no {missing} in {text}")

    assert len(BANK) >= 50
    assert {ask.tool for ask in BANK} == BY_NAME.keys()
    assert not wrong, "\n".join(wrong)


async def test_an_answer_has_its_position_and_the_document_of_the_api(
    scenario: ConsoleHarness,
) -> None:
    answer = (await asked(scenario, "tools/call", name="node", arguments={"name": "n1"}))["result"]

    assert not answer["isError"]
    position = answer["structuredContent"]["position"]
    assert answer["content"][0]["text"].startswith(f"As of position {position}")


async def test_what_cannot_be_answered_is_an_error_of_the_tool(scenario: ConsoleHarness) -> None:
    unknown = await asked(scenario, "tools/call", name="node", arguments={"name": "n99"})
    invalid = await asked(scenario, "tools/call", name="node", arguments={"nam": "n1"})

    assert unknown["result"]["isError"]
    assert invalid["result"]["isError"]


async def test_a_long_answer_is_cut_and_says_so(
    scenario: ConsoleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joulie_answers.tools.LONGEST_TEXT", 100)

    answer = (await asked(scenario, "tools/call", name="nodes", arguments={}))["result"]

    assert "cut here" in answer["content"][0]["text"]
    assert "structuredContent" not in answer
    assert LONGEST_TEXT > 100


def nothing() -> AbstractAsyncContextManager[ConsoleClient]:
    raise AssertionError("nothing is opened")


async def test_a_client_learns_the_version_and_the_tools() -> None:
    begun = await answered(request("initialize", protocolVersion="2025-03-26"), nothing)
    listed = await answered(request("tools/list"), nothing)

    assert begun is not None
    assert listed is not None
    assert begun["result"]["protocolVersion"] == "2025-03-26"
    assert begun["result"]["capabilities"] == {"tools": {}}
    assert [tool["name"] for tool in listed["result"]["tools"]] == [tool.name for tool in TOOLS]


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
async def test_the_arguments_of_a_tool_have_a_schema(tool: Any) -> None:
    described = tool.described()
    valid = jsonschema_rs.validator_for(described["inputSchema"])

    assert all(valid.is_valid(ask.arguments) for ask in BANK if ask.tool == tool.name) or (
        tool.name == "nodes"  # one question of the bank names a class that does not exist
    )
    assert not valid.is_valid({"unknown": 1})
    assert described["annotations"]["readOnlyHint"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b"\xff\n", -32700),
        (b" " * (context_protocol.LONGEST_LINE + 1), -32700),
        (b"[]", -32600),
        (b'{"id": 1, "jsonrpc": "2.0"}', -32600),
        (b'{"id": 1, "method": "ping"}', -32600),
        (b'{"id": {}, "method": "ping"}', -32600),
        (request("resources/list"), -32601),
        (request("tools/call", name="delete_everything"), -32602),
        (request("tools/call", name="nodes", arguments=[1]), -32602),
    ],
)
async def test_a_message_that_cannot_be_answered_has_a_code(line: bytes, code: int) -> None:
    answer = await answered(line, nothing)

    assert answer is not None
    assert answer["error"]["code"] == code


async def test_a_notification_has_no_answer() -> None:
    assert (
        await answered(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', nothing) is None
    )


@given(line=st.binary(max_size=200))
async def test_no_line_ends_the_program(line: bytes) -> None:
    answer = await answered(line, nothing)

    assert answer is None or "error" in answer or "result" in answer
