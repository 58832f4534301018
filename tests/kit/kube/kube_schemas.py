"""Validation and pruning by the schema of a custom resource, with the server's messages. Pure."""

import json
import re
from collections.abc import Iterator
from typing import Any

from kube_fields import Kind, Refused, Tree, details_of


def pruned(tree: Any, schema: Tree | None, at: str = "") -> list[str]:
    """Removes unknown fields, and returns them."""
    if schema is None:
        return []
    if schema.get("type") == "array" and isinstance(tree, list):
        return [f for item in tree for f in pruned(item, schema.get("items"), f"{at}[]")]
    properties = schema.get("properties")
    if properties is None or not isinstance(tree, dict):
        return []
    found = []
    for key in list(tree):
        where = f"{at}.{key}".lstrip(".")
        if not at and key in ("apiVersion", "kind", "metadata"):
            continue
        if key not in properties and schema.get("x-kubernetes-preserve-unknown-fields"):
            continue
        if key not in properties:
            del tree[key]
            found.append(where)
        else:
            found += pruned(tree[key], properties[key], where)
    return found


def check(tree: Tree, kind: Kind) -> None:
    mistakes = list(_mistakes(tree, kind.schema or {}, ""))
    if not mistakes:
        return
    name = tree["metadata"]["name"]
    messages = [f"{cause['field']}: {cause['message']}" for cause in mistakes]
    listed = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    message = f'{kind.title} "{name}" is invalid: {listed}'
    details = details_of(kind, name, mistakes) | {"kind": kind.kind}
    raise Refused(422, "Invalid", message, details)


_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
}


def _mistakes(value: Any, schema: Tree, at: str) -> Iterator[Tree]:
    yield from _value_mistakes(value, schema, at)
    if isinstance(value, dict):
        for name in schema.get("required", []):
            if name not in value:
                field = f"{at}.{name}".lstrip(".")
                yield _cause("FieldValueRequired", "Required value", field)
        for key, below in schema.get("properties", {}).items():
            if key in value and (at or key not in ("apiVersion", "kind", "metadata")):
                yield from _mistakes(value[key], below, f"{at}.{key}".lstrip("."))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _mistakes(item, schema.get("items", {}), f"{at}[{number}]")


def _value_mistakes(value: Any, schema: Tree, at: str) -> Iterator[Tree]:
    wanted: Any = _TYPES.get(schema.get("type", ""), object)
    is_odd = isinstance(value, bool) and wanted not in (bool, object)
    if is_odd or not isinstance(value, wanted):
        yield _cause("FieldValueTypeInvalid", f"must be of type {schema['type']}", at)
        return
    if "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(json.dumps(each) for each in schema["enum"])
        message = f"Unsupported value: {json.dumps(value)}: supported values: {allowed}"
        yield _cause("FieldValueNotSupported", message, at)
    if "maximum" in schema and value > schema["maximum"]:
        yield _bound(value, at, "less", schema["maximum"])
    if "minimum" in schema and value < schema["minimum"]:
        yield _bound(value, at, "greater", schema["minimum"])
    if isinstance(value, str):
        yield from _text_mistakes(value, schema, at)


def _text_mistakes(value: str, schema: Tree, at: str) -> Iterator[Tree]:
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        message = f"Too long: may not be more than {schema['maxLength']} bytes"
        yield _cause("FieldValueTooLong", message, at)
    if not re.search(schema.get("pattern", ""), value):
        yield _cause("FieldValueInvalid", f"Invalid value: {value!r}", at)


def _bound(value: float, at: str, which: str, limit: float) -> Tree:
    message = f"Invalid value: {value}: {at} in body should be {which} than or equal to {limit}"
    return _cause("FieldValueInvalid", message, at)


def _cause(reason: str, message: str, field: str) -> Tree:
    return {"reason": reason, "message": message, "field": field}
