"""The configuration that makes kube-scheduler call the extender.

The one source of it: `joulie scheduler-config` prints it. The files deploy/kube-scheduler*.yaml,
which the chart renders, are made from it.
"""

import json
import re
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias, Union

from joulie_projections.hardware.gpu_resources import GPU_RESOURCES

CONFIGURATIONS = ("energy", "gpu", "split")
OWN_NAME, DEFAULT_NAME = "joulie", "default-scheduler"
LEASE = "joulie-scheduler"  # of the kube-scheduler of the chart
ENERGY_TIMEOUT_MS, BIND_TIMEOUT_MS = 500, 5000  # the second one is more than a binding may take
TIMES_THE_DEADLINE = 5
WIDTH = 100

Scalar = str | int | bool
Value: TypeAlias = Union[Scalar, "Fields", list["Fields"]]


class Field(NamedTuple):
    key: str
    value: Value
    why: str = ""  # the comment above it


Fields: TypeAlias = tuple[Field, ...]


class ClientFiles(NamedTuple):
    """Files on the host of kube-scheduler."""

    authority: str = "/etc/joulie/ca.crt"
    certificate: str = "/etc/joulie/scheduler.crt"
    key: str = "/etc/joulie/scheduler.key"


class Options(NamedTuple):
    """How one installation is called."""

    url: str
    configuration: str = "energy"
    files: ClientFiles | None = None  # None without TLS
    name: str = DEFAULT_NAME
    lease_namespace: str = ""  # not empty: several schedulers elect a leader there
    percentage: int = 0  # of nodes to score; 0 for the default of kube-scheduler
    weight: int = 1
    deadline_ms: int = 100  # EXTENDER_DEADLINE
    resources: tuple[str, ...] = GPU_RESOURCES


def configuration(options: Options) -> Fields:
    profile: Fields = (Field("schedulerName", options.name),)
    sample = (
        Field("percentageOfNodesToScore", options.percentage)
        if options.percentage
        else Field("", "", _SAMPLE)
    )
    leader: Fields = (
        Field("leaderElect", True),
        Field("resourceNamespace", options.lease_namespace),
        Field("resourceName", LEASE),
    )
    return (
        Field("apiVersion", "kubescheduler.config.k8s.io/v1", _WHAT[options.configuration]),
        Field("kind", "KubeSchedulerConfiguration"),
        *((Field("leaderElection", leader),) if options.lease_namespace else ()),
        Field("profiles", [profile]),
        sample,
        Field("extenders", extenders(options)),
    )


def extenders(options: Options) -> list[Fields]:
    """kube-scheduler requires that the ignorable ones come last."""
    if options.configuration == "split":
        cards = _block(options, "/gpu", is_hard=True)
        return [cards, _without_repeats(_block(options, "/energy", binds=False), cards)]
    return [_block(options, "", binds=options.configuration == "gpu")]


def tree_of(fields: Fields) -> dict[str, Any]:
    return {field.key: _plain(field.value) for field in fields if field.key}


def text_of(fields: Fields) -> str:
    """YAML with comments."""
    return "".join(f"{line}\n" for line in _lines(fields, ""))


# --- one extender -------------------------------------------------------------------------------


def _block(options: Options, path: str, *, binds: bool = True, is_hard: bool = False) -> Fields:
    timeout_ms = max(
        BIND_TIMEOUT_MS if binds else ENERGY_TIMEOUT_MS, TIMES_THE_DEADLINE * options.deadline_ms
    )
    managed: list[Fields] = [
        (Field("name", name), Field("ignoredByScheduler", False)) for name in options.resources
    ]
    return (
        Field("urlPrefix", options.url + path, _URL if options.files else _PLAIN_URL),
        Field("filterVerb", "filter"),
        Field("prioritizeVerb", "prioritize"),
        Field("preemptVerb", "preempt", _PREEMPT),
        *((Field("bindVerb", "bind", _BIND),) if binds else ()),
        Field("weight", options.weight, _WEIGHT),
        Field("nodeCacheCapable", True, _NAMES),
        *((Field("managedResources", managed, _MANAGED),) if is_hard else ()),
        Field("ignorable", not is_hard, _ignorable(is_hard, binds)),
        Field("httpTimeout", _duration(timeout_ms), _BIND_TIMEOUT if binds else _TIMEOUT),
        *_encryption(options.files),
    )


def _without_repeats(block: Fields, before: Fields) -> Fields:
    """Without the comments that the block before has."""
    known = {field.why for field in before}
    return tuple(each._replace(why="") if each.why in known else each for each in block)


def _encryption(files: ClientFiles | None) -> Fields:
    if files is None:
        return ()
    named: Fields = (
        Field("caFile", files.authority),
        Field("certFile", files.certificate),
        Field("keyFile", files.key),
    )
    return Field("enableHTTPS", True, _FILES), Field("tlsConfig", named)


def _duration(ms: int) -> str:
    return f"{ms}ms" if ms % 1000 else f"{ms // 1000}s"


def _ignorable(is_hard: bool, binds: bool) -> str:
    if is_hard:
        return "Without an answer the pod waits, with SchedulerError. Run two replicas or more."
    if binds:
        return (
            "This extender filters and binds every pod. With true, an outage does not stop "
            "scheduling, but pods then get any cards that the kubelet has. With false, it stops "
            "all scheduling."
        )
    return "An outage of Joulie must never stop scheduling."


_WHAT = {
    "energy": "Makes kube-scheduler call Joulie. Add the extenders to its configuration "
    "(--config).",
    "gpu": "One extender for energy and cards, with one filter and one score. Simple, but "
    "`ignorable` applies to both. The configuration split has separate extenders.",
    "split": "Separate extenders for cards and energy. Cards are a hard rule and are never "
    "assigned without the extender; energy is a preference that must never stop scheduling. "
    "kube-scheduler calls both. The ignorable one comes last.",
}
_SAMPLE = (
    "With hundreds of equal nodes, kube-scheduler's sample may contain only eco nodes. Set "
    "percentageOfNodesToScore: 100, or add a node affinity to performance pods (docs/policies.md)."
)
_PLAIN_URL = "Without TLS, because it is reached over loopback."
_URL = (
    "kube-scheduler on the network of its host may not resolve names of Services: then use the "
    "cluster IP. EXTENDER_HOSTS of the extender must contain this host. HTTP_PROXY and HTTPS_PROXY "
    "of kube-scheduler also apply to it: add it to NO_PROXY. A password here is visible to users "
    "in events of their pods."
)
_PREEMPT = (
    "Drops the nodes that filter would refuse. Preemption does not call filter: without this verb, "
    "one refused pod of high priority evicts the pods of lower priority from the whole cluster."
)
_BIND = "Only one extender may bind. It is this one, because card and node are one write."
_WEIGHT = (
    "A score of 0..100 counts weight x 10 x score points. All default plugins together give at "
    "most 1200, and from Kubernetes 1.35 on 1400 to pods with resource claims, so weight 1 "
    "outweighs nearly all of them. score_range = 10 in a preset reduces it to a tenth."
)
_NAMES = "Names instead of whole nodes: requests are 10 to 100 times smaller."
_MANAGED = (
    "GPU_RESOURCES: only pods that request one of these are sent here, so an outage affects no "
    "other pods."
)
_TIMEOUT = (
    "The extender answers in milliseconds. EXTENDER_DEADLINE (100ms by default) must be well below "
    "this value."
)
_BIND_TIMEOUT = "More than the 3s that a binding may take, so that none is abandoned."
_FILES = (
    "Beyond loopback the extender requires client certificates. Use files: kube-scheduler logs "
    "keyData. Without a CA, enableHTTPS does not verify the server."
)

# --- YAML ---------------------------------------------------------------------------------------

_BARE = re.compile(r"[A-Za-z/][A-Za-z0-9/._-]*(:[A-Za-z0-9/._-]+)*|[0-9]+m?s")
_OTHER_TYPES = frozenset({"true", "false", "null", "yes", "no", "on", "off"})


def _plain(value: Value) -> Any:
    if isinstance(value, list):
        return [tree_of(item) for item in value]
    return tree_of(value) if isinstance(value, tuple) else value


def _lines(fields: Fields, pad: str) -> list[str]:
    return [line for field in fields for line in _field_lines(field, pad)]


def _field_lines(field: Field, pad: str) -> list[str]:
    width = WIDTH - len(pad) - 2
    lines = [f"{pad}# {line}" for line in textwrap.wrap(field.why, width)]
    if not field.key:
        return lines
    if isinstance(field.value, list):
        items = [line for item in field.value for line in _item_lines(item, pad + "  ")]
        return [*lines, f"{pad}{field.key}:", *items]
    if isinstance(field.value, tuple):
        return [*lines, f"{pad}{field.key}:", *_lines(field.value, pad + "  ")]
    return [*lines, f"{pad}{field.key}: {_scalar(field.value)}"]


def _item_lines(item: Fields, pad: str) -> list[str]:
    """The comment of the first field stands above the dash."""
    first, *rest = item
    head: Sequence[str] = _field_lines(first, pad)
    return [*head[:-1], f"{pad}- {head[-1].lstrip()}", *_lines(tuple(rest), pad + "  ")]


def _scalar(value: Scalar) -> str:
    if isinstance(value, str):
        is_bare = _BARE.fullmatch(value) and value.lower() not in _OTHER_TYPES
        return value if is_bare else json.dumps(value)
    return json.dumps(value)
