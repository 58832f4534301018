"""What a real kube-apiserver makes of pods: with the policy of the chart, and with its webhook."""

import base64
import contextlib
import json
import random
import sys
from collections.abc import AsyncGenerator, Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from authority import Authority
from helm_chart import of_kind, rendered
from joulie_bus.runtime.ports import free_port
from joulie_operator.desired.pod_patch import pod_patch
from joulie_operator.kube.api_client import JSON
from joulie_projections.pods.classify import CLASS_ANNOTATION, CRITICAL_CLASSES, PROFILE_LABEL
from kube_conditions import wait_until
from kube_real import PLACES, Running, real_server, started
from kube_versions import reported

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]
Tree = dict[str, Any]
NAMESPACES = {"plain": None, "fast": "performance", "slow": " standard "}
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
LABEL = "joulie.io/schedule"
PROFILE = "joulie.io/power-profile"
NOT_ECO = {"key": PROFILE, "operator": "NotIn", "values": ["eco"]}
ZONE = {"key": "zone", "operator": "In", "values": ["a", "b"]}
NO_GPU = {"key": "gpu", "operator": "DoesNotExist"}
NAME = {"key": "metadata.name", "operator": "In", "values": ["n1"]}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The fixture of a module needs an event loop of the module."""
    return "asyncio"


@pytest.fixture(scope="module", params=["policy", "webhook"])
async def admitting(
    request: pytest.FixtureRequest,
    assets: Path,
    home: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncGenerator[Running, None]:
    """A server with labelled namespaces, whose pods the policy or the webhook changes."""
    how, place = request.param, tmp_path_factory.mktemp("admitting")
    version = reported(assets / "kube-apiserver")
    trees = rendered(home, "--set", f"scheduler.admission={how}", version=version)
    change = by_policy if how == "policy" else by_webhook
    async with (
        real_server(place / "server", assets, bare=True) as server,
        change(server, trees, place),
    ):
        for name, given in NAMESPACES.items():
            await labelled(server, name, given)
        await wait_until(lambda: has_our_scheduler(server))
        yield server


async def labelled(server: Running, name: str, given: str | None) -> None:
    annotations = {} if given is None else {"joulie.io/workload-class": given}
    metadata = {"name": name, "labels": {LABEL: "true"}, "annotations": annotations}
    await server.put(PLACES["Namespace"], {"metadata": metadata})


@contextlib.asynccontextmanager
async def by_policy(server: Running, trees: list[Tree], _: Path) -> AsyncGenerator[None, None]:
    for kind in ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"):
        await server.put(server.place(kind), of_kind(trees, kind)["joulie-scheduler"])
    yield


@contextlib.asynccontextmanager
async def by_webhook(server: Running, trees: list[Tree], place: Path) -> AsyncGenerator[None, None]:
    """The program of the pod, with the rights of the pod, at an address of this machine."""
    for kind in ("ClusterRole", "ClusterRoleBinding"):
        await server.put(PLACES[kind], of_kind(trees, kind)["joulie-admission"])
    authority, port = Authority.made(place, "webhook"), free_port()
    cert, key = authority.issue(place, "joulie-admission")
    command = [sys.executable, "-m", "joulie_cli.main", "admission", "--kubeconfig"]
    command += [str(server.kubeconfig("admission")), f"--listen=127.0.0.1:{port}"]
    tree = of_kind(trees, "MutatingWebhookConfiguration")["joulie-scheduler"]
    tree["webhooks"][0]["clientConfig"] = {
        "url": f"https://127.0.0.1:{port}/mutate",
        "caBundle": base64.b64encode(authority.file.read_bytes()).decode(),
    }
    metrics = f"METRICS_ADDR=127.0.0.1:{free_port()}"
    words = ["env", metrics, *command, f"--cert={cert}", f"--key={key}"]
    async with started(words, place):
        await server.put(WEBHOOKS, tree)
        yield


async def stored(server: Running, namespace: str, tree: Tree) -> Tree:
    """What the server would store."""
    path = PLACES["Pod"].format(namespace=namespace)
    return dict(json.loads(await server.api._send("POST", path, {"dryRun": "All"}, tree, JSON)))


async def has_our_scheduler(server: Running) -> bool:
    """Also with the class of its namespace, which the webhook reads a moment later."""
    spec = (await stored(server, "fast", pod()))["spec"]
    return spec["schedulerName"] == "joulie" and "affinity" in spec


def pod(annotation: str | None = None, **spec: Any) -> Tree:
    annotations = {} if annotation is None else {"joulie.io/workload-class": annotation}
    metadata = {"generateName": "p-", "annotations": annotations}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]} | spec}


def terms_of(tree: Tree) -> Any:
    node = tree["spec"].get("affinity", {}).get("nodeAffinity", {})
    return node.get(REQUIRED, {}).get("nodeSelectorTerms")


def with_terms(*terms: Tree) -> Tree:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


@pytest.mark.parametrize(
    ("annotation", "namespace", "is_performance"),
    [
        ("performance", "plain", True),
        (" performance\t", "slow", True),
        (None, "fast", True),
        ("standard", "fast", False),
        ("Performance", "fast", False),
        ("", "fast", False),
        (None, "slow", False),
        (None, "plain", False),
    ],
)
async def test_the_annotation_of_the_pod_counts_before_that_of_its_namespace(
    admitting: Running, annotation: str | None, namespace: str, is_performance: bool
) -> None:
    tree = await stored(admitting, namespace, pod(annotation))

    assert tree["spec"]["schedulerName"] == "joulie"
    assert terms_of(tree) == ([{"matchExpressions": [NOT_ECO]}] if is_performance else None)


async def test_the_requirement_is_added_to_every_term_that_matches_a_node(
    admitting: Running,
) -> None:
    affinity = with_terms({"matchExpressions": [ZONE, NO_GPU]}, {"matchFields": [NAME]}, {}) | {
        "podAntiAffinity": {}
    }
    tree = await stored(admitting, "fast", pod(affinity=affinity))

    assert terms_of(tree) == [
        {"matchExpressions": [ZONE, NO_GPU, NOT_ECO]},
        {"matchExpressions": [NOT_ECO], "matchFields": [NAME]},
        {},
    ]


UNCHANGED: list[Tree] = [
    {"schedulerName": "other"},
    {"nodeName": "n1"},
    {"priorityClassName": "system-node-critical"},
]


@pytest.mark.parametrize("spec", UNCHANGED, ids=str)
async def test_pods_of_the_system_and_of_other_schedulers_stay_as_they_are(
    admitting: Running, spec: Tree
) -> None:
    tree = await stored(admitting, "fast", pod("performance", **spec))

    assert tree["spec"]["schedulerName"] == spec.get("schedulerName", "default-scheduler")
    assert terms_of(tree) is None


async def test_a_pod_of_a_daemonset_stays_as_it_is(admitting: Running) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}
    asked = pod("performance", affinity=with_terms({"matchFields": [NAME]}))
    asked["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    tree = await stored(admitting, "fast", asked)

    assert tree["spec"]["schedulerName"] == "default-scheduler"
    assert terms_of(tree) == [{"matchFields": [NAME]}]


@pytest.mark.parametrize(
    ("owner", "terms"),
    [
        ({"apiVersion": "tenant.example/v1"}, [{"matchFields": [NAME]}]),
        ({"apiVersion": "apps.example/v1"}, [{"matchFields": [NAME]}]),
        ({"controller": False}, [{"matchFields": [NAME]}]),
        ({}, None),
        ({}, [{"matchExpressions": [ZONE]}]),
        ({}, [{"matchFields": [NAME]}, {"matchFields": [NAME]}]),
        ({}, [{"matchFields": [NAME], "matchExpressions": [ZONE]}]),
    ],
    ids=str,
)
async def test_an_owner_that_a_tenant_writes_is_no_way_around_the_scheduler(
    admitting: Running, owner: Tree, terms: list[Tree] | None
) -> None:
    found = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}
    asked = pod() if terms is None else pod(affinity=with_terms(*terms))
    asked["metadata"]["ownerReferences"] = [found | {"controller": True} | owner]

    tree = await stored(admitting, "plain", asked)

    assert tree["spec"]["schedulerName"] == "joulie"


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {PROFILE: "eco"}},
        {"affinity": with_terms({"matchExpressions": [NOT_ECO | {"operator": "In"}]})},
        {"affinity": with_terms({"matchExpressions": [NOT_ECO]})},
    ],
    ids=str,
)
async def test_a_pod_that_constrains_the_profile_keeps_its_constraints(
    admitting: Running, spec: Tree
) -> None:
    tree = await stored(admitting, "fast", pod(**spec))

    assert tree["spec"]["schedulerName"] == "joulie"
    assert terms_of(tree) == terms_of({"spec": spec})


async def test_a_namespace_without_the_label_changes_nothing(admitting: Running) -> None:
    await admitting.put(PLACES["Namespace"], {"metadata": {"name": "other"}})
    tree = await stored(admitting, "other", pod("performance"))

    assert tree["spec"]["schedulerName"] == "default-scheduler"
    assert terms_of(tree) is None


async def test_any_pod_gets_what_the_code_computes(admitting: Running) -> None:
    """Policy and webhook have the same rules: both give what `pod_patch` gives."""
    draw = random.Random(1)
    for _ in range(150):
        namespace, asked = draw.choice(list(NAMESPACES)), any_pod(draw)
        kept = {"fast": "performance", "slow": "standard"}.get(namespace)
        patch = pod_patch(with_priority(asked), kept, "joulie")  # type: ignore[arg-type]
        expected = patched(asked, patch)

        found = await stored(admitting, namespace, asked)

        scheduler = expected["spec"].get("schedulerName", "default-scheduler")
        assert found["spec"]["schedulerName"] == scheduler, asked
        assert terms_of(found) == terms_of(expected), asked
        assert found["spec"].get("affinity", {}) == expected["spec"].get("affinity", {}), asked


def with_priority(tree: Tree) -> Tree:
    """The API server derives it from the class, before it asks anyone, and accepts no other."""
    is_critical = "priorityClassName" in tree["spec"]
    return {**tree, "spec": tree["spec"] | ({"priority": 2_000_000_000} if is_critical else {})}


def any_pod(draw: random.Random) -> Tree:
    spec: Tree = {}
    some: list[tuple[str, Callable[[], Any]]] = [
        ("schedulerName", lambda: draw.choice(["other", "default-scheduler"])),
        ("nodeSelector", lambda: draw.choice([{PROFILE: "eco"}, {"zone": "a"}])),
        ("priorityClassName", lambda: "system-cluster-critical"),
    ]
    for name, value in some:
        if draw.random() < 0.15:
            spec[name] = value()
    if draw.random() < 0.7:
        spec["affinity"] = any_affinity(draw)
    made = pod(draw.choice([None, None, "performance", "standard", " performance"]), **spec)
    if draw.random() < 0.4:
        version = draw.choice(["apps/v1", "apps/v1", "batch/v1"])
        owner = {"apiVersion": version, "kind": "DaemonSet", "name": "d", "uid": "u"}
        made["metadata"]["ownerReferences"] = [owner | {"controller": draw.random() < 0.8}]
    return made


def any_affinity(draw: random.Random) -> Tree:
    term = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"}
    apart = {"podAntiAffinity": {REQUIRED: [term]}}
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    near = {
        "nodeAffinity": {preferred: [{"weight": 1, "preference": {"matchExpressions": [ZONE]}}]}
    }
    kinds: list[Tree] = [apart, near]
    if draw.random() < 0.3:
        return draw.choice(kinds)
    exists = {"key": "rack", "operator": "Exists"}
    pool = [ZONE, NO_GPU, exists, NOT_ECO]
    terms: list[Tree] = []
    for _ in range(draw.randint(1, 3)):
        drawn: Tree = {"matchExpressions": draw.sample(pool, draw.choice([0, 0, 1, 1, 2]))}
        if draw.random() < 0.3:
            drawn["matchFields"] = [NAME]
        terms.append({key: value for key, value in drawn.items() if value})
    both = with_terms(*terms)
    if draw.random() < 0.3:
        both["nodeAffinity"] |= near["nodeAffinity"]
    return both | draw.choice([apart, {}])


def patched(tree: Tree, patch: list[Tree]) -> Tree:
    result = deepcopy(tree)
    for change in patch:
        *parents, last = change["path"].strip("/").split("/")
        below = result
        for name in parents:
            below = below[name]
        below[last] = change["value"]
    return result


async def test_without_the_label_on_the_namespace_pods_are_given_back(admitting: Running) -> None:
    await labelled(admitting, "leaving", "performance")

    async def has(scheduler: str) -> bool:
        tree = await stored(admitting, "leaving", pod())
        is_ours = terms_of(tree) is not None
        return tree["spec"]["schedulerName"] == scheduler and is_ours == (scheduler == "joulie")

    await wait_until(lambda: has("joulie"))
    away = {"metadata": {"labels": {LABEL: None}}}
    path, merge = f"{PLACES['Namespace']}/leaving", "application/merge-patch+json"
    await admitting.api._send("PATCH", path, {}, away, merge)

    await wait_until(lambda: has("default-scheduler"))


def test_the_policy_names_the_labels_of_the_code(home: Path) -> None:
    trees = rendered(home, "--set", "scheduler.admission=policy")
    text = json.dumps(of_kind(trees, "MutatingAdmissionPolicy"))

    assert f"'{PROFILE_LABEL}'" in text
    assert f"'{CLASS_ANNOTATION}'" in text
    assert all(f"'{name}'" in text for name in CRITICAL_CLASSES)
