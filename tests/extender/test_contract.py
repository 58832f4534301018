import json

import msgspec
import pytest

from joulie_bus.errors import BadRequest
from joulie_extender.contract import filter_reply, prioritize_reply, read_args

# As kube-scheduler 1.34 writes them: no spaces, Go's order, nulls for what is not used.
POD = (
    b'{"metadata":{"name":"a2","namespace":"default","uid":"3ebb","resourceVersion":"222",'
    b'"generation":1,"creationTimestamp":"2026-11-21T06:33:12Z","managedFields":[{"manager":'
    b'"unknown","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{}}]},'
    b'"spec":{"containers":[{"name":"c","image":"x","resources":{"requests":{"cpu":"500m"}}}],'
    b'"schedulerName":"default-scheduler"},"status":{"phase":"Pending","qosClass":"Burstable"}}'
)
NAMES = b'{"Pod":' + POD + b',"Nodes":null,"NodeNames":["n0","n2","n3","n1"]}'
FIRST = (
    b'{"metadata":{"name":"n0","labels":{"b":"2","a":"1"}},"spec":{},"status":{"allocatable":'
    b'{"cpu":"96"},"daemonEndpoints":{"kubeletEndpoint":{"Port":0}}}}'
)
SECOND = b'{"metadata":{"name":"n1"},"spec":{"unschedulable":true},"status":{}}'
FULL = (
    b'{"Pod":' + POD + b',"Nodes":{"metadata":{},"items":['
    + FIRST + b"," + SECOND + b']},"NodeNames":null}'
)  # fmt: skip


def body(**fields: object) -> bytes:
    return json.dumps({"Pod": {"metadata": {"name": "p"}}, **fields}).encode()


def test_the_names_form_is_read_as_kube_scheduler_sends_it() -> None:
    asked = read_args(NAMES)

    assert (asked.names, asked.objects) == (["n0", "n2", "n3", "n1"], None)
    assert (asked.pod.metadata.name, asked.pod.metadata.uid) == ("a2", "3ebb")


def test_the_full_form_is_read_as_kube_scheduler_sends_it() -> None:
    asked = read_args(FULL)

    assert asked.names == ["n0", "n1"]
    assert [bytes(item) for item in asked.objects or []] == [FIRST, SECOND]


@pytest.mark.parametrize(
    ("sent", "names"),
    [
        (b'{"pod":{},"nodenames":["a"]}', ["a"]),
        (b'{"pod":{},"nodeNames":["a"],"nodes":null}', ["a"]),
        (b'{"Pod":{},"nodenames":["a"]}', ["a"]),
        (b'{"POD":{},"NODES":{"items":[{"metadata":{"name":"a"}}]}}', ["a"]),
        (b'{"Pod":{},"NodeNames":[]}', []),
        (b'{"Pod":{},"Nodes":{"items":null}}', []),
        (b'{"Pod":{"metadata":{},"spec":{"containers":null}},"NodeNames":["a"],"More":1}', ["a"]),
    ],
    ids=["lower", "camel", "mixed", "upper", "no names", "no items", "nulls and strangers"],
)
def test_what_go_would_read_is_read(sent: bytes, names: list[str]) -> None:
    assert read_args(sent).names == names


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"", "truncated"),
        (b"hello", "malformed"),
        (b"null", "Expected `object`"),
        (b"[]", "Expected `object`"),
        (b"{}", "no Pod"),
        (b'{"Pod":null,"NodeNames":["a"]}', "no Pod"),
        (b'{"Pod":{},"Nodes":null,"NodeNames":null}', "Both Nodes and NodeNames are null"),
        (b'{"Pod":5,"NodeNames":[]}', "$.Pod"),
        (b'{"Pod":{},"NodeNames":["a",null]}', "$.NodeNames[1]"),
        (b'{"Pod":{},"NodeNames":{"a":1}}', "$.NodeNames"),
        (b'{"pod":{},"nodenames":[5]}', "$.NodeNames[0]"),
        (b'{"Pod":{"spec":{"containers":{}}},"NodeNames":[]}', "$.Pod.spec.containers"),
        (b'{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"a"}},{}]}}', "$.Nodes.items[1]"),
        (b'{"Pod":{},"Nodes":{"items":[null]}}', "$.Nodes.items[0]"),
        (b'{"Pod":{},"Nodes":{"items":[{"metadata":{"name":5}}]}}', "$.Nodes.items[0]"),
        (b'{"Pod":{},"NodeNames":["\xff"]}', "decode"),
        (b'{"Pod":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b'},"NodeNames":[]}', "recursion"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_kube_scheduler_never_sends_is_refused_with_its_place(sent: bytes, told: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        read_args(sent)

    assert told in str(refusal.value)


def test_names_pass_and_fail_in_one_reply_with_one_reason() -> None:
    reply = filter_reply(read_args(NAMES), [True, False, True, False], "because")

    assert json.loads(reply) == {
        "Nodes": None,
        "NodeNames": ["n0", "n3"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"n2": "because", "n1": "because"},
        "Error": "",
    }


def test_no_name_left_is_an_empty_list_and_never_null() -> None:
    reply = filter_reply(read_args(body(NodeNames=["a"])), [False], "because")

    assert b'"NodeNames":[]' in reply


def test_every_node_is_in_exactly_one_place() -> None:
    asked = read_args(NAMES)
    reply = json.loads(filter_reply(asked, [False, True, True, False], "because"))

    places = [*reply["NodeNames"], *reply["FailedNodes"], *reply["FailedAndUnresolvableNodes"]]
    assert sorted(places) == sorted(asked.names)


def test_the_full_form_gets_the_very_objects_back_byte_for_byte() -> None:
    reply = filter_reply(read_args(FULL), [True, False], "because")

    assert b'"Nodes":{"items":[' + FIRST + b"]}" in reply
    assert json.loads(reply)["NodeNames"] is None
    assert json.loads(reply)["FailedAndUnresolvableNodes"] == {"n1": "because"}


def test_scores_are_whole_numbers_in_a_bare_list() -> None:
    reply = prioritize_reply(["n2", "n0"], [100, 0])

    assert reply == b'[{"Host":"n2","Score":100},{"Host":"n0","Score":0}]'


def test_no_candidates_get_no_scores() -> None:
    assert prioritize_reply([], []) == b"[]"


def test_a_reply_never_covers_a_part_of_the_request() -> None:
    with pytest.raises(ValueError, match="zip"):
        filter_reply(read_args(NAMES), [True], "because")


def test_a_node_may_carry_what_no_other_version_knew() -> None:
    strange = msgspec.json.encode({"metadata": {"name": "é\u2028"}, "spec": {"new": [1e400 > 0]}})
    sent = b'{"Pod":{},"Nodes":{"items":[' + strange + b"]}}"

    assert strange in filter_reply(read_args(sent), [True], "")
