"""The pods that a manifest makes."""

import json
import time
from typing import Any

import pytest

from joulie_answers.place.manifest import MOST_PODS, Pods, read
from joulie_bus.errors import NotAnswered
from joulie_simulator.kube_scheduler.requests import requests_of

POD: dict[str, Any] = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]},
}
JOB = {"parallelism": 4, "template": POD}


def an_object(kind: str, spec: dict[str, Any], version: str = "v1") -> str:
    metadata = {"name": "one", "namespace": "team-a"}
    return json.dumps({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})


def roles(text: str) -> dict[str, int]:
    return {each.role: each.pods for each in read(text).pods}


def one(text: str) -> Pods:
    [found] = read(text).pods
    return found


KINDS = {
    "Pod": (POD["spec"], {"": 1}),
    "Deployment": ({"replicas": 3, "template": POD}, {"": 3}),
    "ReplicaSet": ({"replicas": 2, "template": POD}, {"": 2}),
    "StatefulSet": ({"template": POD}, {"": 1}),
    "ReplicationController": ({"replicas": 2, "template": POD}, {"": 2}),
    "Job": (JOB, {"": 4}),
    "CronJob": ({"jobTemplate": {"spec": JOB}}, {"": 4}),
    "JobSet": (
        {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": JOB}}]},
        {"w": 8},
    ),
    "LeaderWorkerSet": (
        {"replicas": 2, "leaderWorkerTemplate": {"size": 4, "workerTemplate": POD}},
        {"worker": 8},
    ),
    "PyTorchJob": (
        {
            "pytorchReplicaSpecs": {
                "Master": {"template": POD},
                "Worker": {"replicas": 7, "template": POD},
            }
        },
        {"Master": 1, "Worker": 7},
    ),
    "Rollout": ({"replicas": 5, "template": POD}, {"": 5}),  # of which nothing is known
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_makes_the_pods_of_its_templates(kind: str) -> None:
    spec, pods = KINDS[kind]
    found = read(an_object(kind, spec))

    assert {each.role: each.pods for each in found.pods} == pods
    assert {each.what for each in found.pods} == {f"{kind} team-a/one"}
    assert {requests_of(each.pod).amounts["cpu"] for each in found.pods} == {2000}
    assert {each.pod.metadata.namespace for each in found.pods} == {"team-a"}


def test_a_leader_has_a_template_of_its_own() -> None:
    both = {"size": 4, "workerTemplate": POD, "leaderTemplate": POD}
    text = an_object("LeaderWorkerSet", {"replicas": 2, "leaderWorkerTemplate": both})

    assert roles(text) == {"leader": 2, "worker": 6}


def test_a_job_of_volcano_has_tasks_which_are_a_group() -> None:
    tasks = [{"name": "w", "replicas": 3, "template": POD}]
    found = one(an_object("Job", {"tasks": tasks}, "batch.volcano.sh/v1alpha1"))

    assert (found.role, found.pods) == ("w", 3)
    assert (found.pod.metadata.labels or {})["volcano.sh/job-name"] == "one"


def test_a_job_that_completes_earlier_has_fewer_pods_at_the_same_time() -> None:
    assert roles(an_object("Job", {**JOB, "completions": 3})) == {"": 3}
    assert roles(an_object("Job", {**JOB, "completions": 30})) == {"": 4}


def test_a_suspended_object_says_so() -> None:
    assert "suspended" in one(an_object("Job", {**JOB, "suspend": True})).notes[0]
    assert one(an_object("Job", JOB)).notes == ()


def test_documents_lists_and_objects_without_pods_are_read_in_order() -> None:
    pod, job = json.loads(an_object("Pod", POD["spec"])), json.loads(an_object("Job", JOB))
    service = {"kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": []}}
    items = json.dumps({"kind": "List", "items": [service, pod]})
    found = read(f"---\n{items}\n---\n\n---\n{json.dumps(job)}\n")

    assert [each.what for each in found.pods] == ["Pod team-a/one", "Job team-a/one"]
    assert found.ignored == ["Service default/web"]


def test_the_namespace_of_the_question_is_for_objects_that_name_none() -> None:
    text = "kind: Pod\nmetadata: {generateName: a-}\nspec: {containers: [{name: c}]}"

    assert one(text).what == "Pod default/a-"
    assert read(text, "team-b").pods[0].pod.metadata.namespace == "team-b"
    assert read(an_object("Job", JOB), "team-b").pods[0].pod.metadata.namespace == "team-a"


def test_a_limit_without_a_request_is_one() -> None:
    limits = {"resources": {"limits": {"cpu": 3, "nvidia.com/gpu": 8}, "requests": {"cpu": 1}}}
    found = one(an_object("Pod", {"containers": [{"name": "c", **limits}]}))

    assert dict(requests_of(found.pod).amounts) == {"cpu": 1000, "nvidia.com/gpu": 8}


WRONG = {
    "no YAML": ("a: [", "neither YAML nor JSON"),
    "nothing": ("", "No object of the manifest makes pods"),
    "a text": ("hello", "document 1 is not an object with a kind"),
    "no kind": ("spec: {}", "document 1 is not an object with a kind"),
    "a list of texts": ("kind: List\nitems: [a]", "document 1, items[0] is not an object"),
    "no pods": ("kind: Service\nmetadata: {name: a}", "It has Service default/a"),
    "no name": ("kind: Pod\nspec: {containers: [{name: c}]}", "metadata is missing"),
    "a bad name": ("kind: Pod\nmetadata: {name: A_b}\nspec: {containers: [{}]}", "'A_b'"),
    "a bad namespace": (
        "kind: Pod\nmetadata: {name: a, namespace: a.b}\nspec: {containers: [{}]}",
        "the namespace",
    ),
    "a daemon set": (an_object("DaemonSet", {"template": POD}), "for each node"),
    "no template": (an_object("Deployment", {"replicas": 1}), "spec.template is missing"),
    "no containers": (an_object("Deployment", {"template": {"spec": {}}}), "template.spec.contain"),
    "no jobs": (an_object("JobSet", {}), "spec.replicatedJobs is not a list of objects"),
    "no roles": (an_object("TFJob", {}), "such as pytorchReplicaSpecs"),
    "replicas in words": (
        an_object("Deployment", {"replicas": "3", "template": POD}),
        "spec.replicas is not a whole number",
    ),
    "fewer than none": (an_object("Job", {**JOB, "parallelism": -1}), "spec.parallelism"),
    "a field of another type": (
        an_object("Job", {"template": {"spec": {"containers": "c"}}}),
        "spec.template.spec.containers: Expected",
    ),
    "a quantity in words": (
        an_object(
            "Pod", {"containers": [{"name": "c", "resources": {"requests": {"cpu": "two"}}}]}
        ),
        "container c, cpu holds the quantity 'two'",
    ),
    "too many pods": (
        an_object("Deployment", {"replicas": MOST_PODS + 1, "template": POD}),
        f"makes {MOST_PODS + 1} pods",
    ),
    "an alias": ("a: &x [1]\nkind: Pod\nb: *x", "line 3 has an alias, *x"),
    "a deep tree": ("[" * 5000, "manifest"),
    "too long": (" " * (1 << 20) + "a", "longer than 1 MiB"),
    "a month 13": ("kind: Pod\na: 2024-13-01", "cannot be read"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_manifest_gets_one_error_that_says_where(wrong: str) -> None:
    text, why = WRONG[wrong]
    with pytest.raises(NotAnswered) as refused:
        read(text)

    assert why in str(refused.value)
    assert "Nothing was computed." in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.status in (400, 413)


def test_an_error_names_the_document_and_the_object() -> None:
    good, bad = an_object("Job", JOB), an_object("Deployment", {})
    with pytest.raises(NotAnswered, match=r"^document 2, Deployment team-a/one: spec\.template is"):
        read(f"{good}\n---\n{bad}")


def test_aliases_do_not_make_a_tree_that_takes_long() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 12)]
    began = time.monotonic()
    with pytest.raises(NotAnswered, match="alias"):
        read("kind: Pod\n" + "\n".join(lines))

    assert time.monotonic() - began < 5
