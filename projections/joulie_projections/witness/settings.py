"""Where the heads of the log are kept outside of the broker and the database."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from joulie_bus.core.kube_names import is_label, is_subdomain
from joulie_bus.runtime.settings import setting
from joulie_bus.s3.bucket import BucketPlace, bucket_place
from joulie_projections.witness.policy import Policy, at_least, parsed, witness_place


class ConfigMapPlace(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"configmap:{self.namespace}/{self.name}"


HeadsPlace = Path | BucketPlace | ConfigMapPlace


def heads_place(text: str) -> HeadsPlace | None:
    """file:PATH, configmap:NAMESPACE/NAME, s3:https://HOST/BUCKET/PREFIX, or empty"""
    if not text:
        return None
    kind, _, where = text.partition(":")
    if kind == "s3":
        return bucket_place(where)
    namespace, _, name = where.partition("/")
    if kind == "configmap" and is_label(namespace) and is_subdomain(name):
        return ConfigMapPlace(namespace, name)
    if kind != "file" or not where:
        raise ValueError("not file:PATH, configmap:NAMESPACE/NAME or s3:https://HOST/BUCKET/PREFIX")
    return Path(where)


def witness_policy(text: str) -> Policy:
    """witnesses as KEY@URL, separated by spaces; or policy:FILE, a policy of C2SP"""
    kind, _, where = text.partition(":")
    if kind == "policy":
        return policy_in(Path(where))
    return at_least(map(witness_place, text.split()))


def policy_in(file: Path) -> Policy:
    """Raises ValueError with the file, the line and the reason."""
    try:
        return parsed(file.read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class WitnessSettings:
    policy: Policy = setting(
        witness_policy,
        "WITNESSES",
        "",
        "Witnesses that cosign the checkpoints of the log (`joulie witness`)",
    )


@dataclass(frozen=True, kw_only=True)
class HeadsSettings:
    heads_to: HeadsPlace | None = setting(
        heads_place,
        "HEADS_TO",
        "",
        "A place outside of database and broker to which signed heads are appended: a file, a "
        "ConfigMap or a bucket",
    )
