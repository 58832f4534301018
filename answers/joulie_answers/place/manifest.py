"""The pods that the objects of a manifest make: YAML or JSON, several documents.

Objects without pods are named, and have no other effect.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import yaml  # type: ignore[import-untyped]
from msgspec.structs import replace

from joulie_answers.place.templates import (
    SPREAD_BY_DEFAULT,
    Refused,
    Template,
    Tree,
    name_of,
    templates_of,
)
from joulie_answers.schema.requests import MOST_BYTES
from joulie_bus.core.kube_names import require_label, require_subdomain
from joulie_bus.errors import BadName, BadQuantity, NotAnswered
from joulie_projections.pods.classify import CRITICAL_CLASSES
from joulie_projections.pods.demand import demand_of
from joulie_projections.pods.kubernetes_pod import Resources
from joulie_simulator.kube_scheduler.objects import Container, Pod
from joulie_simulator.kube_scheduler.requests import requests_of

MOST_PODS = 1000
DEFAULT_NAMESPACE = "default"
CRITICAL_PRIORITY = 2_000_000_000  # what admission gives to these classes, at least
NOTHING = "Nothing was computed."


class Pods(NamedTuple):
    """Equal pods of one template."""

    what: str  # such as Deployment team-a/web
    role: str  # of a template among several; empty: the only one
    pods: int
    pod: Pod
    spreads: bool = False  # kube-scheduler spreads the pods of such a controller by default
    notes: tuple[str, ...] = ()


class Manifest(NamedTuple):
    pods: list[Pods]
    ignored: list[str]  # objects that make no pods

    @property
    def size(self) -> int:
        return sum(each.pods for each in self.pods)


def read(text: str, namespace: str = "") -> Manifest:
    """Raises NotAnswered. `namespace` is that of objects that name none."""
    found = Manifest([], [])
    for where, tree in _objects(text):
        name = _named(tree, namespace)
        try:
            pods = [_pods(each, tree, name, namespace) for each in templates_of(tree)]
        except (Refused, BadName, BadQuantity) as error:
            why = str(error).rstrip(".")
            raise NotAnswered(400, f"{where}, {name}: {why}. {NOTHING}") from error
        found.pods.extend(each for each in pods if each.pods)
        if not pods:
            found.ignored.append(name)
    _require_some(found)
    return found


def _require_some(found: Manifest) -> None:
    if not found.pods:
        only = f" It has {', '.join(found.ignored[:5])}." if found.ignored else ""
        raise NotAnswered(400, f"No object of the manifest makes pods.{only} {NOTHING}")
    if found.size > MOST_PODS:
        raise NotAnswered(
            400,
            f"The manifest makes {found.size} pods, more than {MOST_PODS}. {NOTHING} Lower its "
            "replicas: equal pods are answered alike.",
        )


# --- documents --------------------------------------------------------------------------------


def _objects(text: str) -> Iterator[tuple[str, Tree]]:
    if len(text.encode()) > MOST_BYTES:
        raise NotAnswered(413, f"The manifest is longer than {MOST_BYTES >> 20} MiB. {NOTHING}")
    for number, document in enumerate(_documents(text), 1):
        if document is None:
            continue  # as between two lines of ---
        yield from _of_list(f"document {number}", document)


def _of_list(where: str, tree: object) -> Iterator[tuple[str, Tree]]:
    if not isinstance(tree, dict) or not isinstance(tree.get("kind"), str):
        raise NotAnswered(400, f"{where} is not an object with a kind. {NOTHING}")
    items = tree.get("items")
    if tree["kind"].endswith("List") and isinstance(items, list):
        for number, item in enumerate(items):
            yield from _of_list(f"{where}, items[{number}]", item)
        return
    yield where, tree


def _documents(text: str) -> list[object]:
    """JSON is YAML, too; but several documents of it are only read as YAML."""
    try:
        if "*" in text:
            _require_no_alias(text)
        return [*yaml.load_all(text, yaml.CSafeLoader)]
    except yaml.YAMLError as error:
        why = " ".join(str(error).split())
        raise NotAnswered(
            400, f"The manifest is neither YAML nor JSON: {why}. {NOTHING}"
        ) from error
    except (RecursionError, ValueError) as error:  # such as a date of month 13
        raise NotAnswered(400, f"The manifest cannot be read: {error}. {NOTHING}") from error


def _require_no_alias(text: str) -> None:
    """A few lines of aliases are a tree of any size."""
    for event in yaml.parse(text, yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent):
            line = event.start_mark.line + 1
            why = f"line {line} has an alias, *{event.anchor}: write what it stands for"
            raise NotAnswered(400, f"The manifest: {why}. {NOTHING}")


def _named(tree: Tree, namespace: str) -> str:
    metadata = tree.get("metadata")
    if not isinstance(metadata, dict):
        metadata = {}
    name = metadata.get("name") or metadata.get("generateName")
    own = metadata.get("namespace") or namespace or DEFAULT_NAMESPACE
    return f"{tree['kind']} {own}/{name}" if isinstance(name, str) else str(tree["kind"])


# --- pods -------------------------------------------------------------------------------------


def _pods(found: Template, tree: Tree, what: str, namespace: str) -> Pods:
    try:
        pod = msgspec.convert({**found.template, "status": None}, Pod)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Refused(_in_object(str(error), found.place)) from error
    if not pod.spec.containers:
        raise Refused(f"{_below(found.place, 'spec.containers')} is missing or empty")
    name = name_of(tree)
    own = str(tree["metadata"].get("namespace") or namespace or DEFAULT_NAMESPACE)
    require_label(own, "the namespace")
    require_subdomain(name.rstrip("-"), "metadata.name")
    named = replace(
        pod.metadata,
        name=name,
        namespace=own,
        uid=None,
        deletion_timestamp=None,
        labels={**(pod.metadata.labels or {}), **found.labels},
        owner_references=None,
    )
    known = _with_defaults(replace(pod, metadata=named))
    demand_of(known)  # both raise BadQuantity; this one says of which container
    requests_of(known)
    spreads = tree["kind"] in SPREAD_BY_DEFAULT
    return Pods(what, found.role, found.pods, known, spreads, found.notes)


def _in_object(error: str, place: str) -> str:
    """The place that the decoder names, as seen from the object."""
    text, _, inner = error.partition(" - at `$")
    inner = inner.rstrip("`").removeprefix(".")
    return f"{_below(place, inner) or 'the object'}: {text}"


def _below(place: str, inner: str) -> str:
    return f"{place}.{inner}" if place and inner else place or inner


def _with_defaults(pod: Pod) -> Pod:
    """What the API server fills in: a limit without a request is one, and classes of the system
    have a priority."""
    spec = pod.spec
    priority = spec.priority
    if spec.priority_class_name in CRITICAL_CLASSES and priority is None:
        priority = CRITICAL_PRIORITY
    filled = replace(
        spec,
        containers=_filled(spec.containers),
        init_containers=_filled(spec.init_containers),
        resources=_requested(spec.resources),
        priority=priority,
    )
    return replace(pod, spec=filled)


def _filled(containers: list[Container] | None) -> list[Container] | None:
    if containers is None:
        return None
    return [replace(each, resources=_requested(each.resources)) for each in containers]


def _requested(given: Resources | None) -> Resources | None:
    if given is None or not given.limits:
        return given
    return replace(given, requests={**given.limits, **(given.requests or {})})
