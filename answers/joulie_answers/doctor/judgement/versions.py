"""Versions of what Joulie runs on and with."""

import re

from joulie_answers.doctor.judgement.findings import Finding, Unseen, fail, not_seen, ok, warn

OLDEST_PYTHON = (3, 11)
OLDEST_KUBERNETES = (1, 30)  # of the chart
# Minor versions, and docs/compatibility.md has what was tried with each.
TESTED_KUBERNETES = ((1, 32), (1, 33), (1, 34), (1, 35), (1, 36), (1, 37))
BROKER = (2, 15)  # the minor version that the package starts and the tests run
LOOK = "Run this command on a machine, or with an account, that can see it."


def python(found: tuple[int, int]) -> Finding:
    shown = ".".join(map(str, found))
    if found < OLDEST_PYTHON:
        return fail("python", shown, "Install Python 3.11 or newer.")
    return ok("python", shown)


def kubernetes(found: str | Unseen) -> Finding:
    if isinstance(found, Unseen):
        return not_seen("kubernetes", found, "Name the cluster with --kubeconfig.")
    version = numbers(found)
    if version < OLDEST_KUBERNETES:
        return fail("kubernetes", found, "Upgrade the cluster: the chart needs 1.30 or newer.")
    if version not in TESTED_KUBERNETES:
        return warn(
            "kubernetes",
            f"{found}; tested with {', '.join(map(_dotted, TESTED_KUBERNETES))}",
            "Try this version in a test cluster first.",
        )
    return ok("kubernetes", found)


def broker(found: str | Unseen) -> Finding:
    if isinstance(found, Unseen):
        return not_seen("broker version", found, LOOK)
    version = numbers(found)
    if version < BROKER:
        return warn(
            "broker version",
            f"nats-server {found}; tested with {_dotted(BROKER)}",
            f"Upgrade nats-server to {_dotted(BROKER)}.",
        )
    return ok("broker version", f"nats-server {found}")


def schema(found: str | Unseen, oldest: str, newest: str) -> Finding:
    if isinstance(found, Unseen):
        return not_seen("database schema", found, LOOK)
    if found < oldest:
        seen = f"schema {found or 'none'}; this version needs {oldest}"
        return fail("database schema", seen, "Run `joulie migrate`.")
    if found > newest:
        return warn(
            "database schema",
            f"schema {found}; this version knows {newest}",
            "Use the version of joulie that migrated it.",
        )
    return ok("database schema", found)


def numbers(version: str) -> tuple[int, int]:
    """The major and the minor number of `v1.34.1` or `2.15.1`; zeros if there are none."""
    match = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
