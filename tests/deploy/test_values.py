"""The values that each cluster needs in its own way, and what restarts when one of them changes."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from helm_chart import CHART, NAMESPACE, VERSION, helm, of_kind, pod_specs, rendered

pytestmark = pytest.mark.slow
HA = ["-f", str(CHART / "values-ha.yaml")]
PARTS = {
    "projector": "StatefulSet/joulie-projector",
    "operator": "Deployment/joulie-operator",
    "extender": "StatefulSet/joulie-extender",
    "admission": "Deployment/joulie-admission",
    "console": "Deployment/joulie-console",
    "ledger": "Deployment/joulie-ledger",
    "archive": "Deployment/joulie-archive",
    "nats": "StatefulSet/joulie-nats",
    "scheduler": "Deployment/joulie-scheduler",
    "agent": "DaemonSet/joulie-agent",
    "jobs": "Job/joulie-release",
}
READ_SETTINGS = set(PARTS.values()) - {PARTS["nats"], PARTS["scheduler"], PARTS["jobs"]}
Tree = dict[str, Any]


def with_values(home: Path, values: Tree, *words: str) -> list[Tree]:
    file = home / "values-of-a-test.yaml"
    file.write_text(yaml.safe_dump(values))
    return rendered(home, *words, "-f", str(file))


def templates(trees: list[Tree]) -> dict[str, Tree]:
    """The pod templates of everything that runs for long."""
    return {
        f"{tree['kind']}/{tree['metadata']['name']}": tree["spec"]["template"]
        for tree in trees
        if tree["kind"] in ("Deployment", "StatefulSet", "DaemonSet")
    }


def restarted(before: list[Tree], after: list[Tree]) -> set[str]:
    old, new = templates(before), templates(after)
    return {name for name in old.keys() & new.keys() if old[name] != new[name]}


CHANGES = [
    ({"settings": {"STATIC_HP_FRAC": "0.4"}}, READ_SETTINGS),
    ({"preset": "headroom"}, READ_SETTINGS),
    ({"files": {"teams.toml": "x"}}, READ_SETTINGS),
    ({"scheduler": {"percentageOfNodesToScore": 40}}, {PARTS["scheduler"]}),
    ({"scheduler": {"replicas": 2}}, set()),
    ({"console": {"podLabels": {"a": "b"}}}, {PARTS["console"]}),
    ({"ledger": {"image": {"tag": "9"}}}, {PARTS["ledger"]}),
    ({"monitoring": {"rules": True}}, set()),
    ({"networkPolicy": {"enabled": False}}, set()),
    ({"crds": {"keep": False}}, set()),
    ({"archive": {"storage": {"size": "1Ti"}}}, set()),
]


@pytest.mark.parametrize(("change", "expected"), CHANGES, ids=[str(each[0]) for each in CHANGES])
def test_a_change_restarts_what_reads_it_and_nothing_else(
    change: Tree, expected: set[str], home: Path
) -> None:
    assert restarted(rendered(home), with_values(home, change)) == expected


def test_other_text_in_a_file_restarts_its_readers(home: Path) -> None:
    one, two = (with_values(home, {"files": {"teams.toml": text}}) for text in ("one", "two"))

    assert restarted(one, two) == READ_SETTINGS


def test_brokers_restart_when_their_routes_change(home: Path) -> None:
    three = rendered(home, "--set", "nats.replicas=3")
    five = rendered(home, "--set", "nats.replicas=5")

    assert PARTS["nats"] in restarted(three, five)


ANYWHERE = {
    "priorityClassName": "high",
    "nodeSelector": {"pool": "infra"},
    "tolerations": [{"key": "infra", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"x": 1}}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "podLabels": {"team": "a"},
    "podAnnotations": {"note": "b"},
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy"}],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca"}],
}


def template_of(trees: list[Tree], name: str) -> Tree:
    [found] = [
        tree["spec"]["template"]
        for tree in trees
        if f"{tree['kind']}/{tree['metadata']['name']}" == name
    ]
    return dict(found)


def require_there(template: Tree, part: str) -> None:
    """Everything of ANYWHERE is in the template."""
    spec, meta = template["spec"], template["metadata"]
    [container, *_] = spec["containers"]
    if part != "agent":  # it runs on every node, wherever the others are
        assert spec["nodeSelector"] == ANYWHERE["nodeSelector"]
        assert spec["tolerations"] == ANYWHERE["tolerations"]
        [spread] = spec["topologySpreadConstraints"]
        assert spread["topologyKey"] == "zone"
        labels = spread["labelSelector"]["matchLabels"]
        assert labels.items() <= meta["labels"].items()
        if part != "jobs":
            assert "nodeAffinity" in spec["affinity"]
    assert spec["priorityClassName"] == "high"
    assert meta["labels"]["team"] == "a"
    assert meta["annotations"]["note"] == "b"
    if part != "jobs":
        assert {"name": "HTTPS_PROXY", "value": "http://proxy"} in container["env"]
        assert {"name": "ca", "mountPath": "/ca"} in container["volumeMounts"]
        assert {"name": "ca", "configMap": {"name": "ca"}} in spec["volumes"]


@pytest.mark.parametrize("words", [[], HA], ids=["sqlite", "postgresql"])
def test_values_of_pods_at_the_top_are_those_of_every_component(
    words: list[str], home: Path
) -> None:
    trees = with_values(home, ANYWHERE, *words)

    for part, name in PARTS.items():
        require_there(template_of(trees, name), part)


@pytest.mark.parametrize("part", sorted(PARTS))
def test_values_of_pods_in_a_section_are_those_of_one_component(part: str, home: Path) -> None:
    agents = {name: value for name, value in ANYWHERE.items() if "Spread" not in name}
    trees = with_values(home, {part: agents if part == "agent" else ANYWHERE})
    plain = templates(rendered(home))

    require_there(template_of(trees, PARTS[part]), part)
    changed = {name for name, each in templates(trees).items() if each != plain[name]}
    assert changed <= {PARTS[part]}


def test_a_section_wins_over_the_top_and_the_lists_add_up(home: Path) -> None:
    own = {"nodeSelector": {"pool": "own"}, "podLabels": {"team": "own", "more": "c"}}
    trees = with_values(
        home, {**ANYWHERE, "ledger": {**own, "extraEnv": [{"name": "X", "value": "1"}]}}
    )
    ledger = template_of(trees, PARTS["ledger"])
    names = [each["name"] for each in ledger["spec"]["containers"][0]["env"]]

    assert ledger["spec"]["nodeSelector"] == {"pool": "own"}
    assert ledger["metadata"]["labels"].items() >= {"team": "own", "more": "c"}.items()
    assert {"HTTPS_PROXY", "X"} <= set(names)


def test_with_sqlite_no_affinity_moves_a_component_away_from_its_volume(home: Path) -> None:
    elsewhere: Tree = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}
    spec = template_of(with_values(home, {"affinity": elsewhere}), PARTS["console"])["spec"]

    [term] = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = term["labelSelector"]["matchLabels"]
    assert labels["app.kubernetes.io/component"] == "projector"


def test_by_default_no_pod_names_a_class_of_priority(home: Path) -> None:
    """GKE admits the system's classes in kube-system only."""
    for words in ([], HA):
        assert "priorityClassName" not in json.dumps(
            list(pod_specs(rendered(home, *words)).values())
        )


def test_on_openshift_no_pod_but_the_agents_names_a_user(home: Path) -> None:
    served = ["--api-versions", "security.openshift.io/v1"]
    for words, is_fixed in (([], True), (served, False), (["--set", "openshift=true"], False)):
        for name, spec in pod_specs(rendered(home, *words)).items():
            if name != PARTS["agent"]:
                security = spec["securityContext"]
                assert {"runAsUser", "runAsGroup", "fsGroup"} & set(security) == (
                    {"runAsUser", "runAsGroup", "fsGroup"} if is_fixed else set()
                ), name
                assert security["runAsNonRoot"] is True


def test_the_user_and_the_group_can_be_chosen(home: Path) -> None:
    words = [
        "--set",
        "podSecurityContext.runAsUser=1000",
        "--set",
        "podSecurityContext.fsGroup=null",
    ]
    security = template_of(rendered(home, *words), PARTS["console"])["spec"]["securityContext"]

    assert security["runAsUser"] == 1000
    assert "fsGroup" not in security


def image_of(trees: list[Tree], part: str) -> tuple[str, str]:
    container = template_of(trees, PARTS[part])["spec"]["containers"][0]
    return container["image"], container["imagePullPolicy"]


def test_the_image_of_a_component_can_be_another_one(home: Path) -> None:
    digest = f"sha256:{'0f' * 32}"
    trees = with_values(
        home,
        {
            "image": {"registry": "registry.example.com", "pullSecrets": [{"name": "s"}]},
            "ledger": {"image": {"digest": digest}},
            "console": {"image": {"registry": "other.example.com", "tag": "7"}},
            "nats": {"image": {"pullPolicy": "Always"}},
        },
    )
    usual = image_of(trees, "projector")[0]

    assert usual.startswith("registry.example.com/joulie:")
    assert image_of(trees, "ledger")[0] == f"registry.example.com/joulie@{digest}"
    assert image_of(trees, "console")[0] == "other.example.com/joulie:7"
    assert image_of(trees, "nats") == (usual, "Always")
    for part, name in PARTS.items():
        assert template_of(trees, name)["spec"]["imagePullSecrets"] == [{"name": "s"}], part


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("", f"registry.k8s.io/kube-scheduler:v{VERSION}"),
        ("mirror/kube-scheduler:v1", "mirror/kube-scheduler:v1"),
        (f"ks@sha256:{'a' * 64}", f"ks@sha256:{'a' * 64}"),
    ],
    ids=["of the cluster", "a name", "a digest"],
)
def test_the_image_of_kube_scheduler_is_that_of_the_cluster_or_yours(
    image: str, expected: str, home: Path
) -> None:
    trees = with_values(home, {"scheduler": {"image": image}})
    spec = template_of(trees, PARTS["scheduler"])["spec"]

    assert spec["containers"][0]["image"] == expected
    assert spec["initContainers"][0]["image"].startswith("joulie:")


def test_secrets_of_yours_replace_those_that_the_chart_makes(home: Path) -> None:
    words = [
        *("--set", "signingKey.existingSecret=my-key"),
        *("--set", "nats.usersSecret=my-users", "--set", "console.tokenSecret=my-token"),
    ]
    trees = rendered(home, *words)
    made, pods = of_kind(trees, "Secret"), json.dumps(pod_specs(trees))

    assert {"joulie-head-key", "joulie-nats-users", "joulie-console-token"} & set(made) == set()
    for name in ("joulie-head-key", "joulie-nats-users", "joulie-console-token"):
        assert f'"{name}"' not in pods
    for name in ("my-key", "my-users", "my-token"):
        assert f'"{name}"' in pods


def test_the_definition_of_another_project_has_a_switch_and_always_stays(home: Path) -> None:
    def kept(*words: str) -> dict[str, bool]:
        found = of_kind(rendered(home, *words), "CustomResourceDefinition")
        return {
            name: "helm.sh/resource-policy" in tree["metadata"].get("annotations", {})
            for name, tree in found.items()
        }

    ours = {"nodetwins.joulie.io", "nodehardwares.joulie.io"}
    assert kept() == dict.fromkeys(ours | {"gpus.gpu.mle.com"}, True)
    assert kept("--set", "crds.gpus=false") == dict.fromkeys(ours, True)
    assert kept("--set", "crds.keep=false") == {
        **dict.fromkeys(ours, False),
        "gpus.gpu.mle.com": True,
    }
    assert kept("--set", "crds.install=false") == {}


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("ledger.nodeSelectors.a=b", "nodeSelectors"),
        ("ledger.image.digest=abc", "digest"),
        ("openshift=maybe", "/openshift"),
        ("crds.gpus=sometimes", "/crds/gpus"),
        ("podLabels.a=1", "/podLabels/a"),
        ("extraEnv=x", "/extraEnv"),
    ],
)
def test_a_wrong_value_of_a_pod_is_refused_with_its_name(
    wrong: str, named: str, home: Path
) -> None:
    words = ["template", "joulie", str(CHART), "-n", NAMESPACE, "--kube-version", VERSION]
    code, said = helm([*words, "--set", wrong], home)

    assert code != 0
    assert named in said
