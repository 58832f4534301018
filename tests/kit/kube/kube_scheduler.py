"""A stand-in for kube-scheduler 1.34: the same requests to extenders, the same use of responses.

It leaves out everything that an extender cannot observe. Time does not pass. A rejected pod is
retried at once if its condition changed, as since 1.33, else after a cluster event.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from go_http import CallFailed, Client
from go_json import (
    GoError,
    Shape,
    anything,
    decode,
    int64,
    list_of,
    map_of,
    pointer,
    string,
    struct,
)

Pod = dict[str, Any]
PER_POINT = 10  # MaxNodeScore / MaxExtenderPriority
_SAMPLE_FLOOR = 100

_NODE = struct(metadata=struct(name=string), status=anything)
_FILTER: Shape = struct(
    Nodes=pointer(struct(items=list_of(_NODE))),
    NodeNames=list_of(string),
    FailedNodes=map_of(string),
    FailedAndUnresolvableNodes=map_of(string),
    Error=string,
)
_PRIORITIES: Shape = list_of(struct(Host=string, Score=int64))
_PREEMPT: Shape = struct(
    NodeNameToMetaVictims=map_of(
        pointer(struct(Pods=list_of(pointer(struct(UID=string))), NumPDBViolations=int64))
    )
)


class SchedulerPanics(BaseException):
    """A nil pointer dereference: kube-scheduler crashes, and again after each restart."""


class ExtenderFailed(Exception):
    """Reported on the pod, which is retried after a backoff."""


@dataclass
class Block:
    """One entry of `extenders:`, with its connection."""

    client: Client
    filters: bool = True
    prioritizes: bool = True
    preempts: bool = False
    weight: int = 1
    node_cache_capable: bool = True
    ignorable: bool = False
    timeout_s: float = 5.0
    managed: tuple[str, ...] = ()
    calls: Counter[str] = field(default_factory=Counter[str])

    async def call(self, verb: str, args: dict[str, Any], shape: Shape) -> Any:
        """Encodes as Go does: capital keys in Go's order, null for unused ones, no blanks."""
        self.calls[verb] += 1
        body = json.dumps(args, separators=(",", ":")).encode()
        try:
            return decode(await self.client.post(verb, body, self.timeout_s), shape)
        except (CallFailed, GoError) as error:
            raise ExtenderFailed(str(error)) from error

    async def bind(self, pod: Pod, node: str) -> None:
        """Replaces the scheduler's own binder. No error in the response means bound."""
        metadata = pod["metadata"]
        args = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node,
        }
        reply = await self.call("bind", args, struct(Error=string))
        if reply["Error"]:
            raise ExtenderFailed(reply["Error"])

    def wants(self, pod: Pod) -> bool:
        if not self.managed:
            return True
        spec = pod.get("spec") or {}
        containers = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
        asked = {
            name
            for container in containers
            for part in (container.get("resources") or {}).values()
            for name in part
        }
        return not asked.isdisjoint(self.managed)


@dataclass
class Victim:
    uid: str
    cpu: int = 1
    priority: int = 0

    def manifest(self) -> Pod:
        return {"metadata": {"name": self.uid, "uid": self.uid}, "spec": {}, "status": {}}


@dataclass
class Node:
    cpu: int = 4
    pods: list[Victim] = field(default_factory=list[Victim])
    labels: dict[str, str] = field(default_factory=dict[str, str])
    is_cordoned: bool = False
    score: int = 0  # the sum of all plugins

    def free(self) -> int:
        return self.cpu - sum(pod.cpu for pod in self.pods)


class Filtered(NamedTuple):
    passed: list[str]
    failed: dict[str, str]
    unresolvable: dict[str, str]


class Attempt(NamedTuple):
    node: str | None
    message: str = ""  # of the pod's condition; empty if it was placed
    is_error: bool = False
    totals: Mapping[str, int] = MappingProxyType({})


class KubeScheduler:
    """Schedules one pod at a time, as kube-scheduler does."""

    def __init__(
        self, nodes: dict[str, Node], blocks: Sequence[Block], *, percentage: int = 0
    ) -> None:
        self.nodes = nodes
        self.blocks = sorted(blocks, key=lambda block: block.ignorable)
        self.percentage = percentage
        self.evicted: list[str] = []
        self.nominated: dict[str, str] = {}
        self.failed_prioritize: list[str] = []
        self._draw = random.Random(1)
        self._start = 0

    async def settle(self, pod: Pod, attempts: int = 30) -> list[Attempt]:
        """Attempts until the pod is placed or waits, or until `attempts` are used up (a loop)."""
        made: list[Attempt] = []
        while len(made) < attempts:
            made.append(await self.attempt(pod))
            was_evicted = self.nominated.get(uid_of(pod)) is not None
            if made[-1].node is not None or made[-1].is_error:
                break
            if len(made) > 1 and made[-1].message == made[-2].message and not was_evicted:
                break
        return made

    async def attempt(self, pod: Pod) -> Attempt:
        try:
            return await self._attempt(pod)
        except ExtenderFailed as error:
            return Attempt(None, str(error), is_error=True)

    async def _attempt(self, pod: Pod) -> Attempt:
        nominated = self.nominated.pop(uid_of(pod), None)
        if nominated is not None and self._fits(pod, self.nodes[nominated]):
            try:
                if (await self.filter(pod, [nominated])).passed:
                    return self._placed(pod, nominated)
            except ExtenderFailed:
                pass  # only logged; the attempt continues with all nodes
        feasible, rejected = self._feasible(pod)
        filtered = await self.filter(pod, feasible)
        if not filtered.passed:
            return await self._nothing_left(pod, filtered, rejected)
        if len(filtered.passed) == 1:
            return self._placed(pod, filtered.passed[0])
        totals = await self.prioritize(pod, filtered.passed)
        highest = max(totals.values())
        best = self._draw.choice([name for name in totals if totals[name] == highest])
        return self._placed(pod, best, totals)

    # --- plugins ---

    def _fits(self, pod: Pod, node: Node) -> bool:
        return not node.is_cordoned and node.free() >= cpu_of(pod)

    def _feasible(self, pod: Pod) -> tuple[list[str], list[str]]:
        """A moving window of the nodes that fit, and the rejected nodes within it."""
        names = list(self.nodes)
        wanted, found, rejected = self.sample_size(len(names)), list[str](), list[str]()
        seen = 0
        for name in [*names[self._start :], *names[: self._start]]:
            if len(found) == wanted:
                break
            seen += 1
            fits = self._fits(pod, self.nodes[name])
            (found if fits else rejected).append(name)
        self._start = (self._start + seen) % max(1, len(names))
        return found, rejected

    def sample_size(self, count: int) -> int:
        if count < _SAMPLE_FLOOR:
            return count
        percentage = self.percentage or max(5, 50 - count // 125)
        return count if percentage >= 100 else max(_SAMPLE_FLOOR, count * percentage // 100)

    # --- filter ---

    async def filter(self, pod: Pod, names: list[str]) -> Filtered:
        """Calls one extender after another, each with the nodes that the last one left."""
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        for block in self.blocks:
            if not names:
                break
            if not block.filters or not block.wants(pod):
                continue
            try:
                reply = await block.call("filter", self._args(block, pod, names), _FILTER)
                if reply["Error"]:
                    raise ExtenderFailed(reply["Error"])
                names = _passed(block, reply, names)
            except ExtenderFailed:
                if not block.ignorable:
                    raise
                continue
            failed |= reply["FailedNodes"]
            unresolvable |= reply["FailedAndUnresolvableNodes"]
        return Filtered(names, failed, unresolvable)

    def _args(self, block: Block, pod: Pod, names: Iterable[str]) -> dict[str, Any]:
        if block.node_cache_capable:
            return {"Pod": pod, "Nodes": None, "NodeNames": list(names)}
        items = [self._manifest(name) for name in names]
        return {"Pod": pod, "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}

    def _manifest(self, name: str) -> dict[str, Any]:
        node = self.nodes[name]
        metadata = {"name": name, "labels": node.labels}
        return {
            "metadata": metadata,
            "spec": {},
            "status": {"allocatable": {"cpu": str(node.cpu)}},
        }

    # --- prioritize ---

    async def prioritize(self, pod: Pod, names: list[str]) -> dict[str, int]:
        """Calls all extenders concurrently; a failed call only loses its scores."""
        totals = {name: self.nodes[name].score for name in names}
        asked = [block for block in self.blocks if block.prioritizes and block.wants(pod)]
        for block, scores in zip(
            asked, await asyncio.gather(*(self._scores(b, pod, names) for b in asked)), strict=True
        ):
            for each in scores:
                if each["Host"] in totals:
                    totals[each["Host"]] += PER_POINT * block.weight * each["Score"]
        return totals

    async def _scores(self, block: Block, pod: Pod, names: list[str]) -> list[dict[str, Any]]:
        try:
            reply = await block.call("prioritize", self._args(block, pod, names), _PRIORITIES)
        except ExtenderFailed as error:
            self.failed_prioritize.append(str(error))  # V(5): not logged by default
            return []
        return reply or []

    # --- nothing left ---

    async def _nothing_left(self, pod: Pod, filtered: Filtered, rejected: list[str]) -> Attempt:
        reasons = {name: "Insufficient cpu" for name in rejected}
        reasons |= {**filtered.failed, **filtered.unresolvable}
        counts = sorted(f"{n} {text}" for text, n in Counter(reasons.values()).items())
        message = f"0/{len(self.nodes)} nodes are available: {', '.join(counts)}."
        gone = set(filtered.unresolvable)
        resolvable = [n for n in [*rejected, *filtered.failed] if n not in gone]
        return Attempt(None, message + await self._preempt(pod, resolvable))

    async def _preempt(self, pod: Pod, resolvable: list[str]) -> str:
        """Dry runs use plugins only. Victims are evicted even if the pod is not placed then."""
        if pod["spec"].get("preemptionPolicy") == "Never":
            return " preemption: not eligible"
        victims = {n: found for n in resolvable if (found := self._victims(pod, n)) is not None}
        if any(not found for found in victims.values()):
            names = [name for name, found in victims.items() if not found]
            self._draw.shuffle(names)
            errors = ", ".join(f'expected at least one victim pod on node "{n}"' for n in names)
            return f" preemption: [{errors}]"
        try:
            victims = await self._asked_about(pod, victims)
        except ExtenderFailed as error:
            return f" preemption: {error}"
        if not victims:
            return " preemption: no candidate node for preemption"
        chosen = min(victims, key=lambda name: len(victims[name]))
        self._evict(chosen, victims[chosen])
        self.nominated[uid_of(pod)] = chosen
        return f" preemption: victims on {chosen}"

    def _victims(self, pod: Pod, name: str) -> list[str] | None:
        """The fewest pods of lower priority that make room; None if that is not enough."""
        node, wanted, found = self.nodes.get(name), cpu_of(pod), list[str]()
        if node is None or node.is_cordoned:
            return None
        free = node.free()
        for each in sorted(node.pods, key=lambda each: each.priority):
            if free >= wanted:
                break
            if each.priority < priority_of(pod):
                free += each.cpu
                found.append(each.uid)
        return found if free >= wanted else None

    async def _asked_about(self, pod: Pod, victims: dict[str, list[str]]) -> dict[str, list[str]]:
        for block in self.blocks:
            if not block.preempts or not victims:
                continue
            try:
                reply = await block.call("preempt", self._threat(block, pod, victims), _PREEMPT)
                victims = self._checked(block, reply["NodeNameToMetaVictims"])
            except ExtenderFailed:
                if not block.ignorable:
                    raise
        return victims

    def _threat(self, block: Block, pod: Pod, victims: dict[str, list[str]]) -> dict[str, Any]:
        if block.node_cache_capable:
            meta = {
                name: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0}
                for name, uids in victims.items()
            }
            return {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": meta}
        whole = {
            name: {
                "Pods": [pod.manifest() for pod in self.nodes[name].pods if pod.uid in uids],
                "NumPDBViolations": 0,
            }
            for name, uids in victims.items()
        }
        return {"Pod": pod, "NodeNameToVictims": whole, "NodeNameToMetaVictims": None}

    def _checked(self, block: Block, reply: dict[str, Any]) -> dict[str, list[str]]:
        """Checks node and UID; whether the node was a candidate is not checked."""
        kept: dict[str, list[str]] = {}
        for name, found in reply.items():
            if found is None or None in (found["Pods"] or []):
                raise SchedulerPanics("invalid memory address or nil pointer dereference")
            uids = [each["UID"] for each in found["Pods"] or []]
            node = self.nodes.get(name)
            if node is None or not {pod.uid for pod in node.pods}.issuperset(uids):
                raise ExtenderFailed(f"extender claims to preempt an unknown pod on {name}")
            if uids:
                kept[name] = uids
            elif not block.ignorable:
                raise ExtenderFailed(f'expected at least one victim pod on node "{name}"')
        return kept

    def _evict(self, name: str, uids: list[str]) -> None:
        self.evicted += uids
        node = self.nodes[name]
        node.pods = [pod for pod in node.pods if pod.uid not in uids]

    def _placed(self, pod: Pod, name: str, totals: dict[str, int] | None = None) -> Attempt:
        found = Victim(uid_of(pod), cpu_of(pod), priority_of(pod))
        self.nodes[name].pods.append(found)
        return Attempt(name, totals=totals or {})


def _passed(block: Block, reply: dict[str, Any], names: list[str]) -> list[str]:
    known = set(names)
    if block.node_cache_capable and reply["NodeNames"] is not None:
        for name in reply["NodeNames"]:
            if name not in known:
                raise ExtenderFailed(f'extender claims a filtered node "{name}" which is not found')
        return list(reply["NodeNames"])
    items = (reply["Nodes"] or {}).get("items") or []
    passed = [item["metadata"]["name"] for item in items]
    # kube-scheduler checks nothing here and binds the pod to any node of the response.
    assert known.issuperset(passed), f"a pod would be bound to {set(passed) - known}"
    return passed


def event_text(condition: str) -> str:
    """The event passes the text through Go's format function, without arguments."""
    text, rest = "", condition
    while rest:
        before, percent, rest = rest.partition("%")
        text += before
        if percent:
            flags = len(rest) - len(rest.lstrip(" +-#0"))
            text += f"%!{rest[flags : flags + 1]}(MISSING)" if rest else "%!(NOVERB)"
            rest = rest[flags + 1 :]
    return text


def uid_of(pod: Pod) -> str:
    uid: str = pod["metadata"]["uid"]
    return uid


def cpu_of(pod: Pod) -> int:
    containers = pod["spec"].get("containers") or []
    return sum(int(c["resources"]["requests"]["cpu"]) for c in containers if "resources" in c)


def priority_of(pod: Pod) -> int:
    priority: int = pod["spec"].get("priority", 0)
    return priority


def a_pod(
    uid: str = "p", *, cpu: int = 1, priority: int = 0, workload: str = "", gpus: int | None = None
) -> Pod:
    """A pod as the informer passes it on: complete, with fields that Joulie does not use."""
    requests: dict[str, Any] = {"cpu": str(cpu)}
    if gpus is not None:
        requests["nvidia.com/gpu"] = str(gpus)
    annotations = {"joulie.io/workload-class": workload} if workload else {}
    return {
        "metadata": {
            "name": uid,
            "namespace": "default",
            "uid": uid,
            "resourceVersion": "222",
            "creationTimestamp": "2026-11-21T06:33:12Z",
            "annotations": annotations,
            "managedFields": [{"manager": "unknown", "operation": "Update", "fieldsV1": {}}],
        },
        "spec": {
            "containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}],
            "schedulerName": "default-scheduler",
            "priority": priority,
        },
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    }
