"""Each value of the chart's schema, changed once: what an upgrade then renders, and what restarts.

A value is changed where it matters: CONTEXTS has the values that it needs beside it.
"""

import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]

from helm_chart import CHART, template

Tree = dict[str, Any]
SCHEMA: Tree = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS: Tree = yaml.safe_load((CHART / "values.yaml").read_text())
# The fields of a spec that stay as they were created, of those that the chart sets.
FIXED = {
    "StatefulSet": ("selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates"),
    "Deployment": ("selector",),
    "DaemonSet": ("selector",),
    "Service": ("clusterIP",),
    "PersistentVolumeClaim": ("accessModes", "storageClassName"),
}
LONG_RUNNING = ("Deployment", "StatefulSet", "DaemonSet")
# What no render shows: it decides whether anything is rendered, or is a place for parent charts.
NOT_RENDERED = ("generateSecrets", "global")

# Another value, by the whole name or the last word of it. Others follow from the schema.
EXAMPLES: Tree = {
    "image.digest": f"sha256:{'0f' * 32}",
    "digest": f"sha256:{'0f' * 32}",
    "image.pullSecrets": [{"name": "other"}],
    "files": {"other.toml": "x"},
    "preset": "headroom",
    "settings": {"STATIC_HP_FRAC": "0.4"},
    "settings.POLICY_NUMBERS": "performance_floor=2",
    "scheduler.clusterIP": "10.0.0.99",
    "scheduler.admission": "never",
    "size": "99Gi",
    "resources": {"requests": {"cpu": "77m"}},
    "tolerations": [{"key": "other", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"x": 1}}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "extraEnv": [{"name": "OTHER", "value": "1"}],
    "extraVolumes": [{"name": "other", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "other", "mountPath": "/other"}],
    "agent.kubeletRoot": "/other/kubelet",
    "nats.url": "tls://broker.example.com:4222",
    "nats.replicas": 3,
    "witnesses": [f"{'A' * 43}=@https://witness.example.com"],
    "url": "https://s3.example.com/other",
    "tls.issuerRef": {"name": "other", "kind": "ClusterIssuer"},
    "networkPolicy.apiServerPorts": [8443],
    "networkPolicy.metersTo": [{"to": [{"ipBlock": {"cidr": "10.9.0.0/16"}}]}],
    "podSecurityContext": {"runAsUser": 1000},
    "openshift": True,
    "crds.gpus": False,
}
_BUCKET = {"url": "https://s3.example.com/bucket", "existingSecret": "bucket"}
_YOURS = {"url": "tls://mine.example.com:4222", "usersSecret": "users"}
# cert-manager issues, so that no key is made for each render, and names of certificates show.
# All components run.
ALWAYS: Tree = {"tls": {"certManager": True}, "callout": {"enabled": True}}
# What a value, or the values below a name, need beside them; the longest name wins.
CONTEXTS: dict[str, Tree] = {
    "projector.replicas": {"database": {"existingSecret": "db"}},
    "extender.storage": {"extender": {"replicas": 2}},
    "admission": {"scheduler": {"admission": "webhook"}},
    "admission.clientNames": {
        "scheduler": {"admission": "webhook"},
        "admission": {"clientCaSecret": "ca"},
    },
    "console.ingress": {"console": {"ingress": {"enabled": True, "host": "joulie.example.com"}}},
    "console.ingress.enabled": {"console": {"ingress": {"host": "joulie.example.com"}}},
    # A claim without a class takes one later; most clusters give it theirs.
    "archive.storage.className": {"archive": {"storage": {"className": "first"}}},
    "archive.bucket": {"archive": {"bucket": _BUCKET}},
    "archive.bucket.url": {"archive": {"bucket": {"existingSecret": "bucket"}}},
    "callout.enabled": {"callout": {"enabled": False}},
    "agent.capsDryRun": {"agent": {"caps": True}},
    "nats.url": {"nats": {"usersSecret": "users"}, "callout": {"existingSecret": "issuer"}},
    "nats.caSecret": {"nats": _YOURS, "callout": {"existingSecret": "issuer"}},
    "nats.usersSecret": {"callout": {"enabled": False}},  # agents have passwords, as by default
    "headsTo.s3": {"headsTo": {"s3": _BUCKET}},
    "headsTo.s3.url": {"headsTo": {"s3": {"existingSecret": "bucket"}}},
    "database.userPerRight": {"database": {"existingSecret": "db"}},
    "database.urlKey": {"database": {"existingSecret": "db"}},
    "networkPolicy.databasePort": {"database": {"existingSecret": "db"}},
    "nats.continueLog": {"nats": {"replicas": 3}},
    "monitoring.labels": {"monitoring": {"serviceMonitor": True, "rules": True, "dashboard": True}},
}


def leaves(node: Tree, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Tree]]:
    """The values of the schema, by their names with points."""
    if "$ref" in node:
        node = SCHEMA["$defs"][node["$ref"].rpartition("/")[2]]
    if node.get("properties"):
        for name, below in node["properties"].items():
            yield from leaves(below, (*path, name))
    else:
        yield ".".join(path), node


LEAVES = {name: node for name, node in leaves(SCHEMA) if name not in NOT_RENDERED}


def value_of(values: Tree, name: str) -> Any:
    found: Any = values
    for word in name.split("."):
        found = found.get(word) if isinstance(found, dict) else None
    return found


def merged(one: Tree, two: Tree) -> Tree:
    found = dict(one)
    for name, value in two.items():
        mine = found.get(name)
        both = isinstance(mine, dict) and isinstance(value, dict)
        found[name] = merged(mine, value) if both else value  # type: ignore[arg-type]
    return found


def nested(name: str, value: Any) -> Tree:
    for word in reversed(name.split(".")):
        value = {word: value}
    return dict(value)


def other_value(name: str, now: Any) -> Any:
    """A value that the schema admits and that is not the one of now."""
    node = LEAVES[name]
    for known in (name, name.rpartition(".")[2]):
        if known in EXAMPLES:
            return EXAMPLES[known]
    if "enum" in node:
        return next(each for each in node["enum"] if each != now)
    if node["type"] == "boolean":
        return not now
    if node["type"] == "integer":
        return now + 1
    return {"other": "yes"} if node["type"] == "object" else "other"


def context_of(name: str) -> Tree:
    words = name.split(".")
    known = [".".join(words[:count]) for count in range(len(words), 0, -1)]
    return merged(ALWAYS, next((CONTEXTS[each] for each in known if each in CONTEXTS), {}))


class Change(NamedTuple):
    """What one changed value changes."""

    objects: frozenset[str]  # that differ, came or went
    restarted: frozenset[str]
    started: frozenset[str]
    ended: frozenset[str]
    stale: frozenset[str]  # "WORKLOAD reads OBJECT": the object differs, and the pods stay
    refused: frozenset[str]  # objects that no API server changes in this way


_SOURCE = re.compile(r"^---\n", re.MULTILINE)


class Rendered:
    """The objects of one render; only those that are asked for are parsed."""

    def __init__(self, text: str) -> None:
        self.texts = {_name(part): part for part in _SOURCE.split(text) if "\nkind:" in f"\n{part}"}

    def tree(self, name: str) -> Tree:
        tree: Tree = yaml.load(self.texts[name], Loader=yaml.CSafeLoader)
        if tree["kind"] == "Secret":  # some are made anew by each render
            for place in ("data", "stringData"):
                tree[place] = dict.fromkeys(tree.get(place) or {})
        return tree

    def workloads(self) -> dict[str, Tree]:
        names = [name for name in self.texts if name.partition("/")[0] in LONG_RUNNING]
        return {name: self.tree(name)["spec"]["template"] for name in names}


def _name(text: str) -> str:
    kind = re.search(r"^kind: (\w+)", text, re.MULTILINE)
    named = re.search(r"^metadata:\n(?:  .*\n)*?  name: (\S+)", text, re.MULTILINE)
    assert kind is not None
    assert named is not None, text
    return f"{kind[1]}/{named[1]}"


def read_by(pod: Tree) -> set[str]:
    """The ConfigMaps and Secrets that the containers of a pod read."""
    found: set[str] = set()
    for node in _nodes(pod):
        for key, kind in (("configMap", "ConfigMap"), ("configMapRef", "ConfigMap")):
            if isinstance(node.get(key), dict):
                found.add(f"{kind}/{node[key].get('name')}")
    return found | {name for name, _ in _secrets_read(pod)}


def _secrets_read(pod: Tree) -> Iterator[tuple[str, Tree]]:
    """Each Secret with what refers to it: a volume, all as variables, or a single variable."""
    for node in _nodes(pod):
        for key in ("secret", "secretRef", "secretKeyRef"):
            if isinstance(node.get(key), dict):
                refers = node[key]
                yield f"Secret/{refers.get('secretName') or refers.get('name')}", refers


def _nodes(tree: Any) -> Iterator[Tree]:
    if isinstance(tree, dict):
        yield tree
    for below in (
        tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    ):
        yield from _nodes(below)


def compared(before: Rendered, after: Rendered) -> Change:
    names = before.texts.keys() | after.texts.keys()
    there = before.texts.keys() & after.texts.keys()
    differ = {name for name in names if _differs(before, after, name)}
    old, new = before.workloads(), after.workloads()
    both = old.keys() & new.keys()
    restarted = {name for name in both if old[name] != new[name]}
    content = {_content(before if name in before.texts else after, name) for name in differ}
    stale = {
        f"{name} reads {each}"
        for name in both - restarted
        for each in read_by(new[name]["spec"]) & content
        if not _has_the_same_items(before, after, new[name]["spec"], each)
    }
    return Change(
        frozenset(differ),
        frozenset(restarted),
        frozenset(new.keys() - old.keys()),
        frozenset(old.keys() - new.keys()),
        frozenset(stale),
        frozenset(name for name in differ & there if _fixed(before, name) != _fixed(after, name)),
    )


def _differs(before: Rendered, after: Rendered, name: str) -> bool:
    if before.texts.get(name) == after.texts.get(name):
        return False
    return (
        name not in before.texts or name not in after.texts or before.tree(name) != after.tree(name)
    )


def _has_the_same_items(before: Rendered, after: Rendered, pod: Tree, name: str) -> bool:
    """Whether the pod reads single items of a Secret, none of which differs."""
    if not all(name in each.texts for each in (before, after)):
        return False
    own = [refers for read, refers in _secrets_read(pod) if read == name]
    if not own or not all("items" in each or "key" in each for each in own):
        return False
    keys = {item["key"] for each in own for item in each.get("items", [each])}
    old, new = (_data(each.tree(name)) for each in (before, after))
    return all(old.get(key) == new.get(key) for key in keys)


def _data(secret: Tree) -> Tree:
    return secret.get("stringData") or secret.get("data") or {}


def _fixed(rendered: Rendered, name: str) -> Tree | None:
    """What an API server never changes of an object; None where there is none of it."""
    kind = name.partition("/")[0]
    if kind not in FIXED or name not in rendered.texts:
        return None
    spec = rendered.tree(name)["spec"]
    return {key: spec[key] for key in FIXED[kind] if key in spec}


def _content(rendered: Rendered, name: str) -> str:
    """The Secret that cert-manager makes, for its Certificate."""
    if not name.startswith("Certificate/"):
        return name
    return f"Secret/{rendered.tree(name)['spec']['secretName']}"


class Renders:
    """Renders with values; the same values once."""

    def __init__(self, home: Path) -> None:
        self.home, self.known = home, dict[str, Rendered]()

    def of(self, values: Tree) -> Rendered:
        text = json.dumps(values, sort_keys=True)
        if text not in self.known:
            file = self.home / f"values-{abs(hash(text))}.json"
            file.write_text(text)
            self.known[text] = Rendered(template(self.home, "--is-upgrade", "-f", str(file)))
        return self.known[text]

    def change(self, name: str) -> Change:
        values = context_of(name)
        value = other_value(name, value_of(merged(DEFAULTS, values), name))
        return compared(self.of(values), self.of(merged(values, nested(name, value))))


def changes(home: Path, names: list[str]) -> dict[str, Change]:
    renders = Renders(home)
    for values in map(context_of, names):
        renders.of(values)
    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        return dict(zip(names, pool.map(renders.change, names), strict=True))
