"""The objects of the stand-in API server: versions, generations, history. No I/O.

It covers the recordings in tests/data/kube-api and what Joulie depends on.
"""

import copy
import secrets
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kube_fields import NOW, Kind, Patch, Refused, Tree, details_of, own
from kube_schemas import check, pruned

ADMISSION = "admissionregistration.k8s.io"
BUILT_IN = (
    Kind("", "v1", "nodes", "Node", has_status=True),
    Kind("", "v1", "pods", "Pod", namespaced=True, has_status=True),
    Kind("", "v1", "namespaces", "Namespace"),
    Kind("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True),
    Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True),
    Kind("events.k8s.io", "v1", "events", "Event", namespaced=True),
    Kind(
        "autoscaling",
        "v2",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        namespaced=True,
    ),
    Kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"),
    # Stored without effect: rights come from `ApiServer.users`, and no policy is enforced.
    Kind("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True),
    Kind(ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
    Kind(ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
    Kind("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole"),
    Kind("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding"),
    Kind("rbac.authorization.k8s.io", "v1", "roles", "Role", namespaced=True),
    Kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", namespaced=True),
)


class Change(NamedTuple):
    version: int
    type: str
    kind: Kind
    before: Tree | None
    after: Tree


class Objects:
    """All objects, and their history."""

    def __init__(self, version: int = 100) -> None:
        self.version = version
        self.compacted_to = 50  # history up to this version is gone
        self.history: list[Change] = []
        self.kinds = {(kind.group, kind.plural): kind for kind in BUILT_IN}
        self.tables: dict[tuple[str, str], dict[tuple[str, str], Tree]] = {}
        self.listeners: list[Callable[[], None]] = []

    # --- reading ------------------------------------------------------------------------------

    def table(self, kind: Kind) -> dict[tuple[str, str], Tree]:
        return self.tables.setdefault((kind.group, kind.plural), {})

    def get(self, kind: Kind, namespace: str, name: str) -> Tree:
        try:
            return self.table(kind)[namespace, name]
        except KeyError:
            message = f'{kind.resource} "{name}" not found'
            raise Refused(404, "NotFound", message, details_of(kind, name)) from None

    def since(self, version: int) -> list[Change]:
        if version < self.compacted_to:
            message = f"too old resource version: {version} ({self.version})"
            raise Refused(410, "Expired", message)
        first = len(self.history)
        while first and self.history[first - 1].version > version:
            first -= 1
        return self.history[first:]

    # --- writing ------------------------------------------------------------------------------

    def create(self, kind: Kind, namespace: str, body: Tree, validation: str = "Warn") -> Tree:
        """`validation` is fieldValidation: Strict refuses unknown fields."""
        made = copy.deepcopy(body)
        meta = made.setdefault("metadata", {})
        if "name" not in meta:
            meta["name"] = meta["generateName"] + secrets.token_hex(3)[:5]
        unknown = pruned(made, kind.schema)
        if unknown and validation == "Strict":
            fields = ", ".join(f'unknown field "{field}"' for field in unknown)
            message = (
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                f"strict decoding error: {fields}"
            )
            raise Refused(400, "BadRequest", message)
        if (namespace, meta["name"]) in self.table(kind):
            message = f'{kind.resource} "{meta["name"]}" already exists'
            raise Refused(409, "AlreadyExists", message, details_of(kind, meta["name"]))
        check(made, kind)
        if kind.has_status and kind.schema is not None:
            made.pop("status", None)
        self._born(kind, namespace, made)
        self._admit(kind, made)
        return self._store("ADDED", kind, None, made)

    def replace(self, kind: Kind, namespace: str, body: Tree) -> Tree:
        name = body["metadata"]["name"]
        before = self.get(kind, namespace, name)
        if body["metadata"].get("resourceVersion") not in (
            None,
            before["metadata"]["resourceVersion"],
        ):
            message = (
                f'Operation cannot be fulfilled on {kind.resource} "{name}": the object has been '
                "modified; please apply your changes to the latest version and try again"
            )
            raise Refused(409, "Conflict", message, details_of(kind, name))
        return self._changed(kind, before, copy.deepcopy(body))

    def merge(self, kind: Kind, namespace: str, name: str, body: Tree) -> Tree:
        """A merge patch, of the object or of its status."""
        before = self.get(kind, namespace, name)
        return self._changed(kind, before, merged(before, body))

    def delete(self, kind: Kind, namespace: str, name: str) -> Tree:
        before = self.get(kind, namespace, name)
        del self.table(kind)[namespace, name]
        return self._store("DELETED", kind, before, copy.deepcopy(before))

    def bind(self, namespace: str, name: str, body: Tree) -> None:
        kind = self.kinds["", "pods"]
        pod = self.get(kind, namespace, name)
        _check_uid(pod, body.get("metadata", {}).get("uid"))
        if pod["spec"].get("nodeName"):
            message = (
                f'Operation cannot be fulfilled on pods/binding "{name}": pod {name} is already '
                f'assigned to node "{pod["spec"]["nodeName"]}"'
            )
            raise Refused(409, "Conflict", message, {"name": name, "kind": "pods/binding"})
        notes = body.get("metadata", {}).get("annotations")
        self.merge(
            kind,
            namespace,
            name,
            {
                "metadata": {"annotations": notes} if notes else {},
                "spec": {"nodeName": body["target"]["name"]},
            },
        )

    def evict(self, namespace: str, name: str, body: Tree) -> None:
        """Without a grace period, and without budgets: those are faults of a test."""
        kind = self.kinds["", "pods"]
        pod = self.get(kind, namespace, name)
        _check_uid(pod, body.get("deleteOptions", {}).get("preconditions", {}).get("uid"))
        self.delete(kind, namespace, name)

    def resize(self, namespace: str, name: str, body: Tree) -> Tree:
        """A strategic merge patch of the requests of containers, and of nothing else."""
        kind = self.kinds["", "pods"]
        before = self.get(kind, namespace, name)
        _check_uid(before, body["metadata"].get("uid"))
        after = copy.deepcopy(before)
        wanted = {each["name"]: each["resources"] for each in body["spec"]["containers"]}
        for container in after["spec"]["containers"]:
            new = wanted.get(container["name"], {})
            container["resources"] = merged(container.get("resources", {}), new)
        return self._changed(kind, before, after)

    def apply(
        self, kind: Kind, namespace: str, name: str, body: Tree, patch: Patch
    ) -> tuple[int, Tree]:
        """Server-side apply: the status code, and the object."""
        applied = {key: value for key, value in body.items() if key not in ("apiVersion", "kind")}
        applied["metadata"] = {
            key: value
            for key, value in applied.get("metadata", {}).items()
            if key in ("labels", "annotations")
        }
        if patch.subresource and kind.plural == "pods":  # its metadata may change with its status
            applied.pop("spec", None)
        elif patch.subresource:
            applied = {patch.subresource: applied.get(patch.subresource, {})}
        elif kind.has_status:
            applied.pop("status", None)
        self._declared(kind, name, applied)
        before = self.table(kind).get((namespace, name))
        if before is None:
            if uid := body.get("metadata", {}).get("uid"):
                message = (
                    f'Operation cannot be fulfilled on {kind.resource} "{name}": uid mismatch: the '
                    f"provided object specified uid {uid}, and no existing object was found"
                )
                raise Refused(409, "Conflict", message, details_of(kind, name))
            if patch.subresource:
                self.get(kind, namespace, name)
            made: Tree = {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": {"name": name},
            }
            self._born(kind, namespace, made)
            own(made, patch, applied, kind)
            check(made, kind)
            return 201, self._store("ADDED", kind, None, made, dry_run=patch.dry_run)
        after = copy.deepcopy(before)
        own(after, patch, applied, kind)
        check(after, kind)
        return 200, self._changed(kind, before, after, dry_run=patch.dry_run)

    # --- inside -------------------------------------------------------------------------------

    def _declared(self, kind: Kind, name: str, applied: Tree) -> None:
        unknown = pruned(copy.deepcopy(applied), kind.schema)
        if unknown:
            message = (
                f"failed to create typed patch object (/{name}; {kind.api_version}, "
                f"Kind={kind.kind}): .{unknown[0]}: field not declared in schema"
            )
            raise Refused(500, "", message)

    def _born(self, kind: Kind, namespace: str, made: Tree) -> None:
        meta = made["metadata"]
        made["apiVersion"], made["kind"] = kind.api_version, kind.kind
        meta["uid"] = f"{secrets.token_hex(4)}-0000-4000-8000-{secrets.token_hex(6)}"
        meta["creationTimestamp"] = NOW
        if kind.schema is not None or kind.plural == "customresourcedefinitions":
            meta["generation"] = 1
        if kind.namespaced:
            meta["namespace"] = namespace

    def _admit(self, kind: Kind, made: Tree) -> None:
        if kind.plural == "nodes":
            taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
            made.setdefault("spec", {})["taints"] = [taint]
        if kind.plural == "pods":
            made.setdefault("status", {}).setdefault("phase", "Pending")
            made["metadata"]["generation"] = 1
        if kind.plural == "customresourcedefinitions":
            self._install(made["spec"])

    def _install(self, spec: Tree) -> None:
        [version] = spec["versions"]
        kind = Kind(
            spec["group"],
            version["name"],
            spec["names"]["plural"],
            spec["names"]["kind"],
            spec["scope"] == "Namespaced",
            "status" in version.get("subresources", {}),
            version["schema"]["openAPIV3Schema"],
        )
        self.kinds[kind.group, kind.plural] = kind

    def _changed(self, kind: Kind, before: Tree, after: Tree, *, dry_run: bool = False) -> Tree:
        if _content(after) == _content(before):
            return before  # no change: the same version
        check(after, kind)
        if kind.schema is not None and after.get("spec") != before.get("spec"):
            after["metadata"]["generation"] = before["metadata"]["generation"] + 1
        return self._store("MODIFIED", kind, before, after, dry_run=dry_run)

    def _store(
        self, what: str, kind: Kind, before: Tree | None, after: Tree, *, dry_run: bool = False
    ) -> Tree:
        if dry_run:
            return after
        self.version += 1
        meta = after["metadata"]
        meta["resourceVersion"] = str(self.version)
        if what != "DELETED":
            self.table(kind)[meta.get("namespace", ""), meta["name"]] = after
        self.history.append(Change(self.version, what, kind, before, after))
        for listener in list(self.listeners):
            listener()
        return after


def _check_uid(pod: Tree, uid: str | None) -> None:
    """The precondition of a binding or an eviction."""
    meta = pod["metadata"]
    if uid in (None, meta["uid"]):
        return
    message = (
        f'Operation cannot be fulfilled on pods "{meta["name"]}": StorageError: invalid object, '
        f"Code: 4, Key: /registry/pods/{meta['namespace']}/{meta['name']}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, "
        f"UID in object meta: {meta['uid']}"
    )
    raise Refused(409, "Conflict", message, {"name": meta["name"], "kind": "pods"})


def _content(tree: Tree) -> Tree:
    meta = {key: value for key, value in tree["metadata"].items() if key != "resourceVersion"}
    return {**tree, "metadata": meta}


def merged(base: Tree, patch: Mapping[str, Any]) -> Tree:
    result = dict(base)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            below = result.get(key)
            result[key] = merged(below if isinstance(below, dict) else {}, value)
        else:
            result[key] = value
    return result
