"""The pod templates of an object, by its kind.

A kind has a function that finds them. Of another kind, `spec.template` is one if it has containers.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

DAEMON_SET = (
    "a DaemonSet makes a pod for each node, and its controller names the node: there is nothing to "
    "choose. Remove it from the manifest"
)
SUSPENDED = "it is suspended: its controller makes no pods until it is resumed"
Tree = Mapping[str, Any]
NO_LABELS: Tree = MappingProxyType({})


class Template(NamedTuple):
    template: Tree
    pods: int = 1
    role: str = ""
    place: str = "spec.template"  # in the object
    labels: Tree = NO_LABELS  # that the controller adds
    notes: tuple[str, ...] = ()


class Refused(Exception):
    """What is wrong with an object."""


def templates_of(tree: Tree) -> list[Template]:
    kind, version = tree["kind"], str(tree.get("apiVersion") or "")
    if kind == "Pod":
        return [Template(tree, place="")]
    if kind == "Job" and version.startswith("batch.volcano.sh/"):
        return [*_volcano(tree)]
    return [*KINDS.get(kind, _any_kind)(tree)]


def _replicated(tree: Tree) -> Iterator[Template]:
    spec = _map(tree, "spec")
    template = _map(spec, "template", "spec")
    if spec.get("volumeClaimTemplates"):
        inner = _map(template, "spec", "spec.template")
        claims = [*(inner.get("volumes") or ()), {"persistentVolumeClaim": {}}]
        template = {**template, "spec": {**inner, "volumes": claims}}
    yield Template(template, _count(spec, "replicas", "spec"))


def _daemon_set(_: Tree) -> Iterator[Template]:
    raise Refused(DAEMON_SET)


def _job(tree: Tree) -> Iterator[Template]:
    yield _of_job(_map(tree, "spec"), "spec")


def _cron_job(tree: Tree) -> Iterator[Template]:
    outer = _map(_map(tree, "spec"), "jobTemplate", "spec")
    found = _of_job(_map(outer, "spec", "spec.jobTemplate"), "spec.jobTemplate.spec")
    is_suspended = _map(tree, "spec").get("suspend") is True
    yield found._replace(notes=(SUSPENDED,)) if is_suspended else found


def _of_job(spec: Tree, place: str) -> Template:
    """The pods that run at the same time."""
    at_once = _count(spec, "parallelism", place)
    if spec.get("completions") is not None:
        at_once = min(at_once, _count(spec, "completions", place))
    notes = (SUSPENDED,) if spec.get("suspend") is True else ()
    template = _map(spec, "template", place)
    return Template(template, at_once, place=f"{place}.template", notes=notes)


def _job_set(tree: Tree) -> Iterator[Template]:
    spec, labels = _map(tree, "spec"), {"jobset.sigs.k8s.io/jobset-name": name_of(tree)}
    notes = (SUSPENDED,) if spec.get("suspend") is True else ()
    for number, each in enumerate(_list(spec, "replicatedJobs", "spec")):
        place = f"spec.replicatedJobs[{number}]"
        job = _map(_map(each, "template", place), "spec", f"{place}.template")
        of_one = _of_job(job, f"{place}.template.spec")
        role = str(each.get("name") or number)
        pods = of_one.pods * _count(each, "replicas", place)
        yield of_one._replace(pods=pods, role=role, labels=labels, notes=notes or of_one.notes)


def _leader_worker_set(tree: Tree) -> Iterator[Template]:
    spec = _map(tree, "spec")
    both, place = _map(spec, "leaderWorkerTemplate", "spec"), "spec.leaderWorkerTemplate"
    groups, size = _count(spec, "replicas", "spec"), _count(both, "size", place)
    worker = _map(both, "workerTemplate", place)
    workers = Template(worker, groups * (size - 1), "worker", f"{place}.workerTemplate")
    if "leaderTemplate" in both:
        leader = _map(both, "leaderTemplate", place)
        yield Template(leader, groups * min(size, 1), "leader", f"{place}.leaderTemplate")
        yield workers._replace(pods=max(0, workers.pods))
    else:
        yield workers._replace(pods=groups * size)


def _volcano(tree: Tree) -> Iterator[Template]:
    labels = {"volcano.sh/job-name": name_of(tree)}
    for number, each in enumerate(_list(_map(tree, "spec"), "tasks", "spec")):
        place, role = f"spec.tasks[{number}]", str(each.get("name") or number)
        template, pods = _map(each, "template", place), _count(each, "replicas", place)
        yield Template(template, pods, role, f"{place}.template", labels)


def _by_roles(tree: Tree) -> Iterator[Template]:
    """The jobs of Kubeflow: a field such as pytorchReplicaSpecs, with a template for each role."""
    spec = _map(tree, "spec")
    fields = [name for name in spec if name.endswith("ReplicaSpecs")]
    if not fields:
        raise Refused("spec has no field such as pytorchReplicaSpecs")
    policy = spec.get("runPolicy")
    is_suspended = isinstance(policy, dict) and policy.get("suspend") is True
    notes = (SUSPENDED,) if is_suspended else ()
    for field in fields:
        for role, each in _map(spec, field, "spec").items():
            place = f"spec.{field}.{role}"
            if not isinstance(each, dict):
                raise Refused(f"{place} is not an object")
            template, pods = _map(each, "template", place), _count(each, "replicas", place)
            yield Template(template, pods, str(role), f"{place}.template", notes=notes)


def _any_kind(tree: Tree) -> Iterator[Template]:
    spec = tree.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    inner = template.get("spec") if isinstance(template, dict) else None
    if isinstance(inner, dict) and "containers" in inner:
        yield from _replicated(tree)


KINDS: Mapping[str, Callable[[Tree], Iterator[Template]]] = {
    **dict.fromkeys(
        ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"), _replicated
    ),
    "DaemonSet": _daemon_set,
    "Job": _job,
    "CronJob": _cron_job,
    "JobSet": _job_set,
    "LeaderWorkerSet": _leader_worker_set,
    **dict.fromkeys(
        ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob"), _by_roles
    ),
}
SPREAD_BY_DEFAULT = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController")


def _map(tree: Tree, key: str, place: str = "") -> Tree:
    found = tree.get(key)
    if not isinstance(found, dict):
        what = "is missing" if found is None else "is not an object"
        raise Refused(f"{place}{'.' * bool(place)}{key} {what}")
    return found


def _list(tree: Tree, key: str, place: str) -> list[Tree]:
    found = tree.get(key)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Refused(f"{place}.{key} is not a list of objects")
    return found


def _count(tree: Tree, key: str, place: str) -> int:
    """1 where it is not given, as the API server sets it."""
    found = tree.get(key)
    if found is None:
        return 1
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise Refused(f"{place}.{key} is not a whole number of 0 or more")
    return found


def name_of(tree: Tree) -> str:
    metadata = _map(tree, "metadata")
    name = metadata.get("name") or metadata.get("generateName")
    if not isinstance(name, str):
        raise Refused("it has no metadata.name")
    return name
