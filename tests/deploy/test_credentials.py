"""The table of credentials has each one of the chart, with the pods that have it."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from helm_chart import CHART, DOCUMENTED, of_kind, pod_specs, rendered
from joulie_bus.broker.callout import SERVICES
from joulie_bus.streams.roles import Role
from joulie_migrations.cuts import TRIMMER
from joulie_migrations.guards import READER, WRITER
from joulie_migrations.ledger_tables import LEDGER

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/security.md"
Tree = dict[str, Any]
EVERYTHING = (
    "--set=callout.enabled=true,agent.caps=true,headsTo.configMap=true",
    "--set=scheduler.admission=webhook,scheduler.configuration=gpu,operator.evictions=true",
    "--set=operator.powerControllersSecret=joulie-power",
    "--set=console.notify.existingSecret=joulie-notify",
    "--set=archive.bucket.url=https://s3.example/archive/a",
    "--set=archive.bucket.existingSecret=joulie-archive-s3",
)
HEADS = (
    "--set=headsTo.s3.url=https://s3.example/heads/h,headsTo.s3.existingSecret=joulie-heads-s3",
    "--set=tls.certManager=true",
)
PUBLIC = {"tls.crt", "ca.crt"}  # no secrets


class Row(NamedTuple):
    credentials: list[str]
    held_by: set[str]
    worst: str
    test: str


def rows() -> list[Row]:
    text = PAGE.read_text().split("## Credentials\n")[1].split("\n## ")[0]
    found = []
    for line in re.findall(r"^\| (`.*) \|$", text, re.MULTILINE):
        first, second, worst, test = (cell.strip() for cell in line.split(" | "))
        held_by = set(re.findall(r"`([\w-]+)`", second))
        found.append(Row(re.findall(r"`([^`]+)`", first), held_by, worst, test))
    return found


@pytest.fixture(scope="module")
def trees(home: Path) -> list[Tree]:
    """Of all documented values, and of what is off by default."""
    files = [("-f", str(CHART / f"{name}.yaml")) for name in DOCUMENTED if name != "values-patch"]
    patch = ("-f", str(CHART / "values-patch.yaml"), "--set=scheduler.configuration=split")
    options = [(), EVERYTHING, HEADS, patch, *files]
    return [tree for each in options for tree in rendered(home, *each)]


def component(workload: str) -> str:
    return workload.partition("/joulie-")[2]


def of_pods(trees: list[Tree]) -> Mapping[str, set[str]]:
    """The credentials of pods, by name: which components have each one."""
    found = defaultdict[str, set[str]](set)
    for name, spec in all_pods(trees):
        for credential in of_spec(spec):
            found[credential].add(component(name))
    return found


def all_pods(trees: list[Tree]) -> Iterator[tuple[str, Tree]]:
    for tree in trees:
        yield from pod_specs([tree]).items()


def of_spec(spec: Tree) -> Iterator[str]:
    if spec.get("automountServiceAccountToken") is not False and "serviceAccountName" in spec:
        yield spec["serviceAccountName"]
    for volume in spec.get("volumes", ()):
        for source in volume.get("projected", {}).get("sources", ()):
            if "serviceAccountToken" in source:
                yield str(source["serviceAccountToken"]["audience"])
            yield from of_secret(source.get("secret", {}))
        yield from of_secret(volume.get("secret", {}))


def of_secret(secret: Tree) -> Iterator[str]:
    """Keys of a Secret that a pod mounts; the whole of it without keys."""
    keys = {item["key"] for item in secret.get("items", ())}
    name = secret.get("secretName") or secret.get("name")
    if name and keys:
        yield from (str(key) for key in keys - PUBLIC if key.startswith(("NATS_", "url-", "uri")))
        if not all(key.startswith(("NATS_", "url-", "uri")) or key in PUBLIC for key in keys):
            yield str(name)
    elif name:
        yield str(name)


def test_each_credential_of_the_chart_is_in_the_table(trees: list[Tree]) -> None:
    named = {name for row in rows() for name in row.credentials}
    made = {
        *of_kind(trees, "ServiceAccount"),
        *of_kind(trees, "Secret"),
        *(tree["spec"]["secretName"] for tree in of_kind(trees, "Certificate").values()),
        *(f"NATS_{user.upper()}" for user in (*Role, *SERVICES)),
        WRITER,
        READER,
        TRIMMER,
        LEDGER,
        *of_pods(trees),
    }

    assert sorted(made - named) == []


def test_the_table_says_which_pods_have_each_credential(trees: list[Tree]) -> None:
    held = of_pods(trees)
    wrong = {
        name: (sorted(row.held_by), sorted(held[name]))
        for row in rows()
        for name in row.credentials
        if name in held and row.held_by != held[name]
    }

    assert wrong == {}


def test_each_row_says_what_is_the_worst_and_which_test_shows_it() -> None:
    found = rows()
    tests = [
        (row.credentials[0], re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row.test)) for row in found
    ]

    assert len(found) > 30
    assert [name for name, named in tests if not named] == []
    assert [
        f"{file}::{name}"
        for _, named in tests
        for file, name in named
        if f"def {name}(" not in (ROOT / file).read_text()
    ] == []
    names = [name for row in found for name in row.credentials]
    assert len(names) == len(set(names)), "each credential has one row"
    assert [row.credentials[0] for row in found if len(row.worst) < 10] == []
