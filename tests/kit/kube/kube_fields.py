"""Field ownership of server-side apply, as far as the recordings cover it. Pure."""

import copy
import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

Tree = dict[str, Any]
Path = tuple[str, ...]
NOW = "2026-11-21T06:38:39Z"


class Kind(NamedTuple):
    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = False
    has_status: bool = False
    schema: Tree | None = None

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The name in messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def title(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind


class Refused(Exception):
    """An error response of the server: a Status."""

    def __init__(self, code: int, reason: str, message: str, details: Tree | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.body: Tree = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "details": details,
            "code": code,
        }
        self.body = {key: value for key, value in self.body.items() if value not in ("", None)}


class Patch(NamedTuple):
    """The parameters of a server-side apply."""

    manager: str
    force: bool
    dry_run: bool
    subresource: str = ""


def details_of(kind: Kind, name: str, causes: list[Tree] | None = None) -> Tree:
    applied = {"name": name, "group": kind.group, "kind": kind.plural, "causes": causes}
    return {key: value for key, value in applied.items() if value}


def own(tree: Tree, patch: Patch, applied: Tree, kind: Kind) -> None:
    """Applies `applied`; fields that the manager alone owned and now leaves out are removed."""
    entries: list[Tree] = tree["metadata"].setdefault("managedFields", [])
    mine = next((entry for entry in entries if _is_of(entry, patch)), None)
    others = [entry for entry in entries if entry is not mine]
    wanted = dict(leaves(applied, kind.schema))
    _refuse_conflicts(tree, wanted, others, patch)
    for path in _paths(mine["fieldsV1"] if mine else {}) - wanted.keys():
        if not any(path in _paths(entry["fieldsV1"]) for entry in others):
            _remove(tree, path)
    for path, value in wanted.items():
        _put(tree, path, value)
    fields = _fields(wanted)
    if mine is not None and mine["fieldsV1"] == fields:
        return
    entry = {
        "apiVersion": kind.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        "manager": patch.manager,
        "operation": "Apply",
        "time": NOW,
    } | ({"subresource": patch.subresource} if patch.subresource else {})
    tree["metadata"]["managedFields"] = ([entry] if fields else []) + others
    if patch.subresource:
        tree["metadata"]["managedFields"].reverse()
    if not tree["metadata"]["managedFields"]:
        del tree["metadata"]["managedFields"]


def _is_of(entry: Tree, patch: Patch) -> bool:
    owner = (entry["manager"], entry["operation"], entry.get("subresource", ""))
    return owner == (patch.manager, "Apply", patch.subresource)


def _refuse_conflicts(
    tree: Tree, wanted: dict[Path, Any], others: list[Tree], patch: Patch
) -> None:
    causes = []
    for entry in others:
        for path in sorted(_paths(entry["fieldsV1"]) & wanted.keys()):
            if _look(tree, path) == wanted[path]:
                continue
            if patch.force:
                _disown(entry, path)
                continue
            cause = f'conflict with "{entry["manager"]}"'
            field = "." + ".".join(path)
            causes.append({"reason": "FieldManagerConflict", "message": cause, "field": field})
    if causes:
        s = "s" if len(causes) > 1 else ""
        applied = "; ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
        message = f"Apply failed with {len(causes)} conflict{s}: {applied}"
        raise Refused(409, "Conflict", message, {"causes": causes})


def leaves(
    tree: Mapping[str, Any], schema: Tree | None, at: Path = ()
) -> Iterator[tuple[Path, Any]]:
    """Every field with its path; items of keyed lists are addressed by their keys."""
    for key, value in tree.items():
        below = (schema or {}).get("properties", {}).get(key)
        if isinstance(value, dict) and value:
            yield from leaves(value, below, (*at, key))
        elif isinstance(value, list) and (keys := _list_keys(below)):
            for item in value:
                step = "k:" + json.dumps({name: item[name] for name in keys}, separators=(",", ":"))
                yield from leaves(item, None, (*at, key, step))
        elif not isinstance(value, dict):
            yield (*at, key), value


def _list_keys(schema: Tree | None) -> list[str]:
    is_map = (schema or {}).get("x-kubernetes-list-type") == "map"
    return schema["x-kubernetes-list-map-keys"] if schema and is_map else []


def _fields(wanted: Mapping[Path, Any]) -> Tree:
    fields: Tree = {}
    for path in wanted:
        here = fields
        for step in path:
            is_item = step.startswith("k:")
            here = here.setdefault(step if is_item else f"f:{step}", {".": {}} if is_item else {})
    return fields


def _paths(fields: Tree, at: Path = ()) -> set[Path]:
    found: set[Path] = set()
    for step, below in fields.items():
        if step == ".":
            continue
        path = (*at, step.removeprefix("f:"))
        deeper = _paths(below, path)
        found |= deeper or {path}
    return found


def _disown(entry: Tree, path: Path) -> None:
    here, way = entry["fieldsV1"], []
    for step in path:
        name = step if step.startswith("k:") else f"f:{step}"
        way.append((here, name))
        here = here[name]
    for above, name in reversed(way):
        if not above[name].keys() - {"."}:
            del above[name]


def _look(tree: Any, path: Path) -> Any:
    for step in path:
        tree = _item(tree, step) if step.startswith("k:") else (tree or {}).get(step)
    return tree


def _item(items: list[Tree] | None, step: str) -> Tree | None:
    keys = json.loads(step[2:])
    return next((item for item in items or [] if keys.items() <= item.items()), None)


def _put(tree: Tree, path: Path, value: Any) -> None:
    here: Any = tree
    for step, following in pairwise(path):
        if step.startswith("k:"):
            found = _item(here, step)
            if found is None:
                found = json.loads(step[2:])
                here.append(found)
            here = found
        else:
            here = here.setdefault(step, [] if following.startswith("k:") else {})
    here[path[-1]] = copy.deepcopy(value)


def _remove(tree: Tree, path: Path) -> None:
    """Removes the field, and parents that become empty; with the key of an item, the item."""
    *parents, last = path
    keyed = parents[-1] if parents else ""
    if keyed.startswith("k:") and last in json.loads(keyed[2:]):
        items = _look(tree, path[:-2])
        if (item := _item(items, keyed)) is not None:
            items.remove(item)
        return
    above = _look(tree, path[:-1])
    if isinstance(above, dict):
        above.pop(last, None)
    if above in ({}, []) and parents:
        if keyed.startswith("k:"):
            return
        _remove(tree, path[:-1])
