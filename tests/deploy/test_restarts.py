"""Each value of the chart's schema, changed once: what restarts, and what stays."""

import json
from asyncio import to_thread
from pathlib import Path
from typing import Any

import pytest

from chart_changes import (
    ALWAYS,
    CONTEXTS,
    LEAVES,
    Change,
    Renders,
    changes,
    compared,
    merged,
    nested,
    other_value,
)
from chart_restarts import PAGE, page
from helm_chart import CHART, NAMESPACE, helm
from kube_real import HELM, Running, program_or_skip

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def changed(home: Path) -> dict[str, Change]:
    program_or_skip(HELM)
    return changes(home, list(LEAVES))


def test_every_value_of_the_schema_changes_something(changed: dict[str, Change]) -> None:
    assert [name for name, change in changed.items() if not change.objects] == []


def test_no_pod_keeps_running_with_an_object_that_changed(changed: dict[str, Change]) -> None:
    assert {name: change.stale for name, change in changed.items() if change.stale} == {}


def test_the_page_lists_what_restarts(changed: dict[str, Change]) -> None:
    assert PAGE.read_text() == page(changed)


def test_a_pod_that_reads_an_object_without_its_checksum_is_found(home: Path) -> None:
    """The settings change, and the annotation with their checksum is taken away."""
    renders = Renders(home)
    one, two = (
        renders.of({**ALWAYS, "settings": {"STATIC_HP_FRAC": value}}) for value in ("0.3", "0.4")
    )
    for each in (one, two):
        text = each.texts["Deployment/joulie-console"]
        lines = [line for line in text.splitlines(keepends=True) if "checksum/" not in line]
        each.texts["Deployment/joulie-console"] = "".join(lines)

    assert compared(one, two).stale == {"Deployment/joulie-console reads ConfigMap/joulie-settings"}


def test_a_context_is_of_a_value_that_there_is() -> None:
    for name in CONTEXTS:
        assert any(leaf == name or leaf.startswith(f"{name}.") for leaf in LEAVES), name


async def test_a_real_server_refuses_what_the_page_calls_refused(
    server: Running, home: Path, changed: dict[str, Change], tmp_path: Path
) -> None:
    installed = CONTEXTS["archive.storage.className"]
    refused = {name for name, change in changed.items() if change.refused}

    async def code_and_text(command: str, values: dict[str, Any]) -> tuple[int, str]:
        file = tmp_path / "values.json"
        file.write_text(json.dumps(merged(installed, values)))
        words = [command, "joulie", str(CHART), "-n", NAMESPACE, "--no-hooks", "-f", str(file)]
        words += ["--create-namespace"] if command == "install" else []
        return await to_thread(helm, words, home, server.kubeconfig("admin"))

    assert len(refused) > 5
    assert (await code_and_text("install", {}))[0] == 0
    for name in sorted(refused):
        code, said = await code_and_text("upgrade", nested(name, other_value(name, "")))
        assert code != 0, name
        assert "orbidden" in said or "immutable" in said or "may not change" in said, said
    for name in ("console.podLabels", "scheduler.replicas", "operator.evictions"):
        code, said = await code_and_text("upgrade", nested(name, other_value(name, 1)))
        assert code == 0, said
