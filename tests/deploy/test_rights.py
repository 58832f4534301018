"""The rights of each account of the chart, as a real kube-apiserver decides about them."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from helm_chart import CHART, NAMESPACE, helm, of_kind, rendered
from joulie_bus.errors import KubernetesRefused
from joulie_operator.desired.objects import EXCLUDED, EXCLUSION_LABEL
from joulie_operator.kube.api_client import ApiServer
from joulie_operator.power.executors import AWAKE_ANNOTATIONS
from joulie_operator.resources.custom_resources import ANNOTATION_MANAGER
from joulie_operator.resources.rights import LEASE
from kube_real import Running

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
PODS = "/api/v1/namespaces/default/pods"
FORBIDDEN = 403
# An extender of its own account, which binds; and the webhook.
PATCH = ["-f", str(CHART / "values-patch.yaml"), "--set", "scheduler.configuration=split"]
OWN = [
    "--set=scheduler.admission=webhook,scheduler.configuration=gpu,headsTo.configMap=true",
    "--set=callout.enabled=true",
]
SCHEDULER = "joulie-scheduler"  # it has the roles that Kubernetes gives to kube-scheduler, too
# What none of the components ever needs.
BEYOND = [
    ("get", "", "secrets", NAMESPACE, ""),
    ("create", "", "pods", "default", ""),
    ("delete", "", "pods", "default", ""),
    ("delete", "", "nodes", "", ""),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings", "", ""),
    ("update", "apps", "deployments", NAMESPACE, ""),
    ("get", "", "nodes/proxy", "", ""),
]


class Wanted(NamedTuple):
    verb: str
    group: str
    resource: str
    namespace: str
    name: str  # of the object, where a rule names it


def of_role(tree: dict[str, Any]) -> set[Wanted]:
    namespace = tree["metadata"].get("namespace", "") if tree["kind"] == "Role" else ""
    return {
        Wanted(verb, group, resource, namespace, name)
        for rule in tree["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


def granted(trees: list[dict[str, Any]]) -> dict[str, set[Wanted]]:
    """The rights of each account that is not only for a hook, by roles of the chart."""
    accounts: dict[str, set[Wanted]] = {
        name: set()
        for name, tree in of_kind(trees, "ServiceAccount").items()
        if "helm.sh/hook" not in tree["metadata"].get("annotations", {})
    }
    for tree in trees:
        if tree["kind"] in ("RoleBinding", "ClusterRoleBinding"):
            roles = [each for each in trees if is_role_of(each, tree)]
            for subject in tree["subjects"]:
                rights = {right for role in roles for right in of_role(role)}
                accounts.get(subject["name"], set()).update(rights)
    return accounts


def is_role_of(tree: dict[str, Any], binding: dict[str, Any]) -> bool:
    where = binding["metadata"].get("namespace", "") if tree["kind"] == "Role" else ""
    return (tree["kind"], tree["metadata"]["name"], tree["metadata"].get("namespace", "")) == (
        *(binding["roleRef"]["kind"], binding["roleRef"]["name"]),
        where,
    )


async def may(api: ApiServer, account: str, wanted: Wanted) -> bool:
    resource, _, part = wanted.resource.partition("/")
    attributes = {
        "verb": wanted.verb,
        "group": wanted.group,
        "resource": resource,
        "subresource": part,
        "namespace": wanted.namespace,
        "name": wanted.name,
    }
    user = f"system:serviceaccount:{NAMESPACE}:{account}"
    reply = await api.create(REVIEWS, {"spec": {"user": user, "resourceAttributes": attributes}})
    return bool(json.loads(reply)["status"]["allowed"])


def covers(rights: set[Wanted], one: Wanted) -> bool:
    """A right for all namespaces or all names covers that for one of them."""
    return any(
        each[:3] == one[:3]
        and each.namespace in ("", one.namespace)
        and each.name in ("", one.name)
        for each in rights
    )


async def installed(server: Running, home: Path, options: list[str]) -> dict[str, set[Wanted]]:
    words = ["install", "joulie", str(CHART), "-n", NAMESPACE, "--create-namespace", *options]
    code, said = await asyncio.to_thread(helm, words, home, server.kubeconfig("admin"))
    assert code == 0, said
    return granted(rendered(home, *options))


@pytest.mark.parametrize(
    ("options", "with_rights"),
    [
        (PATCH, {"joulie-operator", "joulie-extender"}),
        (
            OWN,
            {
                "joulie-operator",
                "joulie-admission",
                "joulie-extender",
                "joulie-projector",
                "joulie-callout",
                SCHEDULER,
            },
        ),
    ],
    ids=["patch", "own"],
)
async def test_each_account_may_do_what_its_own_roles_allow_and_nothing_else(
    options: list[str], with_rights: set[str], server: Running, home: Path
) -> None:
    accounts = await installed(server, home, options)
    every = {one for rights in accounts.values() for one in rights} | {*map(Wanted._make, BEYOND)}

    assert {name for name, rights in accounts.items() if rights} == with_rights
    for name in accounts.keys() - {SCHEDULER}:
        asked = sorted(every)
        allowed = await asyncio.gather(*(may(server.api, name, one) for one in asked))
        for one, is_allowed in zip(asked, allowed, strict=True):
            assert is_allowed == covers(accounts[name], one), (name, one)


async def test_only_the_account_of_the_extender_may_bind_and_it_may_not_list(
    server: Running, home: Path
) -> None:
    await installed(server, home, PATCH)
    spec = {"containers": [{"name": "c", "image": "none"}]}
    await server.put(PODS, {"metadata": {"name": "p"}, "spec": spec})
    target = {"target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}}
    binding = {"metadata": {"name": "p"}, **target}
    async with (
        ApiServer.of(server.kubeconfig("operator")) as operator,
        ApiServer.of(server.kubeconfig("extender")) as extender,
    ):
        with pytest.raises(KubernetesRefused) as of_operator:
            await operator.create(f"{PODS}/p/binding", binding)
        with pytest.raises(KubernetesRefused) as of_list:
            await extender.fetch(PODS)
        await extender.create(f"{PODS}/p/binding", binding)

    assert (of_operator.value.code, of_list.value.code) == (FORBIDDEN, FORBIDDEN)
    pod = json.loads(await server.api.get(f"{PODS}/p") or b"{}")
    assert pod["spec"]["nodeName"] == "n1"


async def test_the_operator_may_nominate_and_change_nothing_else_of_a_pod(
    server: Running, home: Path
) -> None:
    await installed(server, home, PATCH)
    spec = {"containers": [{"name": "c", "image": "none"}]}
    await server.put(PODS, {"metadata": {"name": "p"}, "spec": spec})
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    refused: list[dict[str, Any]] = [
        {"status": {"podIP": "10.0.0.9"}},
        {"status": {"nominatedNodeName": "n2", "phase": "Failed"}},
        {"metadata": {"name": "p", "labels": {"app": "other"}}},
        {"metadata": {"name": "p", "annotations": {"joulie.io/workload-class": "performance"}}},
    ]
    async with ApiServer.of(server.kubeconfig("operator")) as operator:
        numbers, spare = count(1), pod | {"metadata": {"name": "q"}}
        await server.put(PODS, {"metadata": {"name": "q"}, "spec": spec})
        await refused_from_now_on(
            lambda: operator.apply(
                f"{PODS}/q/status", spare | {"status": {"podIP": f"10.0.1.{next(numbers)}"}}
            )
        )
        for change in refused:
            with pytest.raises(KubernetesRefused, match="Joulie's operator may"):
                await operator.apply(f"{PODS}/p/status", pod | change, force=False)
        for node in ("n1", "n2"):
            body = pod | {"status": {"nominatedNodeName": node}}
            await operator.apply(f"{PODS}/p/status", body, force=False)

    found = json.loads(await server.api.get(f"{PODS}/p") or b"{}")
    assert found["status"]["nominatedNodeName"] == "n2"
    assert "podIP" not in found["status"]
    assert not {"labels", "annotations"} & set(found["metadata"])


def test_without_an_extender_the_operator_has_no_right_to_the_status_of_pods(home: Path) -> None:
    trees = rendered(home, "--set", "scheduler.mode=none")
    roles = [tree for tree in trees if tree["kind"] in ("Role", "ClusterRole")]

    assert not [each for tree in roles for each in of_role(tree) if each.resource == "pods/status"]
    policies = of_kind(trees, "ValidatingAdmissionPolicy")
    assert policies.keys() == {"joulie-nodes", "joulie-lease"}


NODES = "/api/v1/nodes"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
NO_EXECUTE = [{"key": "x", "effect": "NoExecute"}]
OWN_LABELS = {
    "joulie.io/power-profile": "eco",
    "joulie.io/power-state": "asleep",
    EXCLUSION_LABEL: EXCLUDED,
}
REFUSED_ON_NODES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "a taint that evicts all pods": ("n1", {}, {"taints": NO_EXECUTE}),
    "a taint beside a cordon": ("n1", {}, {"unschedulable": True, "taints": NO_EXECUTE}),
    "addresses of pods": ("n1", {}, {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}),
    "a label of others": ("n1", {"labels": {"node-role.kubernetes.io/control-plane": ""}}, {}),
    "another label of ours": ("n1", {"labels": {"joulie.io/caps": "enforce"}}, {}),
    "a label that exists": ("n1", {"labels": {"team": "b"}}, {}),
    "an exclusion in the name of others": ("n1", {"labels": {EXCLUSION_LABEL: ""}}, {}),
    "an exclusion that others have set": ("n4", {"labels": {EXCLUSION_LABEL: EXCLUDED}}, {}),
    "another label of Kubernetes": (
        "n1",
        {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": EXCLUDED}},
        {},
    ),
    "the label of managed nodes": ("n2", {"labels": {"joulie.io/managed": "true"}}, {}),
    "an annotation of others": ("n1", {"annotations": {"x": "y"}}, {}),
    "a finalizer": ("n1", {"finalizers": ["example.com/never"]}, {}),
    "a label of a node that is not managed": ("n2", {"labels": OWN_LABELS}, {}),
    "a cordon of a node that is not managed": ("n2", {}, {"unschedulable": True}),
    "a cordon of a reserved node": ("n3", {}, {"unschedulable": True}),
}


async def test_the_operator_changes_its_own_fields_of_managed_nodes_and_nothing_else(
    server: Running, home: Path
) -> None:
    managed = {"joulie.io/managed": "true", "team": "a"}
    every = {"n1": managed, "n2": {"team": "a"}, "n3": managed | {"joulie.io/reserved": "true"}}
    every["n4"] = managed | {EXCLUSION_LABEL: ""}
    for name, labels in {**every, "spare": managed}.items():
        await server.put(NODES, {"metadata": {"name": name, "labels": labels}})
    numbers = count()
    await installed(server, home, PATCH)
    async with ApiServer.of(server.kubeconfig("operator")) as operator:
        await refused_from_now_on(lambda: operator.apply(f"{NODES}/spare", numbered(next(numbers))))
        allowed = [
            what
            for what, (name, meta, spec) in REFUSED_ON_NODES.items()
            if await is_allowed(operator.apply(f"{NODES}/{name}", node_of(name, meta, spec)))
        ]
        await asleep_and_awake(operator)
        asleep = json.loads(await server.api.get(f"{NODES}/n1") or b"{}")
        left = node_of("n1", {"labels": {"joulie.io/managed": "false"}})
        await server.api.apply(f"{NODES}/n1", left, manager="admin")
        await operator.apply(f"{NODES}/n1", node_of("n1"))
        await operator.apply(f"{NODES}/n1", node_of("n1"), manager=ANNOTATION_MANAGER)
    free = json.loads(await server.api.get(f"{NODES}/n1") or b"{}")

    assert allowed == []
    assert OWN_LABELS.items() <= asleep["metadata"]["labels"].items()
    assert asleep["spec"]["unschedulable"]
    assert AWAKE_ANNOTATIONS.items() <= asleep["metadata"]["annotations"].items()
    assert not OWN_LABELS.keys() & free["metadata"]["labels"].keys()
    assert not free["spec"].get("unschedulable")
    assert not AWAKE_ANNOTATIONS.keys() & free["metadata"].get("annotations", {}).keys()
    assert free["metadata"]["labels"]["team"] == "a"


def numbered(number: int) -> dict[str, Any]:
    return node_of("spare", {"annotations": {"number": str(number)}})


async def test_the_account_of_an_uninstall_removes_labels_and_changes_nothing_else(
    server: Running, home: Path
) -> None:
    labels = {"joulie.io/managed": "true"}
    for name in ("n1", "spare"):
        await server.put(NODES, {"metadata": {"name": name, "labels": labels}})
    await installed(server, home, PATCH)
    for kind in ("ClusterRole", "ClusterRoleBinding"):  # those of the hook
        hook = of_kind(rendered(home, *PATCH), kind)["joulie-release"]
        await server.put(server.place(kind), hook)
    written = node_of("n1", {"labels": OWN_LABELS})
    await server.api.apply(f"{NODES}/n1", written, manager="joulie-operator")
    numbers = count()
    async with ApiServer.of(server.kubeconfig("release")) as release:
        await refused_from_now_on(lambda: release.apply(f"{NODES}/spare", numbered(next(numbers))))
        tainted = node_of("n1", {}, {"taints": NO_EXECUTE})
        assert not await is_allowed(release.apply(f"{NODES}/n1", tainted))
        await release.apply(f"{NODES}/n1", node_of("n1"), manager="joulie-operator")

    free = json.loads(await server.api.get(f"{NODES}/n1") or b"{}")
    assert not OWN_LABELS.keys() & free["metadata"]["labels"].keys()
    assert not [each for each in free["spec"].get("taints", ()) if each["key"] == "x"]


async def asleep_and_awake(operator: ApiServer) -> None:
    """What the operator writes to a node that is to sleep, and for its autoscaler."""
    asleep = node_of("n1", {"labels": OWN_LABELS}, {"unschedulable": True})
    await operator.apply(f"{NODES}/n1", asleep)
    awake = node_of("n1", {"annotations": dict(AWAKE_ANNOTATIONS)})
    await operator.apply(f"{NODES}/n1", awake, manager=ANNOTATION_MANAGER)


async def is_allowed(call: Awaitable[object]) -> bool:
    try:
        await call
    except KubernetesRefused as refused:
        return "Joulie's operator may" not in str(refused)
    return True


async def refused_from_now_on(call: Callable[[], Awaitable[object]]) -> None:
    """The API server reads a new policy some time after it was created."""
    async with asyncio.timeout(60):
        while await is_allowed(call()):
            await asyncio.sleep(0.2)


async def test_the_operator_has_one_lease(server: Running, home: Path) -> None:
    await installed(server, home, PATCH)
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    await server.put(LEASES, lease | {"metadata": {"name": "joulie-scheduler"}})
    numbers = count()

    def another() -> Awaitable[object]:
        return operator.create(LEASES, lease | {"metadata": {"name": f"x{next(numbers)}"}})

    async with ApiServer.of(server.kubeconfig("operator")) as operator:
        await refused_from_now_on(another)
        await operator.create(LEASES, lease | {"metadata": {"name": LEASE}})
        assert await operator.get(f"{LEASES}/{LEASE}")
        with pytest.raises(KubernetesRefused) as other:
            await operator.get(f"{LEASES}/joulie-scheduler")

    assert other.value.code == FORBIDDEN


def test_the_policy_of_nodes_follows_the_selector_of_the_settings(home: Path) -> None:
    def selector(*options: str) -> str:
        found = of_kind(rendered(home, *options), "ValidatingAdmissionPolicy")["joulie-nodes"]
        [named] = [each for each in found["spec"]["variables"] if each["name"] == "selector"]
        return str(named["expression"])

    assert selector() == "{'joulie.io/managed': 'true'}"
    given = selector("--set-string", r"settings.NODE_SELECTOR=a=b\,c.d/e=f")
    assert given == "{'a': 'b', 'c.d/e': 'f'}"
    assert selector("--set-string", "settings.NODE_SELECTOR=") == "{}"


def node_of(name: str, meta: dict[str, Any] | None = None, spec: Any = None) -> dict[str, Any]:
    """The Node as the operator applies it."""
    fields = {"spec": spec} if spec else {}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name} | (meta or {}), **fields}
