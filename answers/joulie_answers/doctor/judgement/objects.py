"""CRDs, rights, admission and pods of the installation."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from joulie_answers.doctor.judgement.findings import Finding, Unseen, fail, not_seen, ok, warn
from joulie_operator.resources.crds import Definition, definition
from joulie_operator.resources.custom_resources import VERSION
from joulie_operator.resources.device_objects import GROUP
from joulie_operator.resources.rights import Right

LABEL = "joulie.io/schedule=true"
ASK_AN_ADMINISTRATOR = "Run this command as an administrator of the cluster."


class Account(NamedTuple):
    """What an account of a component may do."""

    part: str
    name: str
    missing: Sequence[Right]


class Admission(NamedTuple):
    """How pods get our schedulerName."""

    versions: Sequence[str]  # of the API that serve MutatingAdmissionPolicies
    policies: Sequence[str]
    bound: Sequence[str]  # policies that a binding names
    webhooks: Mapping[str, bool]  # and whether each has the certificate of its authority
    namespaces: int  # with the label


class Part(NamedTuple):
    name: str
    ready: int
    pods: int
    why: str = ""  # the reason of the first pod that is not ready


def crd(wanted: Definition, found: Mapping[str, Any] | Unseen | None) -> Finding:
    check = f"CRD {wanted.name}"
    if isinstance(found, Unseen):
        return not_seen(check, found, ASK_AN_ADMINISTRATOR)
    apply = "Apply deploy/crds, or upgrade the release (crds.install=true)."
    if found is None:
        return fail(check, "missing", apply)
    served = {each["name"]: each for each in found["spec"]["versions"] if each["served"]}
    if VERSION not in served:
        return fail(check, f"serves {', '.join(served) or 'nothing'}, not {VERSION}", apply)
    [ours] = definition(wanted)["spec"]["versions"]
    if served[VERSION]["schema"] != ours["schema"]:
        return warn(check, f"{VERSION}, with another schema than that of this version", apply)
    return ok(check, VERSION)


def rights(seen: Account | Unseen, part: str) -> Finding:
    check = f"rights of the {part}"
    if isinstance(seen, Unseen):
        return not_seen(check, seen, ASK_AN_ADMINISTRATOR)
    if not seen.missing:
        return ok(check, f"{seen.name} has all that it needs")
    lacks = ", ".join(map(str, seen.missing))
    file = "deploy/rbac.yaml" if part == "operator" else "deploy/rbac-extender.yaml"
    return fail(check, f"{seen.name} may not {lacks}", f"Apply {file}, or upgrade the release.")


def devices(version: str | Unseen) -> Finding:
    """No fault without the API: then no pod has devices of DRA."""
    check = "devices of DRA"
    if isinstance(version, Unseen):
        return not_seen(check, version, ASK_AN_ADMINISTRATOR)
    if not version:
        return ok(check, "the API server serves no version that Joulie reads")
    return ok(check, f"{GROUP}/{version}")


def admission(seen: Admission | Unseen, has_own_scheduler: bool) -> Finding:
    check = "admission"
    if isinstance(seen, Unseen):
        return not_seen(check, seen, ASK_AN_ADMINISTRATOR)
    if without := [name for name, is_signed in seen.webhooks.items() if not is_signed]:
        return fail(
            check,
            f"the webhook {without[0]} has no caBundle, so the API server cannot call it",
            "Upgrade the release.",
        )
    if unbound := sorted(set(seen.policies) - set(seen.bound)):
        return fail(check, f"no binding names the policy {unbound[0]}", "Upgrade the release.")
    if not has_own_scheduler:
        return ok(check, "not needed: the chart runs no scheduler")
    return _of_own_scheduler(seen)


def _of_own_scheduler(seen: Admission) -> Finding:
    check = "admission"
    if not (seen.policies or seen.webhooks):
        served = ", ".join(seen.versions)
        if not served:
            advice = "Set spec.schedulerName in your pods."
            return warn(check, "the API server serves no MutatingAdmissionPolicies", advice)
        advice = "Upgrade the release with scheduler.admission=auto."
        return warn(check, f"no policy, though the API server serves them ({served})", advice)
    by = ", ".join([*seen.policies, *seen.webhooks])
    if not seen.namespaces:
        advice = f"`kubectl label namespace NAME {LABEL}` lets our scheduler place its pods."
        return warn(check, f"{by}; no namespace has the label {LABEL}", advice)
    return ok(check, f"{by}; {seen.namespaces} namespaces have the label {LABEL}")


def part(seen: Part) -> Finding:
    shown = f"{seen.ready} of {seen.pods} pods ready"
    if seen.ready == seen.pods:
        return ok(f"pods of {seen.name}", shown)
    advice = f"`kubectl describe pod -l app.kubernetes.io/component={seen.name}`, and its log."
    level = warn if seen.ready else fail
    return level(f"pods of {seen.name}", f"{shown}{_because(seen.why)}", advice)


def _because(why: str) -> str:
    return f": {why}" if why else ""
