"""Observes the cluster through its API server, with the rights of the account of this process."""

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeVar

import msgspec

from joulie_answers.doctor.judgement.calls import SchedulerPod
from joulie_answers.doctor.judgement.findings import Unseen
from joulie_answers.doctor.judgement.limits import Certificate, ClockSeen
from joulie_answers.doctor.judgement.objects import LABEL, Account, Admission, Part
from joulie_answers.doctor.judgement.placements import Placements, PodSeen, placements_in
from joulie_answers.doctor.observed_here import NS, certificate_in, clock_seen
from joulie_answers.readers.gauges import Gauges, gauges_of, parsed
from joulie_bus.errors import ConsoleUnavailable, KubernetesRefused
from joulie_extender.protocol.scheduler_config import DEFAULT_NAME, LEASE
from joulie_operator.kube.api_client import ApiServer, ApiUnreachable, Query
from joulie_operator.kube.served import served_version, server_version
from joulie_operator.resources.rights import NOMINATE, OWN_NAMESPACE, RIGHTS, Right

T = TypeVar("T")
Tree = dict[str, Any]
OURS: Query = {"labelSelector": "app.kubernetes.io/name=joulie"}
COMPONENT = "app.kubernetes.io/component"
ADMISSION = "/apis/admissionregistration.k8s.io"
POLICIES = "mutatingadmissionpolicies"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
REVIEWS = "/apis/authorization.k8s.io/v1"
MOST_PAGES = 4  # of pods whose placement is read
METRICS_PORT = 9877  # of all components of the chart


class Installed(NamedTuple):
    """The pods of the chart, by component; empty if Joulie runs elsewhere."""

    pods: Mapping[str, Sequence[Tree]]

    def rights(self, part: str) -> list[Right]:
        """What the component needs here. The chart without an extender grants no nominations."""
        nominates = not self.pods or "extender" in self.pods
        return [right for right in RIGHTS[part] if nominates or right != NOMINATE]

    @property
    def has_own_scheduler(self) -> bool:
        return "scheduler" in self.pods

    @property
    def binds(self) -> bool:
        return any(
            variable["name"] == "EXTENDER_BINDS"
            for pod in self.pods.get("extender", ())
            for container in pod["spec"]["containers"]
            for variable in container.get("env", ())
        )

    @property
    def extender_ready_since(self) -> int:
        """In ns; 0 if none is ready. A pod that got its node before was placed without it."""
        times = [_ready_since(pod) for pod in self.pods.get("extender", ())]
        return min(filter(None, times), default=0)

    def account(self, component: str) -> str:
        [pod, *_] = self.pods[component]
        return str(pod["spec"].get("serviceAccountName", "default"))


async def seen(call: Awaitable[T]) -> T | Unseen:
    try:
        return await call
    except (KubernetesRefused, ConsoleUnavailable, *ApiUnreachable) as error:
        return Unseen(str(error) or type(error).__name__)


class ClusterObserver:
    def __init__(self, api: ApiServer, namespace: str, *, is_inside: bool = False) -> None:
        """In a pod, metrics are read without the proxy of the API server, and so without a right
        to it.
        """
        self.api = api
        self._namespace = namespace
        self._is_inside = is_inside

    async def version(self) -> str:
        return (await server_version(self.api)).git

    async def clock(self) -> ClockSeen:
        before = time.time_ns()
        date = (await self.api.fetch("/version")).headers["Date"]
        there = int((parsedate_to_datetime(date).timestamp() + 0.5) * NS)  # it has whole seconds
        return clock_seen(there, before, time.time_ns(), 0.5)

    async def crd(self, name: str) -> Tree | None:
        found = await self.api.get(f"{DEFINITIONS}/{name}")
        return None if found is None else msgspec.json.decode(found, type=Tree)

    async def installed(self) -> Installed:
        pods: dict[str, list[Tree]] = defaultdict(list)
        async for pod in self._list(f"/api/v1/namespaces/{self._namespace}/pods", OURS):
            if _is_lasting(pod):
                pods[pod["metadata"]["labels"].get(COMPONENT, "")].append(pod)
        return Installed(pods)

    async def account(self, part: str, installed: Installed) -> Account:
        """What the account of the component may do; without pods of it, what we may do."""
        needed = installed.rights(part)
        name, review, spec = "this account", "selfsubjectaccessreviews", {}
        if part in installed.pods:
            name = f"system:serviceaccount:{self._namespace}:{installed.account(part)}"
            review, spec = "subjectaccessreviews", {"user": name}
        allowed = await asyncio.gather(*(self._may(review, spec, right) for right in needed))
        missing = [right for right, may in zip(needed, allowed, strict=True) if not may]
        return Account(part, name, missing)

    async def _may(self, review: str, spec: Mapping[str, Any], right: Right) -> bool:
        namespace = self._namespace if right.namespace == OWN_NAMESPACE else right.namespace
        wanted = {
            "verb": right.verb,
            "group": right.group,
            "resource": right.resource,
            "subresource": right.part,
            "namespace": namespace,
            "name": right.name,
        }
        body = {"spec": {**spec, "resourceAttributes": wanted}}
        answer = msgspec.json.decode(await self.api.create(f"{REVIEWS}/{review}", body))
        return bool(answer["status"]["allowed"])

    async def devices(self) -> str:
        """The version of the API of DRA that the operator reads; empty if there is none."""
        return await served_version(self.api)

    async def admission(self) -> Admission:
        versions = await self._policy_versions()
        policies, bound = list[str](), list[str]()
        for version in versions[:1]:
            at = f"{ADMISSION}/{version}/{POLICIES}"
            policies = [tree["metadata"]["name"] async for tree in self._list(at, OURS)]
            bindings = f"{ADMISSION}/{version}/mutatingadmissionpolicybindings"
            bound = [tree["spec"]["policyName"] async for tree in self._list(bindings, OURS)]
        hooks = f"{ADMISSION}/v1/mutatingwebhookconfigurations"
        webhooks = {
            tree["metadata"]["name"]: all(
                each["clientConfig"].get("caBundle") for each in tree.get("webhooks", ())
            )
            async for tree in self._list(hooks, OURS)
        }
        labelled = self._list("/api/v1/namespaces", {"labelSelector": LABEL})
        return Admission(versions, policies, bound, webhooks, len([_ async for _ in labelled]))

    async def _policy_versions(self) -> list[str]:
        """The versions of the API that serve MutatingAdmissionPolicies, the preferred one first."""
        group = await self._tree(ADMISSION)
        found = []
        for version in (each["version"] for each in group["versions"]):
            resources = (await self._tree(f"{ADMISSION}/{version}"))["resources"]
            if any(each["name"] == POLICIES for each in resources):
                found.append(version)
        return found

    async def certificates(self) -> list[Certificate | Unseen]:
        path = f"/api/v1/namespaces/{self._namespace}/secrets"
        tls = {**OURS, "fieldSelector": "type=kubernetes.io/tls"}
        return [
            certificate_in(
                f"Secret {tree['metadata']['name']}",
                msgspec.convert(tree["data"].get("tls.crt", ""), bytes, strict=False),
            )
            async for tree in self._list(path, tls)
        ]

    async def scheduler_names(self) -> list[str]:
        """The names of the schedulers that call the extender, from the chart's ConfigMap."""
        path = f"/api/v1/namespaces/{self._namespace}/configmaps/{LEASE}"
        found = await self.api.get(path)
        if found is None:
            return [DEFAULT_NAME]
        config = msgspec.json.decode(found, type=Tree).get("data", {}).get("config.yaml", "")
        return re.findall(r"schedulerName: \"?([^\s\"]+)", config) or [DEFAULT_NAME]

    async def placements(self, names: Sequence[str], now: int) -> Placements:
        """All pods without a node, and the placement of some others."""
        waiting, placed = list[PodSeen](), list[PodSeen]()
        for name in names:
            of = f"spec.schedulerName={name}"
            waiting += await self._pods(f"{of},spec.nodeName=", None)
            placed += await self._pods(of, MOST_PAGES)
        return placements_in(waiting, placed, now)

    async def _pods(self, selector: str, most: int | None) -> list[PodSeen]:
        found = list[PodSeen]()
        async for page in self.api.pages("/api/v1/pods", {"fieldSelector": selector}):
            found += [msgspec.json.decode(item, type=PodSeen) for item in page.items]
            most = None if most is None else most - 1
            if most == 0:
                break
        return found

    async def scheduler_pods(self) -> list[SchedulerPod]:
        path = "/api/v1/namespaces/kube-system/pods"
        return [
            SchedulerPod(pod["metadata"]["name"], _config_file(pod))
            async for pod in self._list(path, {"labelSelector": "component=kube-scheduler"})
        ]

    async def gauges(self, pods: Sequence[Tree]) -> list[Gauges] | Unseen:
        if self._is_inside:
            return await asyncio.to_thread(_from_inside, pods)
        return await asyncio.gather(*(self._scraped(pod) for pod in pods))

    async def _scraped(self, pod: Tree) -> Gauges:
        place = f"/api/v1/namespaces/{self._namespace}/pods"
        path = f"{place}/{pod['metadata']['name']}:{METRICS_PORT}/proxy/metrics"
        return parsed((await self.api.fetch(path)).body.decode())

    async def _tree(self, path: str) -> Tree:
        return msgspec.json.decode((await self.api.fetch(path)).body, type=Tree)

    async def _list(self, path: str, query: Query) -> AsyncIterator[Tree]:
        async for page in self.api.pages(path, query):
            for item in page.items:
                yield msgspec.json.decode(item, type=Tree)


def _is_lasting(pod: Tree) -> bool:
    """Neither at its end, nor a test that ends by itself: this process may run in one."""
    is_test = pod["spec"].get("restartPolicy") == "Never"
    return not is_test and pod["status"].get("phase") not in ("Succeeded", "Failed")


def _from_inside(pods: Sequence[Tree]) -> list[Gauges] | Unseen:
    hosts = {pod["metadata"]["name"]: pod["status"].get("podIP", "") for pod in pods}
    found = gauges_of({name: _address(host) for name, host in hosts.items() if host})
    if silent := sorted(hosts.keys() - found.keys()):
        return Unseen(f"{silent[0]} serves no metrics on port {METRICS_PORT}")
    return list(found.values())


def _address(host: str) -> str:
    return f"[{host}]:{METRICS_PORT}" if ":" in host else f"{host}:{METRICS_PORT}"


def parts_of(installed: Installed) -> list[Part]:
    return [
        Part(name, sum(not _why_not_ready(pod) for pod in pods), len(pods), _first_why(pods))
        for name, pods in sorted(installed.pods.items())
    ]


def _first_why(pods: Sequence[Tree]) -> str:
    return next((why for pod in pods if (why := _why_not_ready(pod))), "")


def _ready_since(pod: Tree) -> int:
    ready = _conditions(pod).get("Ready", {})
    since = ready.get("lastTransitionTime")
    if ready.get("status") != "True" or not since:  # a condition may have null
        return 0
    return int(datetime.fromisoformat(since).timestamp()) * NS


def _conditions(pod: Tree) -> Mapping[str, Tree]:
    return {each["type"]: each for each in pod["status"].get("conditions", ())}


def _why_not_ready(pod: Tree) -> str:
    """Empty if it is ready."""
    conditions = _conditions(pod)
    if conditions.get("Ready", {}).get("status") == "True":
        return ""
    for status in pod["status"].get("containerStatuses", ()):
        if (waits := status.get("state", {}).get("waiting")) is not None:
            return f"{status['name']}: {waits.get('reason', 'waiting')}"
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return str(scheduled.get("message", "it has no node"))
    return str(conditions.get("Ready", {}).get("message", "not ready"))


def _config_file(pod: Tree) -> str:
    [container, *_] = pod["spec"]["containers"]
    words = [*container.get("command", ()), *container.get("args", ())]
    values = [word.partition("=")[2] for word in words if word.startswith("--config=")]
    return values[0] if values else ""
