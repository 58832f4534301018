"""The API server of the drill: objects in memory, requests without a socket."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from joulie_bus.errors import KubernetesRefused
from joulie_operator.kube.api_client import JSON, NOT_FOUND, ApiServer
from joulie_operator.resources.crds import DEFINITIONS, definition
from kube_fields import Kind, Patch, Refused, Tree
from kube_objects import Objects

ENDS_LIST = {"k8s.io/initial-events-end": "true"}
READ_S = 0.001  # of a watch: what happened meanwhile arrives in one piece
CALL_S = 0.002
ALIVE = re.compile(r"status\.phase!=(\w+)")
encode = msgspec.json.Encoder().encode


class Place(NamedTuple):
    kind: Kind
    namespace: str
    name: str
    sub: str


class DrillCluster:
    """Objects, with the requests of the operator counted by verb and resource."""

    def __init__(self) -> None:
        self.objects = Objects()
        self.calls = Counter[str]()
        for tree in map(definition, DEFINITIONS):
            self.objects.create(self.kind("customresourcedefinitions"), "", tree)

    def kind(self, plural: str) -> Kind:
        return next(kind for kind in self.objects.kinds.values() if kind.plural == plural)

    def place_of(self, path: str) -> Place:
        """Raises KubernetesRefused: the kind is not installed."""
        parts = path.strip("/").split("/")
        group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
        if not rest:
            raise KubernetesRefused(path, NOT_FOUND, "no such group")
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        name, sub = (*rest[1:], "", "")[:2]
        kind = self.objects.kinds.get((group, rest[0]))
        if kind is None:
            raise KubernetesRefused(path, NOT_FOUND, "no such kind")
        return Place(kind, namespace, name, sub)


class DrillApi(ApiServer):
    """The client of the operator, whose requests are answered in this process."""

    def __init__(self, cluster: DrillCluster) -> None:
        self._cluster = cluster

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        timeout_s: float,
        content: tuple[Mapping[str, Any] | str | None, str] = (None, JSON),
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        place = self._cluster.place_of(path)
        of = f"{place.kind.plural}/{place.sub}".rstrip("/")
        is_watch = query.get("watch") == "true"
        self._cluster.calls[f"{'WATCH' if is_watch else method} {of}"] += 1
        if is_watch:
            return Watching(self._cluster.objects, place.kind, query)
        body = None if content[0] is None else encode(content[0])  # as a client has to
        await asyncio.sleep(CALL_S)
        try:
            return Answered(encode(self._answered(method, place, query, body)))
        except Refused as refused:
            raise KubernetesRefused(path, refused.code, str(refused.body.get("message"))) from None

    def _answered(
        self, method: str, place: Place, query: Mapping[str, str], body: bytes | None
    ) -> Tree:
        objects, (kind, namespace, name, sub) = self._cluster.objects, place
        tree: Tree = json.loads(body) if body else {}
        if method == "PATCH":
            patch = Patch(query["fieldManager"], query.get("force") == "true", False, sub)
            return objects.apply(kind, namespace, name, tree, patch)[1]
        if method == "POST":
            return objects.create(kind, namespace, tree)
        if method == "DELETE":
            return objects.delete(kind, namespace, name)
        if name:
            return objects.get(kind, namespace, name)
        items = list(objects.table(kind).values())
        return {"metadata": {"resourceVersion": str(objects.version)}, "items": items}


class Answered:
    """A reply that is complete."""

    status = 200
    headers: Mapping[str, str] = {}

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aenter__(self) -> "Answered":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def read(self) -> bytes:
        return self._body


class Watching:
    """The reply to a watch; `content` is where its chunks are read from."""

    status = 200

    def __init__(self, objects: Objects, kind: Kind, query: Mapping[str, str]) -> None:
        self.content = self
        self._objects, self._kind = objects, kind
        self._finished = set(ALIVE.findall(query.get("fieldSelector", "")))
        self._version = int(query.get("resourceVersion") or 0)
        self._lists = query.get("sendInitialEvents") == "true"
        self._changed = asyncio.Event()
        objects.listeners.append(self._changed.set)

    def close(self) -> None:
        self._objects.listeners.remove(self._changed.set)

    async def readany(self) -> bytes:
        if self._lists:
            self._lists = False
            return self._initial()
        while True:
            self._changed.clear()
            if chunk := self._news():
                return chunk
            await self._changed.wait()
            await asyncio.sleep(READ_S)

    def _initial(self) -> bytes:
        rows = self._objects.table(self._kind).items()
        lines = [_line("ADDED", tree) for _, tree in sorted(rows) if self._fits(tree)]
        self._version = self._objects.version
        meta = {"resourceVersion": str(self._version), "annotations": ENDS_LIST}
        end = {"kind": self._kind.kind, "apiVersion": self._kind.api_version, "metadata": meta}
        return b"".join([*lines, _line("BOOKMARK", end)])

    def _news(self) -> bytes:
        happened, self._version = self._objects.since(self._version), self._objects.version
        mine = (each for each in happened if each.kind == self._kind)
        return b"".join(
            _line(each.type if self._fits(each.after) else "DELETED", each.after) for each in mine
        )

    def _fits(self, tree: Tree) -> bool:
        return tree.get("status", {}).get("phase") not in self._finished


def _line(kind: str, tree: Tree) -> bytes:
    return encode({"type": kind, "object": tree}) + b"\n"
