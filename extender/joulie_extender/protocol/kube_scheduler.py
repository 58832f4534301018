"""kube-scheduler's extender protocol: parsing of requests, encoding of replies.

Node names are copied from the request and never built: kube-scheduler fails the whole call for a
name that it did not send, or binds a pod to a node that does not exist. A reply contains no null
where kube-scheduler would fail on it.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import compress
from typing import Any, NamedTuple

import msgspec
import numpy as np

from joulie_bus.core.kube_names import first_wrong, require_label, require_subdomain, require_uid
from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.errors import BadName, BadQuantity, BadRequest
from joulie_bus.events import PodAsk
from joulie_bus.events.bounds import Name, Uid
from joulie_bus.http.exchange import Body
from joulie_extender.protocol.candidates import (
    BEFORE_NAMES,
    Flags,
    Names,
    failed_nodes,
    host_priorities,
)
from joulie_extender.protocol.name_index import NameIndex
from joulie_projections.hardware.gpu_resources import GPU_RESOURCES
from joulie_projections.pods.classify import PROFILE_LABEL
from joulie_projections.pods.demand import ask_of
from joulie_projections.pods.kubernetes_pod import Pod
from joulie_projections.twin.arrays import Ints
from joulie_projections.twin.columns import TwinColumns

CACHED_PODS = 1000  # parsed pods, by their bytes
_CACHED_POD_BYTES = 16 * 1024  # larger pods are not cached; all together at most 16 MiB


class _Labels(msgspec.Struct):
    profile: Any = msgspec.field(name=PROFILE_LABEL, default=None)


class _Metadata(msgspec.Struct):
    name: str
    labels: _Labels | None = None


class _Node(msgspec.Struct):
    metadata: _Metadata


class _NodeList(msgspec.Struct):
    items: list[_Node] | None = None


class _Args(msgspec.Struct, rename="pascal"):
    """Arguments of filter and prioritize. An unused field is null; keys match in any case."""

    pod: Pod | None = None
    nodes: _NodeList | None = None
    node_names: msgspec.Raw = msgspec.Raw(b"null")


class _SentArgs(msgspec.Struct, rename="pascal"):
    """The same nodes as raw JSON."""

    class List(msgspec.Struct):
        items: list[msgspec.Raw] | None = None

    nodes: List | None = None


class _Victim(msgspec.Struct, rename={"uid": "UID"}):
    """Given by its UID or as a whole pod; other fields are skipped."""

    class Metadata(msgspec.Struct):
        uid: str | None = None

    uid: str | None = None
    metadata: Metadata | None = None


class _Victims(msgspec.Struct, rename={"pods": "Pods", "violations": "NumPDBViolations"}):
    pods: list[_Victim | None] | None = None
    violations: int | None = None


class _PreemptArgs(msgspec.Struct, rename="pascal"):
    pod: Pod | None = None
    node_name_to_victims: dict[str, _Victims | None] | None = None
    node_name_to_meta_victims: dict[str, _Victims | None] | None = None


class Binding(
    msgspec.Struct,
    frozen=True,
    rename={
        "pod_name": "PodName",
        "namespace": "PodNamespace",
        "pod_uid": "PodUID",
        "node": "Node",
    },
):
    """A pod and the node that kube-scheduler has chosen for it."""

    pod_name: Name = ""
    namespace: Name = "default"
    pod_uid: Uid = ""
    node: Name = ""


class _PodAlone(msgspec.Struct, rename="pascal"):
    pod: Pod | None = None


class ExtenderArgs(NamedTuple):
    """The arguments of filter or prioritize, in either form."""

    pod: PodAsk
    names: Names
    whole: Body = b""  # the full form: all that was sent
    eco_labels: bytes = b""  # the full form: one byte each, 1 where the node says eco


class PreemptionArgs(NamedTuple):
    """Nodes that kube-scheduler considers for preemption, with the victims on each."""

    pod: PodAsk
    names: Names
    victims: list[_Victims]


_decode_args = msgspec.json.Decoder(_Args).decode
_decode_sent = msgspec.json.Decoder(_SentArgs).decode
_decode_preempt = msgspec.json.Decoder(_PreemptArgs).decode
_decode_binding = msgspec.json.Decoder(Binding).decode
_decode_any_case = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_names = msgspec.json.Decoder(list[str]).decode
_decode_node = msgspec.json.Decoder(_Node).decode
_decode_pod = msgspec.json.Decoder(_PodAlone).decode
_encode = msgspec.json.Encoder().encode
_FIELDS = {
    "pod": "Pod",
    "nodes": "Nodes",
    "nodenames": "NodeNames",
    "nodenametovictims": "NodeNameToVictims",
    "nodenametometavictims": "NodeNameToMetaVictims",
    "podname": "PodName",
    "podnamespace": "PodNamespace",
    "poduid": "PodUID",
    "node": "Node",
}
_NO_POD = "The body has no Pod. kube-scheduler always sends one."


# --- reading ----------------------------------------------------------------------------------


class RequestReader:
    """Parses requests; finds their names in the index of the newest snapshot."""

    def __init__(self, gpu_resources: tuple[str, ...] = GPU_RESOURCES) -> None:
        self._gpus = gpu_resources
        self._index = NameIndex({})

    def index_of(self, twin_columns: TwinColumns) -> NameIndex:
        """The name index of these columns, which `read` uses from now on."""
        if self._index.rows is not twin_columns.rows:
            self._index = NameIndex(twin_columns.rows)
        return self._index

    def read(self, body: Body) -> ExtenderArgs:
        """Raises BadRequest, with the place in the body, for what kube-scheduler never sends.

        A body large enough to arrive as a bytearray nearly always contains whole nodes.
        """
        canonical = None if isinstance(body, bytearray) else self._canonical(body)
        return canonical or read_args(body, self._gpus)

    def _canonical(self, body: bytes) -> ExtenderArgs | None:
        """A request by names in the exact form that kube-scheduler writes."""
        before, end = body.find(BEFORE_NAMES), len(body) - 1
        if before < 0 or not body.endswith(b"]}"):
            return None
        pod = _pod_before(body, before, self._gpus)
        if pod is None:
            return None
        raw = body[before + len(BEFORE_NAMES) : end]
        try:
            names = Names.found(raw, self._index) or Names(raw, _valid_names(_decode_names(raw)))
        except UNDECODABLE:
            return None
        return ExtenderArgs(pod, names)


def _pod_before(body: bytes, end: int, gpus: tuple[str, ...]) -> PodAsk | None:
    """The pod in front of the list. None if those bytes are not a complete object with a Pod.

    If they close to an object, the bytes that follow are members of the same object, so the whole
    body means what its parts mean.
    """
    head = body[:end] + b"}"
    try:
        return _cached_pod(head, gpus) if len(head) <= _CACHED_POD_BYTES else _pod_in(head, gpus)
    except UNDECODABLE:
        return None


def _pod_in(head: bytes, gpus: tuple[str, ...]) -> PodAsk | None:
    pod = _decode_pod(head).pod
    return None if pod is None else _ask_of(pod, gpus)


_cached_pod = lru_cache(maxsize=CACHED_PODS)(_pod_in)


def read_args(body: Body, gpu_resources: tuple[str, ...] = GPU_RESOURCES) -> ExtenderArgs:
    try:
        args = _decode_args(body)
        if args.pod is None or (_is_null(args.node_names) and args.nodes is None):
            body = _in_pascal_case(body)
            args = _decode_args(body)
        if args.pod is None:
            raise BadRequest(_NO_POD)
        if args.nodes is not None and not body.isascii():
            bytes(body).decode()  # nodes are repeated in the reply as they are
        return _asked(_ask_of(args.pod, gpu_resources), args, body)
    except UNDECODABLE as error:
        _require_nodes(body)  # names the first wrong item
        raise BadRequest(f"The body is not an ExtenderArgs: {error}.") from error


def read_binding(body: Body) -> Binding:
    try:
        binding = _decode_binding(body)
        if not binding.pod_name:
            binding = _decode_binding(_in_pascal_case(body))
    except UNDECODABLE as error:
        raise BadRequest(f"The body is not an ExtenderBindingArgs: {error}.") from error
    if not (binding.pod_name and binding.pod_uid and binding.node):
        raise BadRequest("PodName, PodUID and Node must be given. kube-scheduler always does.")
    require_subdomain(binding.pod_name, "PodName")
    require_label(binding.namespace, "PodNamespace")
    require_uid(binding.pod_uid, "PodUID")
    require_subdomain(binding.node, "Node")
    return binding


def read_preempt(body: Body, gpu_resources: tuple[str, ...] = GPU_RESOURCES) -> PreemptionArgs:
    try:
        args = _decode_preempt(body)
        if args.pod is None or _victims_of(args) is None:
            args = _decode_preempt(_in_pascal_case(body))
    except UNDECODABLE as error:
        raise BadRequest(f"The body is not an ExtenderPreemptionArgs: {error}.") from error
    if args.pod is None:
        raise BadRequest(_NO_POD)
    found = _victims_of(args) or {}  # no node would be cleared: nothing to say about
    victims = [each or _Victims() for each in found.values()]
    for uid in filter(None, map(_uid_of, _pods_of(victims))):
        require_uid(uid, "the UID of a victim")
    return PreemptionArgs(
        _ask_of(args.pod, gpu_resources), Names.of(_valid_names(list(found))), victims
    )


def _ask_of(pod: Pod, gpu_resources: tuple[str, ...]) -> PodAsk:
    """Rejects names that Kubernetes does not allow: they are logged, shown and looked up."""
    ask = ask_of(pod, gpu_resources=gpu_resources)
    require_label(ask.namespace, "the pod's namespace")
    if ask.name:
        require_subdomain(ask.name, "the pod's name")
    if ask.uid:
        require_uid(ask.uid, "the pod's UID")
    return ask


def _valid_names(names: list[str]) -> list[str]:
    """Raises BadName for a list with a name that no node can have."""
    wrong = first_wrong(names)
    if wrong is not None:
        require_subdomain(names[wrong], f"the name of node {wrong}")
    return names


def _victims_of(args: _PreemptArgs) -> dict[str, _Victims | None] | None:
    meta = args.node_name_to_meta_victims
    return args.node_name_to_victims if meta is None else meta


def _in_pascal_case(body: Body) -> bytes:
    """Go decodes keys in any case, so lower-case examples from its documentation work too."""
    fields = _decode_any_case(body)
    return _encode({_FIELDS.get(key.lower(), key): value for key, value in fields.items()})


def _is_null(raw: msgspec.Raw) -> bool:
    return bytes(raw) == b"null"


def _asked(pod: PodAsk, args: _Args, body: Body) -> ExtenderArgs:
    if not _is_null(args.node_names):
        raw = bytes(args.node_names)
        return ExtenderArgs(pod, Names(raw, _valid_names(_names_in(raw))))
    if args.nodes is not None:
        nodes = args.nodes.items or []
        eco = bytes(map(_is_labelled_eco, nodes))
        names = _valid_names([node.metadata.name for node in nodes])
        return ExtenderArgs(pod, Names.of(names), body, eco)
    raise BadRequest("Both Nodes and NodeNames are null. One of them must list the candidates.")


def _names_in(raw: bytes) -> list[str]:
    try:
        return _decode_names(raw)
    except msgspec.ValidationError as error:
        what, _, place = str(error).rstrip("`").partition(" - at `$")
        raise BadRequest(
            f"The body is not an ExtenderArgs: {what} - at `$.NodeNames{place}`."
        ) from error


def _sent_nodes(body: Body) -> list[msgspec.Raw]:
    nodes = _decode_sent(body).nodes
    return (nodes.items if nodes else None) or []


def _require_nodes(body: Body) -> None:
    """Raises BadRequest for the first item that is no Node, if the body can be parsed."""
    try:
        sent = _sent_nodes(body)
    except UNDECODABLE:
        return
    for at, item in enumerate(sent):
        try:
            _decode_node(item)
        except UNDECODABLE as error:
            what = f"$.Nodes.items[{at}] is not a Node with a name: {error}."
            raise BadRequest(what) from error


def _is_labelled_eco(node: _Node) -> bool:
    labels = node.metadata.labels
    return labels is not None and labels.profile == "eco"


# --- answering --------------------------------------------------------------------------------

_NONE_FAILED = b',"FailedNodes":{},"FailedAndUnresolvableNodes":'
_NO_ERROR = b',"Error":""}'


def names_reply(asked: ExtenderArgs, passed: Flags, reason: str) -> bytes:
    """Every node of the request in exactly one place; all rejections carry one text.

    With two texts, or a changing one, kube-scheduler calls again at once and for ever; a rejection
    that preemption could "solve" evicts pods for nothing. Hence one text, in the second map.
    """
    names, is_kept = asked.names, np.asarray(passed, np.bool_)
    kept, out = names.raw, b"{}"
    if not is_kept.all():
        kept, out = names.where(is_kept), failed_nodes(names, is_kept, reason)
    return b"".join((b'{"Nodes":null,"NodeNames":', kept, _NONE_FAILED, out, _NO_ERROR))


def nodes_reply(asked: ExtenderArgs, passed: Flags, reason: str) -> bytes:
    """The same for whole nodes, which go back byte for byte because they are scored from."""
    objects = b",".join(compress(_sent_nodes(asked.whole), passed))
    out = failed_nodes(asked.names, passed, reason)
    parts = (b'{"Nodes":{"items":[', objects, b']},"NodeNames":null')
    return b"".join((*parts, _NONE_FAILED, out, _NO_ERROR))


def error_reply(why: str) -> bytes:
    """The pod waits with a back-off; if the extender is ignorable, kube-scheduler continues without
    it.
    """
    nothing = b'{"Nodes":null,"NodeNames":null' + _NONE_FAILED + b"{}"
    return nothing + b',"Error":' + _encode(why) + b"}"


def bind_reply(error: str = "") -> bytes:
    """An empty error means bound, and kube-scheduler does not verify it: the Binding must exist."""
    return b'{"Error":' + _encode(error) + b"}"


def prioritize_reply(names: Names, scores: Ints) -> bytes:
    return host_priorities(names, scores)


def preempt_reply(asked: PreemptionArgs, kept: Sequence[bool]) -> bytes:
    """Only victims that were sent, by their UIDs; a null would crash kube-scheduler."""
    pairs = compress(zip(asked.names.names, asked.victims, strict=True), kept)
    return _encode({"NodeNameToMetaVictims": {name: _meta(found) for name, found in pairs}})


def victims_of(asked: PreemptionArgs) -> Iterator[str]:
    return map(_uid_of, _pods_of(asked.victims))


def _pods_of(found: Iterable[_Victims]) -> Iterator[_Victim]:
    for victims in found:
        yield from (pod for pod in victims.pods or [] if pod is not None)


def _meta(victims: _Victims) -> dict[str, Any]:
    pods = [{"UID": uid} for uid in map(_uid_of, _pods_of([victims])) if uid]
    return {"Pods": pods, "NumPDBViolations": victims.violations or 0}


def _uid_of(pod: _Victim) -> str:
    return pod.uid or (pod.metadata.uid if pod.metadata else None) or ""


BAD_REQUESTS = (BadRequest, BadQuantity, BadName)  # what reading a request may raise
