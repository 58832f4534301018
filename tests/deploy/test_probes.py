"""The probes of the chart: a node without CPU delays a container, and does not restart it."""

from pathlib import Path
from typing import Any

import pytest

from helm_chart import CHART, DOCUMENTED, pod_specs, rendered

pytestmark = pytest.mark.slow  # each test waits for helm
ALL = (
    "--set=callout.enabled=true,callout.existingSecret=callout",
    "--set=scheduler.mode=own,scheduler.admission=webhook",
)
START_S = 300.0  # a Python that starts on a node without CPU
HANG_S = 60.0
ANSWER_S = 5.0


@pytest.fixture(scope="module", params=DOCUMENTED)
def containers(request: pytest.FixtureRequest, home: Path) -> dict[str, dict[str, Any]]:
    trees = rendered(home, "-f", str(CHART / f"{request.param}.yaml"), *ALL)
    return {
        f"{name}/{container['name']}": container
        for name, spec in pod_specs(trees).items()
        for container in spec["containers"]
    }


def lasts_s(probe: dict[str, Any]) -> float:
    """How long it may fail before the kubelet acts, at least."""
    return float(probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3))


def probes(containers: dict[str, dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {name: each[kind] for name, each in containers.items() if kind in each}


def test_a_container_that_can_be_restarted_has_minutes_to_start(
    containers: dict[str, dict[str, Any]],
) -> None:
    restarted, starting = probes(containers, "livenessProbe"), probes(containers, "startupProbe")

    assert len(restarted) >= 8
    assert restarted.keys() == starting.keys()
    assert [name for name, each in starting.items() if lasts_s(each) < START_S] == []


def test_a_container_is_restarted_only_if_it_hangs_for_a_minute(
    containers: dict[str, dict[str, Any]],
) -> None:
    restarted = probes(containers, "livenessProbe")

    assert [name for name, each in restarted.items() if lasts_s(each) < HANG_S] == []
    assert [name for name, each in restarted.items() if "initialDelaySeconds" in each] == []


def test_an_answer_may_take_seconds(containers: dict[str, dict[str, Any]]) -> None:
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        found = probes(containers, kind)
        assert found
        assert [n for n, each in found.items() if each.get("timeoutSeconds", 1) < ANSWER_S] == []


def test_what_starts_is_asked_what_later_decides_whether_it_lives(
    containers: dict[str, dict[str, Any]],
) -> None:
    for container in containers.values():
        if "startupProbe" in container:
            what = container["startupProbe"].keys() & {"httpGet", "exec", "tcpSocket"}
            assert {each: container["startupProbe"][each] for each in what} == {
                each: container["livenessProbe"][each] for each in what
            }
