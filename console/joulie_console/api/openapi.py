"""The OpenAPI 3.1 document, made from the very declarations that read questions. Pure."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from joulie_console.schema import requests, responses

REFUSALS = {
    "400": "The question cannot be read",
    "401": "The token is missing or wrong",
    "404": "There is no such thing",
    "405": "Only GET and HEAD are answered",
    "410": "Too far back: the facts of that time are gone, or too many for one question",
    "421": "Asked under a name that is not this machine's",
    "503": "Not loaded yet, or not readable now",
}


class Described(NamedTuple):
    """One route as the document shows it."""

    path: str
    name: str
    summary: str
    question: type[requests.Question]
    answer: type[responses.Answer] | None  # None: a stream of events
    place: tuple[str, dict[str, Any]] | None  # the part of the path that varies


def document(routes: Sequence[Described], version: str) -> dict[str, Any]:
    given: list[type] = [route.answer for route in routes if route.answer is not None]
    asked = {route.question for route in routes}
    requests = sorted(asked, key=lambda cls: cls.__name__)
    kinds: list[type] = [responses.Problem, *given, *requests]
    refs, components = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    known: dict[type, dict[str, Any]] = dict(zip(kinds, refs, strict=True))
    for cls in requests:
        components.setdefault(cls.__name__, {})
    paths = {
        route.path: {"get": _operation(route, known, components[route.question.__name__])}
        for route in routes
    }
    for cls in requests:
        components.pop(cls.__name__)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Joulie console",
            "version": version,
            "description": "Reads only. Every answer carries the position that it is of, and how "
            "old that is; its ETag is made of both logs' positions.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(
    route: Described, known: dict[type, dict[str, Any]], schema: dict[str, Any]
) -> dict[str, Any]:
    return {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": _parameters(route, schema),
        "responses": {"200": _answer(route, known), **_not_modified(route), **_refusals(known)},
    }


def _parameters(route: Described, schema: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if route.place is not None:
        name, place = route.place
        found.append({"name": name, "in": "path", "required": True, "schema": place})
    for name, property_schema in schema.get("properties", {}).items():
        plain = {k: v for k, v in property_schema.items() if k != "default" or v not in ("", None)}
        found.append({"name": name, "in": "query", "required": False, "schema": _present(plain)})
    return found


def _present(schema: dict[str, Any]) -> dict[str, Any]:
    """What is not asked is left out; no URL can say null."""
    if "anyOf" not in schema:
        return schema
    others = [option for option in schema["anyOf"] if option.get("type") != "null"]
    rest = {k: v for k, v in schema.items() if k != "anyOf"}
    return {**rest, **others[0]} if len(others) == 1 else {**rest, "anyOf": others}


def _answer(route: Described, known: dict[type, dict[str, Any]]) -> dict[str, Any]:
    if route.answer is None:
        content: dict[str, Any] = {"text/event-stream": {"schema": {"type": "string"}}}
        return {"description": "Events for as long as you listen", "content": content}
    content = {"application/json": {"schema": known[route.answer]}}
    headers = {
        "ETag": {"schema": {"type": "string"}},
        "Joulie-Position": {"schema": {"type": "integer"}},
        "Joulie-Age-Ms": {"schema": {"type": "integer"}},
    }
    return {"description": route.summary, "content": content, "headers": headers}


def _not_modified(route: Described) -> dict[str, Any]:
    if route.answer is None:
        return {}
    return {"304": {"description": "Nothing has changed since the ETag in If-None-Match"}}


def _refusals(known: dict[type, dict[str, Any]]) -> dict[str, Any]:
    content = {"application/problem+json": {"schema": known[responses.Problem]}}
    return {status: {"description": what, "content": content} for status, what in REFUSALS.items()}
