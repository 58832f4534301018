"""The rights of each account of the chart, as a real kube-apiserver decides about them."""

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from helm_chart import CHART, NAMESPACE, helm, of_kind, rendered
from joulie_bus.errors import KubernetesRefused
from joulie_operator.kube.api_client import ApiServer
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
        await policy_is_in_force(server, operator, spec)
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


async def policy_is_in_force(server: Running, operator: ApiServer, spec: Any) -> None:
    """The API server reads a new policy some time after it was created."""
    await server.put(PODS, {"metadata": {"name": "q"}, "spec": spec})
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q"}}
    async with asyncio.timeout(60):
        for number in range(1, 200):
            change = {"status": {"podIP": f"10.0.1.{number}"}}
            try:
                await operator.apply(f"{PODS}/q/status", pod | change, force=False)
            except KubernetesRefused:
                return
            await asyncio.sleep(0.1)


def test_without_an_extender_the_operator_has_no_right_to_the_status_of_pods(home: Path) -> None:
    trees = rendered(home, "--set", "scheduler.mode=none")
    roles = [tree for tree in trees if tree["kind"] in ("Role", "ClusterRole")]

    assert not [each for tree in roles for each in of_role(tree) if each.resource == "pods/status"]
    assert not of_kind(trees, "ValidatingAdmissionPolicy")
