"""The OpenAPI 3.1 document, made from the classes that parse the queries."""

from collections.abc import Sequence
from typing import Any

import msgspec

from joulie_answers.schema import requests, responses
from joulie_answers.schema.routes import Route

REFUSALS = {
    "400": "The query is not valid",
    "401": "The token is missing or wrong",
    "404": "Not found",
    "405": "Only GET and HEAD are allowed, and POST where a path has a body",
    "410": "Too far back: the facts of that time are gone, or too many for one query",
    "413": "The body is longer than 1 MiB",
    "415": "The Content-Type of the body is another one",
    "421": "The Host is not a name of this machine",
    "503": "Not loaded yet, or not readable at present",
}


def document(routes: Sequence[Route[Any, Any]], version: str) -> dict[str, Any]:
    answers: list[type] = [route.answer for route in routes if route.answer is not None]
    refs, components = _schemas([responses.Problem, *answers])
    known = dict(zip([responses.Problem, *answers], refs, strict=True))
    # Apart from the answers: a query may have the name of one.
    queries = sorted({route.query_type for route in routes}, key=lambda cls: cls.__name__)
    _, parameters = _schemas(queries)
    paths = {
        route.path: {
            "post" if route.body else "get": _operation(
                route, known, parameters.get(route.query_type.__name__, {})
            )
        }
        for route in routes
    }
    for cls in queries:
        parameters.pop(cls.__name__, None)
    components |= parameters  # what parameters refer to
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Joulie console",
            "version": version,
            "description": "Read-only. Every response carries its position and the age of that "
            "position; its ETag is made of the positions of both logs.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}, {"proxied": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "proxied": {"type": "apiKey", "in": "header", "name": requests.TOKEN_HEADER},
            },
        },
    }


def _schemas(kinds: Sequence[type]) -> tuple[Sequence[dict[str, Any]], dict[str, Any]]:
    """References to the schemas of these classes, and the schemas by name."""
    return msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")


def _operation(
    route: Route[Any, Any], known: dict[type, dict[str, Any]], schema: dict[str, Any]
) -> dict[str, Any]:
    return {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": _parameters(route, schema),
        **_body(route, schema),
        "responses": {"200": _answer(route, known), **_not_modified(route), **_refusals(known)},
    }


def _parameters(route: Route[Any, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if route.path_parameter is not None:
        name, path_parameter = route.path_parameter
        found.append({"name": name, "in": "path", "required": True, "schema": path_parameter})
    for name, property_schema in schema.get("properties", {}).items():
        if name == route.body:
            continue
        plain = {k: v for k, v in property_schema.items() if k != "default" or v not in ("", None)}
        found.append({"name": name, "in": "query", "required": False, "schema": _present(plain)})
    return found


def _body(route: Route[Any, Any], schema: dict[str, Any]) -> dict[str, Any]:
    if not route.body:
        return {}
    text = schema["properties"][route.body]
    return {"requestBody": {"required": True, "content": {"application/yaml": {"schema": text}}}}


def _present(schema: dict[str, Any]) -> dict[str, Any]:
    """Drops null from the schema: a URL omits a parameter instead."""
    if "anyOf" not in schema:
        return schema
    others = [option for option in schema["anyOf"] if option.get("type") != "null"]
    rest = {k: v for k, v in schema.items() if k != "anyOf"}
    return {**rest, **others[0]} if len(others) == 1 else {**rest, "anyOf": others}


def _answer(route: Route[Any, Any], known: dict[type, dict[str, Any]]) -> dict[str, Any]:
    if route.answer is None:
        content: dict[str, Any] = {"text/event-stream": {"schema": {"type": "string"}}}
        return {"description": "Events until the client disconnects", "content": content}
    content = {"application/json": {"schema": known[route.answer]}}
    headers = {
        **({} if route.body else {"ETag": {"schema": {"type": "string"}}}),
        "Joulie-Position": {"schema": {"type": "integer"}},
        "Joulie-Age-Ms": {"schema": {"type": "integer"}},
    }
    return {"description": route.summary, "content": content, "headers": headers}


def _not_modified(route: Route[Any, Any]) -> dict[str, Any]:
    if route.answer is None or route.body:
        return {}
    return {"304": {"description": "Nothing has changed since the ETag in If-None-Match"}}


def _refusals(known: dict[type, dict[str, Any]]) -> dict[str, Any]:
    content = {"application/problem+json": {"schema": known[responses.Problem]}}
    return {status: {"description": what, "content": content} for status, what in REFUSALS.items()}
