"""Policies by name: built-in ones, and entry points of other packages.

    [project.entry-points."joulie.policies"]
    greedy = "acme_policies:greedy"

makes `POLICY_TYPE=greedy` call `greedy(situation)`; see `policies.Situation` and `policies.Share`.
"""

from importlib.metadata import EntryPoint, entry_points

from joulie_operator.planning.policies import BUILT_IN, Policy
from joulie_operator.planning.reconcile import CODE_VERSION, LoadedPolicy

GROUP = "joulie.policies"


def load_policy(name: str) -> LoadedPolicy:
    """Raises ValueError, with the available names, if the policy is unknown or cannot be loaded."""
    if name in BUILT_IN:
        return LoadedPolicy(BUILT_IN[name])
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        raise ValueError(f"unknown; available: {', '.join([*BUILT_IN, *sorted(found)])}")
    return LoadedPolicy(_loaded(found[name]), f"{CODE_VERSION} {_version(found[name])}")


def _loaded(entry: EntryPoint) -> Policy:
    try:
        policy = entry.load()
    except Exception as error:
        raise ValueError(f"{entry.value} cannot be loaded: {error}") from error
    if not callable(policy):
        raise ValueError(f"{entry.value} is not callable")
    return policy  # type: ignore[no-any-return]


def _version(entry: EntryPoint) -> str:
    """The package and its version: replay compares the code that decided."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
