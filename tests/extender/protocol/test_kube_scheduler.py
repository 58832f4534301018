import json

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus_kit import ask
from joulie_bus.errors import BadRequest
from joulie_bus.events import PodAsk
from joulie_extender.protocol.candidates import Names
from joulie_extender.protocol.kube_scheduler import (
    BAD_REQUESTS,
    ExtenderArgs,
    RequestReader,
    error_reply,
    names_reply,
    nodes_reply,
    preempt_reply,
    prioritize_reply,
    read_args,
    read_binding,
    read_preempt,
)

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


def filter_reply(asked: ExtenderArgs, passed: list[bool], reason: str) -> bytes:
    if asked.whole:
        return nodes_reply(asked, passed, reason)
    return names_reply(asked, passed, reason)


def ints(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64)


def test_the_names_form_is_read_as_kube_scheduler_sends_it() -> None:
    asked = read_args(NAMES)

    assert (asked.names.names, asked.whole) == (["n0", "n2", "n3", "n1"], b"")
    assert (asked.pod.name, asked.pod.uid, asked.pod.cpu_milli) == ("a2", "3ebb", 500)


def test_the_full_form_is_read_as_kube_scheduler_sends_it() -> None:
    asked = read_args(FULL)

    assert asked.names.names == ["n0", "n1"]
    assert asked.whole == FULL


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
    assert read_args(sent).names.names == names


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
    assert sorted(places) == sorted(asked.names.names)


def test_the_full_form_gets_the_very_objects_back_byte_for_byte() -> None:
    reply = filter_reply(read_args(FULL), [True, False], "because")

    assert b'"Nodes":{"items":[' + FIRST + b"]}" in reply
    assert json.loads(reply)["NodeNames"] is None
    assert json.loads(reply)["FailedAndUnresolvableNodes"] == {"n1": "because"}


def test_scores_are_whole_numbers_in_a_bare_list() -> None:
    reply = prioritize_reply(Names.of(["n2", "n0", "n1"]), ints(100, 0, 7))

    told = b'[{"Host":"n2","Score":100},{"Host":"n0","Score":  0},{"Host":"n1","Score":  7}]'
    assert reply == told


def test_no_candidates_get_no_scores() -> None:
    assert prioritize_reply(Names.of([]), ints()) == b"[]"


def test_a_reply_never_covers_a_part_of_the_request() -> None:
    with pytest.raises(ValueError, match="1 flags for"):
        filter_reply(read_args(NAMES), [False], "because")


def test_a_node_may_carry_what_no_other_version_knew() -> None:
    strange = msgspec.json.encode({"metadata": {"name": "n"}, "spec": {"é\u2028": [1e400 > 0]}})
    sent = b'{"Pod":{},"Nodes":{"items":[' + strange + b"]}}"

    assert strange in filter_reply(read_args(sent), [True], "")


# --- names that no object in Kubernetes has -----------------------------------------------------

WRONG = [
    "../../secrets/x",
    "p?dryRun=All&x=",
    "p%2f..",
    "p/binding",
    "p\n{}",
    "P",
    "-p",
    "p-",
    "a..b",
    "a.-b",
    ".",
    "..",
    " p",
    "\u2028",
    "é",
    "a" * 254,
    "a\u0000",
]


def with_pod(**metadata: object) -> dict[str, object]:
    return {"Pod": {"metadata": {"name": "p", "namespace": "d", "uid": "u", **metadata}}}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_name_that_kubernetes_does_not_allow_fails_every_verb(wrong: str) -> None:
    def body(**fields: object) -> bytes:
        return json.dumps(fields, separators=(",", ":")).encode()

    listed = {"Nodes": None, "NodeNames": ["n0", wrong, "n1"]}
    whole = {"Nodes": {"items": [{"metadata": {"name": wrong}}]}, "NodeNames": None}
    for field in ("name", "namespace", "uid"):
        if field == "uid" and wrong in ("P", "a..b", "a.-b"):
            continue  # a UID is opaque to Kubernetes
        asked = body(**with_pod(**{field: wrong}), Nodes=None, NodeNames=["n0"])
        for read in (RequestReader().read, read_args, read_preempt):
            with pytest.raises(BAD_REQUESTS, match=field.replace("uid", "UID")):
                read(asked)
    for nodes in (listed, whole):
        with pytest.raises(BAD_REQUESTS, match="the name of node"):
            RequestReader().read(body(**with_pod(), **nodes))
    with pytest.raises(BAD_REQUESTS, match="the name of node 0"):
        read_preempt(body(**with_pod(), NodeNameToMetaVictims={wrong: {"Pods": []}}))


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("field", ["PodName", "PodNamespace", "Node"])
def test_a_binding_of_such_a_name_is_refused(field: str, wrong: str) -> None:
    args = {"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n0", field: wrong}

    with pytest.raises(BAD_REQUESTS, match=field):
        read_binding(json.dumps(args).encode())


def test_a_uid_is_letters_and_digits() -> None:
    static = "0123456789abcdef0123456789abcdef"  # as the kubelet makes them
    args = {"PodName": "p", "PodNamespace": "d", "PodUID": static, "Node": "n0.example.com"}
    assert read_binding(json.dumps(args).encode()).pod_uid == static

    for wrong in ("../x", "a b", "a" * 129, "a\n"):
        with pytest.raises(BAD_REQUESTS, match="PodUID"):
            read_binding(json.dumps({**args, "PodUID": wrong}).encode())
        victims = {"n0": {"Pods": [{"UID": wrong}]}}
        with pytest.raises(BAD_REQUESTS, match="UID of a victim"):
            read_preempt(json.dumps({**with_pod(), "NodeNameToMetaVictims": victims}).encode())


# --- one request after another ----------------------------------------------------------------

PODS = {
    "another pod": b'{"metadata":{"name":"b","uid":"u2"}}',
    "another size": POD.replace(b"500m", b"2"),
    "the list within": b'{"metadata":{"annotations":{"x":",\\"NodeNames\\":[\\"n0\\"]}"}}}',
}


def names_body(pod: bytes, names: bytes = b'["n0","n2","n3","n1"]') -> bytes:
    return b'{"Pod":' + pod + b',"Nodes":null,"NodeNames":' + names + b"}"


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_each_request_is_read_with_its_own_pod_and_names(pod: bytes) -> None:
    reader = RequestReader()
    reader.read(NAMES)

    second = reader.read(names_body(pod, b'["n2","n0"]'))

    assert (second.pod, second.names.names) == (read_args(names_body(pod)).pod, ["n2", "n0"])


@pytest.mark.parametrize(
    "head",
    [b"", b"{", b'{"Pod":5', b'{"Pod":{},', b'{"Pod":{}}', b'{"Pod":[{}', b'{"Pod":{"a":{}', b"["],
)
def test_an_earlier_request_does_not_complete_a_broken_body(head: bytes) -> None:
    reader = RequestReader()
    reader.read(NAMES)

    with pytest.raises(BadRequest):
        reader.read(head + NAMES[NAMES.index(b',"Nodes":null') :])


def test_a_request_without_a_pod_does_not_get_the_pod_of_an_earlier_one() -> None:
    reader = RequestReader()
    reader.read(NAMES)

    with pytest.raises(BadRequest, match="no Pod"):
        reader.read(names_body(b"null"))


def test_a_host_that_is_named_twice_gets_one_score() -> None:
    reply = prioritize_reply(Names.of(["b", "a", "b", "a", "c"]), ints(1, 2, 1, 2, 3))

    scores = [(each["Host"], each["Score"]) for each in json.loads(reply)]
    assert scores == [("b", 1), ("a", 2), ("c", 3)]


names = st.lists(st.text(max_size=5), max_size=20)


@settings(deadline=None, max_examples=100)
@given(names, st.data())
def test_every_reply_is_json_with_the_very_names(names: list[str], data: st.DataObject) -> None:
    scores = data.draw(st.lists(st.integers(0, 100), min_size=len(names), max_size=len(names)))
    passed = [score % 2 == 0 for score in scores]
    asked = ExtenderArgs(ask(), Names.of(names))

    listed = json.loads(prioritize_reply(asked.names, ints(*scores)))
    filtered = json.loads(filter_reply(asked, passed, "because"))

    assert [each["Host"] for each in listed] == list(dict.fromkeys(names))
    assert filtered["NodeNames"] == [n for n, fits in zip(names, passed, strict=True) if fits]


# --- errors and labels ------------------------------------------------------------------------


def test_an_error_names_no_node() -> None:
    assert json.loads(error_reply("not now")) == {
        "Nodes": None,
        "NodeNames": None,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "not now",
    }


@pytest.mark.parametrize(
    ("labels", "eco"),
    [
        ('{"joulie.io/power-profile":"eco"}', 1),
        ('{"a":"b","joulie.io/power-profile":"performance"}', 0),
        ('{"joulie.io/power-profile":null}', 0),
        ("{}", 0),
        ("null", 0),
    ],
)
def test_the_full_form_brings_the_labels(labels: str, eco: int) -> None:
    node = '{"metadata":{"name":"n","labels":' + labels + "}}"
    asked = read_args(b'{"Pod":{},"Nodes":{"items":[' + node.encode() + b"]}}")

    assert asked.eco_labels == bytes([eco])


# --- preempt ----------------------------------------------------------------------------------

META = b'{"Pod":{},"NodeNameToVictims":null,"NodeNameToMetaVictims":%b}'
WHOLE = b'{"Pod":{},"NodeNameToVictims":%b,"NodeNameToMetaVictims":null}'
VICTIM = b'{"metadata":{"name":"v","uid":"e136"},"spec":{},"status":{}}'


@pytest.mark.parametrize(
    "sent",
    [
        META % b'{"n0":{"Pods":[{"UID":"e136"}],"NumPDBViolations":2}}',
        WHOLE % (b'{"n0":{"Pods":[' + VICTIM + b'],"NumPDBViolations":2}}'),
        b'{"pod":{},"nodenametometavictims":{"n0":{"Pods":[{"UID":"e136"}],"NumPDBViolations":2}}}',
    ],
    ids=["names", "full", "lower case"],
)
def test_victims_go_back_by_their_uids_in_either_form(sent: bytes) -> None:
    told = preempt_reply(read_preempt(sent), [True])

    assert json.loads(told) == {
        "NodeNameToMetaVictims": {"n0": {"Pods": [{"UID": "e136"}], "NumPDBViolations": 2}}
    }


def test_a_node_that_would_be_refused_is_left_out() -> None:
    asked = read_preempt(META % b'{"a":{"Pods":[{"UID":"1"}]},"b":{"Pods":[{"UID":"2"}]}}')

    assert list(json.loads(preempt_reply(asked, [False, True]))["NodeNameToMetaVictims"]) == ["b"]


@pytest.mark.parametrize(
    "victims",
    [
        b"null",
        b'{"Pods":null}',
        b'{"Pods":[]}',
        b'{"Pods":[null],"NumPDBViolations":null}',
        b'{"Pods":[{"UID":null},{"metadata":null},{}]}',
    ],
)
@pytest.mark.parametrize("form", [META, WHOLE], ids=["names", "full"])
def test_nothing_in_a_preempt_reply_is_ever_null(form: bytes, victims: bytes) -> None:
    told = preempt_reply(read_preempt(form % (b'{"n":' + victims + b"}")), [True])

    assert json.loads(told)["NodeNameToMetaVictims"] == {"n": {"Pods": [], "NumPDBViolations": 0}}


@pytest.mark.parametrize("sent", [META % b"null", META % b"{}", b'{"Pod":{}}'])
def test_without_victims_no_pod_is_evicted(sent: bytes) -> None:
    assert preempt_reply(read_preempt(sent), []) == b'{"NodeNameToMetaVictims":{}}'


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"", "truncated"),
        (b'{"NodeNameToMetaVictims":{}}', "no Pod"),
        (b'{"Pod":{},"NodeNameToMetaVictims":[]}', "$.NodeNameToMetaVictims"),
        (b'{"Pod":{},"NodeNameToMetaVictims":{"n":{"Pods":[{"UID":5}]}}}', "$.NodeNameTo"),
    ],
)
def test_an_unreadable_preemption_is_refused_with_its_place(sent: bytes, told: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        read_preempt(sent)

    assert told in str(refusal.value)


def test_a_bare_request_has_the_pod_that_it_names() -> None:
    assert read_preempt(META % b"{}").pod == PodAsk(uid="", namespace="default", name="")


LOOKALIKE = b'{"metadata":{"name":"p"},"x":{"a":1,"Nodes":null,"NodeNames":["inner"]}}'


@pytest.mark.parametrize("pod", [b'{"metadata":{"name":"p"}}', LOOKALIKE], ids=["plain", "nested"])
def test_a_body_read_in_parts_means_what_it_means_as_a_whole(pod: bytes) -> None:
    sent = b'{"Pod":' + pod + b',"Nodes":null,"NodeNames":["a","b"]}'
    parts, whole = RequestReader().read(sent), read_args(sent)

    assert (parts.pod, parts.names.names) == (whole.pod, whole.names.names)
    assert parts.names.names == ["a", "b"]
