"""Requests to the stand-in API server: routes, verbs, parameters and responses."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from kube_fields import Kind, Refused, Tree
from kube_objects import Objects

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
encode = msgspec.json.Encoder().encode


class Asked(NamedTuple):
    """One request, in terms of RBAC."""

    verb: str
    group: str
    resource: str  # with the subresource: nodetwins/status
    name: str
    user: str = "admin"
    version: str = ""  # the start of a watch
    more: bool = False  # a further page of a list
    initial: bool = False  # a watch with initial events

    @property
    def right(self) -> tuple[str, str, str]:
        return self.group, self.resource, self.verb


class Place(NamedTuple):
    kind: Kind
    namespace: str
    name: str
    sub: str


def place_of(request: web.Request, objects: Objects) -> Place | None:
    parts = request.path.strip("/").split("/")
    if parts[0] == "api":
        group, rest = "", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, rest = parts[1], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    kind = objects.kinds.get((group, rest[0]))
    if kind is None:
        return None
    name, sub = (*rest[1:], "", "")[:2]
    return Place(kind, namespace, name, sub)


def verb_of(request: web.Request, place: Place) -> str:
    if request.method != "GET":
        return VERBS[request.method]
    if place.name:
        return "get"
    return "watch" if request.query.get("watch") == "true" else "list"


def forbidden(asked: Asked, kind: Kind, user: str) -> Refused:
    message = (
        f'{kind.resource} is forbidden: User "{user}" cannot {asked.verb} resource '
        f'"{asked.resource}" in API group "{asked.group}" at the cluster scope'
    )
    details = {"name": asked.name, "group": asked.group, "kind": kind.plural}
    if asked.name:
        message = message.replace(f"{kind.resource} is", f'{kind.resource} "{asked.name}" is', 1)
    present = {key: value for key, value in details.items() if value}
    return Refused(403, "Forbidden", message, present)


async def body_of(request: web.Request) -> Tree:
    data = await request.read()
    try:
        body: Tree = json.loads(data)
    except ValueError:
        message = (
            "error decoding YAML: error converting YAML to JSON: yaml: line 1: did not find "
            "expected node content"
        )
        raise Refused(400, "BadRequest", message) from None
    return body


def answered(body: Tree, status: int, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        body=encode(body), status=status, content_type="application/json", headers=headers
    )


def partial(tree: Tree) -> bytes:
    return encode(
        {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": tree["metadata"],
        }
    )


def token_of(version: int, start: str) -> str:
    content = {"v": "meta.k8s.io/v1", "rv": version, "start": start}
    return base64.urlsafe_b64encode(encode(content)).decode().rstrip("=")


def token_read(token: str) -> tuple[int, str]:
    try:
        found = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return found["rv"], found["start"]
    except (ValueError, KeyError):
        message = (
            "invalid continue token: continue key is not valid: invalid character 'i' looking for "
            "beginning of value"
        )
        raise Refused(400, "BadRequest", message) from None


NO_GATE = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
NO_MATCH = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
NO_EVENTS = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"


def check_watch(query: Mapping[str, str], *, knows_initial_events: bool) -> None:
    """As validateWatchOptions of the real server, in its order."""
    wants, match = "sendInitialEvents" in query, query.get("resourceVersionMatch")
    wrong = []
    if wants and match != "NotOlderThan":
        wrong.append(("resourceVersionMatch", NO_MATCH))
    if wants and not knows_initial_events:
        wrong.append(("sendInitialEvents", NO_GATE))
    if match and not wants:
        wrong.append(("resourceVersionMatch", NO_EVENTS))
    if not wrong:
        return
    causes = [
        {"reason": "FieldValueForbidden", "message": f"Forbidden: {why}", "field": field}
        for field, why in wrong
    ]
    messages = [f"{cause['field']}: {cause['message']}" for cause in causes]
    listed = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    details = {"group": "meta.k8s.io", "kind": "ListOptions", "causes": causes}
    raise Refused(422, "Invalid", f'ListOptions.meta.k8s.io "" is invalid: {listed}', details)


def selector_of(query: Any) -> Callable[[Tree], bool]:
    labels = _terms(query.get("labelSelector", ""))
    fields = _terms(query.get("fieldSelector", ""))

    def fits(tree: Tree) -> bool:
        found = tree["metadata"].get("labels", {})
        return all((found.get(key) == value) is wanted for key, value, wanted in labels) and all(
            (_field(tree, key) == value) is wanted for key, value, wanted in fields
        )

    return fits


def _terms(text: str) -> list[tuple[str, str | None, bool]]:
    terms: list[tuple[str, str | None, bool]] = []
    for part in filter(None, text.split(",")):
        if "=" not in part:
            terms.append((part, None, False))  # it exists
            continue
        wanted = "!=" not in part
        key, _, value = part.replace("!=", "=").replace("==", "=").partition("=")
        terms.append((key, value, wanted))
    return terms


def _field(tree: Any, path: str) -> str:
    for step in path.split("."):
        tree = (tree or {}).get(step)
    return tree or ""
