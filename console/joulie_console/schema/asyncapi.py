"""The AsyncAPI 3.0 document: every subject of the broker, every event, and the console's stream.

Made from the classes that encode the messages. The operations are what the user `viewer` receives.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from joulie_answers.schema import responses, routes
from joulie_bus.events import EVENT_TYPES, AnyEvent, CapOrder
from joulie_bus.events.codec import Envelope
from joulie_bus.streams.channels import CHANNELS, Channel
from joulie_bus.streams.roles import GRANTS, Role
from joulie_projections.chain.head import Head
from joulie_projections.chain.signed import Handover, Retirement

Tree = dict[str, Any]
MSGPACK, JSON = "application/msgpack", "application/json"
DESCRIPTION = """\
Events travel as MessagePack, in an envelope whose `data` is the event. The schemas describe the \
same values in JSON: what they call a string with `contentEncoding: base64` is binary in \
MessagePack. A name is one token of a subject: every byte other than a letter, a digit or "-" is \
written as "=" and two hexadecimal digits. `joulie.client` of the wheel decodes all of it."""
PARAMETERS = {
    "cluster": "The name of the cluster (JOULIE_CLUSTER)",
    "node": "The name of a node",
    "facility": "The name of a facility",
    "zone": "A zone of the grid, or * for all",
    "name": "A name",
    "class": "The class of pods",
    "card": "The uuid of a card",
    "claim": "A namespace, claim or template, and its name, with slashes between",
    "uid": "The uid of a pod",
    "replica": "The name of a replica of the extender, or `projector`",
}
SIGNED = (Head, Handover, Retirement)
# Between components of one version: no schema is promised.
INTERNAL = {
    "joulie.cuts.{cluster}": ("CutRequest", "A request of the archiver for a cut", JSON),
    "joulie.spool.{cluster}.{replica}": ("SpoolReport", "What waits in a spool", MSGPACK),
    "joulie.view.{cluster}.delta": ("ViewDelta", "The rows that one commit changed", MSGPACK),
    "joulie.view.{cluster}.beat": ("ViewBeat", "The position and digests of the state", MSGPACK),
}


def document(version: str) -> Tree:
    kinds: list[Any] = [Envelope, *EVENT_TYPES, CapOrder, *SIGNED, *_stream_kinds()]
    refs, schemas = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    known: dict[Any, Tree] = dict(zip(kinds, refs, strict=True))
    channels = {_name(channel.address): _channel(channel) for channel in CHANNELS}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Joulie",
            "version": version,
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": MSGPACK,
        "servers": _servers(),
        "channels": {**channels, routes.STREAM.name: _console_stream()},
        "operations": dict(_operations()),
        "components": {
            "messages": dict(_messages(known)),
            "schemas": _with_tuples(schemas),
            "securitySchemes": {
                "viewer": {"type": "userPassword"},
                "token": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _stream_kinds() -> list[Any]:
    return list(dict.fromkeys(responses.STREAM_VALUES.values()))


def _servers() -> Tree:
    def server(port: int, protocol: str, scheme: str, what: str) -> Tree:
        return {
            "host": f"{{host}}:{port}",
            "protocol": protocol,
            "description": what,
            "variables": {"host": {"default": "127.0.0.1"}},
            "security": [{"$ref": f"#/components/securitySchemes/{scheme}"}],
        }

    return {
        "broker": server(4222, "nats", "viewer", "The broker, for the user `viewer`"),
        "console": server(9870, "http", "token", "The console"),
    }


def _name(address: str) -> str:
    """joulie.obs.{cluster}.node.{node} -> obs.node.node"""
    tokens = [token.strip("{}_") for token in address.split(".")]
    return ".".join([tokens[1], *tokens[3:]])


def _channel(channel: Channel) -> Tree:
    parameters = re.findall(r"\{(\w+)\}", channel.address)
    return {
        "address": channel.address,
        "summary": f"{channel.what[0].upper()}{channel.what[1:]}",
        "servers": [{"$ref": "#/servers/broker"}],
        "parameters": {name: {"description": PARAMETERS[name]} for name in parameters},
        "messages": {name: _message_ref(name) for name in _message_names(channel)},
    }


def _message_names(channel: Channel) -> list[str]:
    match channel.address.split(".")[1]:
        case "caps":
            return [CapOrder.__name__]
        case "heads":
            return [cls.__name__ for cls in SIGNED]
        case "cuts" | "spool" | "view":
            return [INTERNAL[channel.address][0]]
        case _:
            return [cls.__name__ for cls in channel.events]


def _message_ref(name: str) -> Tree:
    return {"$ref": f"#/components/messages/{name}"}


def _console_stream() -> Tree:
    names = {kind: f"stream.{kind}" for kind in responses.STREAM_VALUES}
    return {
        "address": routes.STREAM.path,
        "summary": "Server-sent events of the console, which continue after Last-Event-ID",
        "servers": [{"$ref": "#/servers/console"}],
        "messages": {kind: _message_ref(name) for kind, name in names.items()},
    }


def _operations() -> Iterator[tuple[str, Tree]]:
    """What a program receives: with the password of a viewer, and with the console's token."""
    patterns = [subject.split(".")[:2] for subject in GRANTS[Role.VIEWER].subscribe]
    readable = [each.address for each in CHANNELS if each.address.split(".")[:2] in patterns]
    for name in [*map(_name, readable), routes.STREAM.name]:
        yield f"receive.{name}", {"action": "receive", "channel": {"$ref": f"#/channels/{name}"}}


def _messages(known: Mapping[Any, Tree]) -> Iterator[tuple[str, Tree]]:
    for event in EVENT_TYPES:
        yield event.__name__, _event_message(event, known)
    yield CapOrder.__name__, _message(CapOrder, known, MSGPACK)
    for cls in SIGNED:
        yield cls.__name__, _message(cls, known, JSON)
    for name, what, content_type in INTERNAL.values():
        yield name, {"name": name, "summary": what, "contentType": content_type}
    for kind, value in responses.STREAM_VALUES.items():
        yield f"stream.{kind}", {**_message(value, known, JSON), "name": kind}


def _message(cls: Any, known: Mapping[Any, Tree], content_type: str) -> Tree:
    return {"name": cls.__name__, "contentType": content_type, "payload": known[cls]}


def _event_message(event: type[AnyEvent], known: Mapping[Any, Tree]) -> Tree:
    inside = {"type": {"const": event.TYPE}, "v": {"const": event.VERSION}, "data": known[event]}
    return {
        "name": event.TYPE,
        "title": event.__name__,
        "summary": (event.__doc__ or "").partition("\n\n")[0].replace("\n    ", " "),
        "contentType": MSGPACK,
        "correlationId": {"location": "$message.payload#/corr"},
        "payload": {
            "allOf": [known[Envelope], {"type": "object", "properties": inside}],
        },
    }


def _with_tuples(schema: Any) -> Any:
    """As JSON Schema draft 7, of which AsyncAPI's schemas are a superset: tuples are `items`."""
    if isinstance(schema, list):
        return [_with_tuples(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {key: _with_tuples(part) for key, part in schema.items()}
    if "prefixItems" in changed:
        rest = changed.pop("items", None)
        changed["items"] = changed.pop("prefixItems")
        if rest is not None:
            changed["additionalItems"] = rest
    return changed
