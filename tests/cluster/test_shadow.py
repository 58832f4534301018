"""`joulie up --shadow` beside a real kube-scheduler that knows no extender."""

from collections import Counter
from pathlib import Path

import pytest

from joulie_bus.events import FilterDecided
from joulie_process import joulie
from joulie_projections.component.data_directory import DataDirectory
from joulie_projections.history.history import EntryQuery, History
from kube_builders import asking
from kube_conditions import PODS, TIMEOUT_S, placed, wait_until
from kube_real import SCHEDULER, Running, Tree, program_or_skip
from kube_scheduled import scheduling

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
BARE: Tree = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"schedulerName": "default-scheduler"}],
}


def answered(data: Path) -> set[str]:
    with History.of(DataDirectory(data).database) as history:
        entries = history.find(EntryQuery(kinds=(FilterDecided.TYPE,)))
        return {entry.pod.rpartition("/")[2] for entry in entries}


@pytest.mark.parametrize("server", ["real"], indirect=True)
async def test_a_shadow_answers_for_the_pods_of_a_real_scheduler_and_writes_nothing(
    server: Running, tmp_path: Path
) -> None:
    program_or_skip(SCHEDULER)
    names, data = [f"p{number}" for number in range(8)], tmp_path / "data"
    async with (
        joulie("up", server.kubeconfig("operator"), data, TIMEOUT_S, "--shadow") as ours,
        scheduling(server, BARE),
    ):
        await server.put(PODS, *(asking(name, cpu="2") for name in names))
        await wait_until(placed(server, *names))

        async def is_answered() -> bool:
            return DataDirectory(data).running() is not None and answered(data) >= set(names)

        await wait_until(is_answered)
    assert ours.returncode == 0

    verbs = Counter(request["verb"] for request in server.asked())
    assert set(verbs) <= {"list", "watch"}, verbs  # by the audit log of kube-apiserver
    assert verbs["watch"] > 0
