"""kube-scheduler's extender contract: what it sends, what it takes for an answer.

Names are taken from the request and never built: a name that was not sent fails the whole call, or
worse, gets a pod bound to a node that does not exist.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from joulie_bus.errors import BadRequest
from joulie_projections.pod import Pod

T = TypeVar("T")


class NodeList(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class ExtenderArgs(msgspec.Struct, rename="pascal"):
    """Filter and prioritize. An unused field comes as null; keys match whatever their case."""

    pod: Pod | None = None
    nodes: NodeList | None = None
    node_names: list[str] | None = None


class _Named(msgspec.Struct):
    class Metadata(msgspec.Struct):
        name: str

    metadata: Metadata


class Asked(NamedTuple):
    """One request, whichever form it came in."""

    pod: Pod
    names: list[str]
    objects: list[msgspec.Raw] | None  # the full form: nodes as they were sent


class HostPriority(msgspec.Struct, rename="pascal"):
    host: str
    score: int


class FilterResult(msgspec.Struct, rename="pascal"):
    nodes: NodeList | None
    node_names: list[str] | None
    failed_nodes: dict[str, str]
    failed_and_unresolvable_nodes: dict[str, str]
    error: str


_decode_args = msgspec.json.Decoder(ExtenderArgs).decode
_decode_any_case = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_name = msgspec.json.Decoder(_Named).decode
_encode = msgspec.json.Encoder().encode
_FIELDS = {"pod": "Pod", "nodes": "Nodes", "nodenames": "NodeNames"}


def read_args(body: bytes) -> Asked:
    """Raises BadRequest for what kube-scheduler never sends, and says where in the body."""
    try:
        args = _decode_args(body)
        if args.pod is None or (args.node_names is None and args.nodes is None):
            args = _decode_args(_in_pascal_case(body))
        if args.pod is None:
            raise BadRequest("The body has no Pod. kube-scheduler always sends one.")
        return _asked(args.pod, args)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"The body is not an ExtenderArgs: {error}.") from error


def _in_pascal_case(body: bytes) -> bytes:
    """Go decodes keys without regard to case, and so the docs' lower-case examples work too."""
    fields = _decode_any_case(body)
    return _encode({_FIELDS.get(key.lower(), key): value for key, value in fields.items()})


def _asked(pod: Pod, args: ExtenderArgs) -> Asked:
    if args.node_names is not None:
        return Asked(pod, args.node_names, None)
    if args.nodes is not None:
        objects = args.nodes.items or []
        return Asked(pod, [_name_of(item, at) for at, item in enumerate(objects)], objects)
    raise BadRequest("Both Nodes and NodeNames are null. One of them must list the candidates.")


def _name_of(item: msgspec.Raw, at: int) -> str:
    try:
        return _decode_name(item).metadata.name
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"$.Nodes.items[{at}] is not a Node with a name: {error}.") from error


def filter_reply(asked: Asked, passed: Sequence[bool], reason: str) -> bytes:
    """Every node of the request in exactly one place; all rejections carry one text.

    Two texts, or a changing one, make kube-scheduler call again at once and for ever; a rejection
    that preemption could "solve" empties nodes for nothing. Hence one text and the second map.
    """
    refused = {name: reason for name, fits in zip(asked.names, passed, strict=True) if not fits}
    names, nodes = None, None
    if asked.objects is None:
        names = list(_where(passed, asked.names))
    else:
        nodes = NodeList(list(_where(passed, asked.objects)))
    return _encode(
        FilterResult(
            nodes=nodes,
            node_names=names,
            failed_nodes={},
            failed_and_unresolvable_nodes=refused,
            error="",
        )
    )


def prioritize_reply(names: Sequence[str], scores: Sequence[int]) -> bytes:
    pairs = zip(names, scores, strict=True)
    return _encode([HostPriority(host=name, score=score) for name, score in pairs])


def _where(passed: Sequence[bool], values: Sequence[T]) -> Iterable[T]:
    return (value for value, fits in zip(values, passed, strict=True) if fits)
