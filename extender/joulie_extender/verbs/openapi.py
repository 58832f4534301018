"""The OpenAPI document of the extender. A test sends generated requests to every operation."""

from typing import Any

import msgspec

from joulie_bus.core.kube_names import LONGEST_LABEL, LONGEST_SUBDOMAIN, LONGEST_UID

Schema = dict[str, Any]


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _map(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


_STRING: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer"}
_LABEL = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_NAME: Schema = {
    **_STRING,
    "pattern": rf"^{_LABEL}(\.{_LABEL})*$",
    "maxLength": LONGEST_SUBDOMAIN,
}
_NAMESPACE: Schema = {**_STRING, "pattern": f"^{_LABEL}$", "maxLength": LONGEST_LABEL}
_UID: Schema = {
    **_STRING,
    "pattern": "^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
    "maxLength": LONGEST_UID,
}
_NAMED = _object(name=_NAME) | {"required": ["name"]}
_NODE = _object(metadata=_NAMED) | {"required": ["metadata"]}
_ERROR = _object(error=_STRING) | {"required": ["error"]}
_POD = {
    "type": "object",
    "description": "A whole Pod, as Kubernetes writes it; what is not read is skipped.",
    "properties": {
        "metadata": _object(
            name=_NAME, namespace=_NAMESPACE, uid=_UID, annotations=_or_null(_map(_STRING))
        ),
        "spec": {"type": "object"},
    },
}
_VICTIMS = _object(Pods=_or_null(_array({"type": "object"})), NumPDBViolations=_COUNT)
_META_VICTIMS = _object(Pods=_or_null(_array(_object(UID=_UID))), NumPDBViolations=_COUNT)
_NODE_LIST = _object(items=_or_null(_array(_NODE)))
_NULL: Schema = {"type": "null"}


def _by_name(values: Schema) -> Schema:
    return {**_map(values), "propertyNames": _NAME}


_ARGS = {
    "description": "By names or by whole nodes: whichever is not null.",
    "anyOf": [
        _object(Pod=_POD, NodeNames=_array(_NAME), Nodes=_NULL)
        | {"required": ["Pod", "NodeNames"]},
        _object(Pod=_POD, Nodes=_NODE_LIST, NodeNames=_NULL) | {"required": ["Pod", "Nodes"]},
    ],
}
_PREEMPT_ARGS = {
    **_object(
        Pod=_POD,
        NodeNameToVictims=_or_null(_by_name(_VICTIMS)),
        NodeNameToMetaVictims=_or_null(_by_name(_META_VICTIMS)),
    ),
    "required": ["Pod"],
}
_FILTER_RESULT = _object(
    Nodes=_or_null(_object(items=_array(_NODE))),
    NodeNames=_or_null(_array(_STRING)),
    FailedNodes=_map(_STRING),
    FailedAndUnresolvableNodes=_map(_STRING),
    Error=_STRING,
)
_SCORE: Schema = {"type": "integer", "minimum": 0, "maximum": 100}
_PRIORITIES = _array(_object(Host=_STRING, Score=_SCORE) | {"required": ["Host", "Score"]})
_PREEMPT_RESULT = _object(NodeNameToMetaVictims=_map(_META_VICTIMS))


def _content(schema: Schema, media: str = "application/json") -> Schema:
    return {"content": {media: {"schema": schema}}}


_FOREIGN = (403, 421)  # from a page in a browser, or without the required certificate


def _refusals(*codes: int) -> Schema:
    told = {"description": "Nothing that kube-scheduler sends; says why", **_content(_ERROR)}
    return {str(code): told for code in codes}


def _verb(summary: str, args: Schema, result: Schema) -> Schema:
    rests_on = {
        "Joulie-View": {"description": "Position of the log it rests on", "schema": _COUNT},
        "Joulie-View-Age-Ms": {"description": "Age of the view", "schema": _COUNT},
    }
    answered = {"description": "The answer", "headers": rests_on, **_content(result)}
    return {
        "post": {
            "summary": summary,
            "requestBody": {"required": True, **_content(args)},
            "responses": {"200": answered, **_refusals(400, *_FOREIGN, 411, 413, 415, 503)},
        }
    }


def _page(summary: str, media: str, *refusals: int, **more: Any) -> Schema:
    schema = _STRING if media.startswith("text/") else {"type": "object"}
    shown = {"description": "The page", **_content(schema, media)}
    return {
        "get": {
            "summary": summary,
            "responses": {"200": shown, **_refusals(*_FOREIGN, *refusals)},
            **more,
        }
    }


def _health(summary: str) -> Schema:
    page = _page(summary, "text/plain")
    page["get"]["responses"]["503"] = {
        "description": "Not yet, or no more",
        **_content(_STRING, "text/plain"),
    }
    return page


_VERBS = {
    "filter": _verb("Which candidates a pod may have", _ARGS, _FILTER_RESULT),
    "prioritize": _verb("How good each candidate is", _ARGS, _PRIORITIES),
    "preempt": _verb("Which nodes are worth clearing", _PREEMPT_ARGS, _PREEMPT_RESULT),
}
_BINDING_ARGS = {
    **_object(PodName=_NAME, PodNamespace=_NAMESPACE, PodUID=_UID, Node=_NAME),
    "required": ["PodName", "PodUID", "Node"],
}
_BIND = _verb("Bind a pod, with the cards that it gets", _BINDING_ARGS, _object(Error=_STRING))
_UID_PLACE = {"name": "uid", "in": "path", "required": True, "schema": {**_STRING, "minLength": 1}}
_PATHS = {
    **{f"{at}/{name}": verb for at in ("", "/energy", "/gpu") for name, verb in _VERBS.items()},
    **dict.fromkeys(("/bind", "/gpu/bind"), _BIND),
    "/healthz": _page("Is this process alive?", "text/plain"),
    "/readyz": _health("Is the projection loaded and following?"),
    "/debug/scoring": _page("What scores are made of, node by node", "application/json"),
    "/explain/{uid}": _page(
        "The newest answers about a pod", "application/json", 404, parameters=[_UID_PLACE]
    ),
    "/openapi.json": _page("This document", "application/json"),
}
DOCUMENT: bytes = msgspec.json.encode(
    {
        "openapi": "3.1.0",
        "info": {
            "title": "Joulie's scheduler extender",
            "version": "1",
            "description": "kube-scheduler's extender contract. Top-level keys match in any case.",
        },
        "paths": _PATHS,
    }
)
