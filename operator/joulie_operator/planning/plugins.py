"""Policies by name: our own, and those that other packages bring along as entry points.

    [project.entry-points."joulie.policies"]
    greedy = "acme_policies:greedy"

makes `POLICY_TYPE=greedy` call `greedy(situation)`; see `policies.Situation` and `policies.Share`.
"""

from importlib.metadata import EntryPoint, entry_points

from joulie_operator.planning.policies import BUILT_IN, Policy
from joulie_operator.planning.reconcile import CODE_VERSION, Chosen

GROUP = "joulie.policies"


def chosen(name: str) -> Chosen:
    """Raises ValueError, with all names that there are, or with what is wrong with this one."""
    if name in BUILT_IN:
        return Chosen(BUILT_IN[name])
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        raise ValueError(f"unknown; there are {', '.join([*BUILT_IN, *sorted(found)])}")
    return Chosen(_loaded(found[name]), f"{CODE_VERSION} {_version(found[name])}")


def _loaded(entry: EntryPoint) -> Policy:
    try:
        policy = entry.load()
    except Exception as error:
        raise ValueError(f"{entry.value} cannot be loaded: {error}") from error
    if not callable(policy):
        raise ValueError(f"{entry.value} is no function")
    return policy  # type: ignore[no-any-return]


def _version(entry: EntryPoint) -> str:
    """Of the package that it is from: replay must know which one decided."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
