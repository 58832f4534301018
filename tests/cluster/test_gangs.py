"""A real kube-scheduler places the pods of a group in one rack, because the extender scores so."""

from pathlib import Path

import pytest

from joulie_bus.runtime.ports import free_port
from joulie_process import joulie
from kube_builders import Tree, asking, schedulable
from kube_conditions import NODES, PODS, TIMEOUT_S, placed, pod_of, profiles_are, wait_until
from kube_real import SCHEDULER, Running, program_or_skip
from kube_scheduled import deployed_block, scheduling

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
ONLY_REAL = pytest.mark.parametrize("server", ["real"], indirect=True)
RACKS, NODES_OF_RACK, GANGS, MEMBERS = 3, 6, 3, 4


def node_of(rack: int, number: int) -> Tree:
    made = schedulable(f"g{rack}-{number}", gpus=8)
    made["metadata"]["labels"]["joulie.io/rack"] = f"r{rack}"
    return made


def member(gang: int, number: int) -> Tree:
    made = asking(f"train-{gang}-{number}", cpu="8", memory="1Gi", **{"nvidia.com/gpu": "8"})
    resources = made["spec"]["containers"][0]["resources"]
    resources["limits"] = {"nvidia.com/gpu": "8"}
    made["metadata"]["labels"] = {"jobset.sigs.k8s.io/jobset-name": f"train-{gang}"}
    return made


async def racks_of_gangs(server: Running, tmp_path: Path, **environ: str) -> list[set[str]]:
    """The racks in which each gang of 4 pods with 8 cards came to run; all arrive at once."""
    program_or_skip(SCHEDULER)
    await server.put(
        NODES, *[node_of(rack, at) for rack in range(RACKS) for at in range(NODES_OF_RACK)]
    )
    operator, extender = server.kubeconfig("operator"), f"127.0.0.1:{free_port()}"
    gangs = [[member(gang, at) for at in range(MEMBERS)] for gang in range(GANGS)]
    names = [[pod["metadata"]["name"] for pod in gang] for gang in gangs]
    async with (
        joulie("up", operator, tmp_path / "data", TIMEOUT_S, EXTENDER_ADDR=extender, **environ),
        scheduling(server, deployed_block("kube-scheduler.yaml", extender)),
    ):
        await wait_until(profiles_are(server, eco=4 + RACKS * NODES_OF_RACK))
        for gang in gangs:
            await server.put(PODS, *gang)
        await wait_until(placed(server, *[name for gang in names for name in gang]))
        return [
            {(await pod_of(server, name))["spec"]["nodeName"].partition("-")[0] for name in gang}
            for gang in names
        ]


@ONLY_REAL
async def test_each_gang_of_four_pods_with_eight_cards_runs_in_one_rack(
    server: Running, tmp_path: Path
) -> None:
    found = await racks_of_gangs(server, tmp_path, STATIC_HP_FRAC="0")

    assert [len(racks) for racks in found] == [1] * GANGS


@ONLY_REAL
async def test_without_the_term_gangs_are_scattered(server: Running, tmp_path: Path) -> None:
    found = await racks_of_gangs(server, tmp_path, STATIC_HP_FRAC="0", SCORE_GANG="0")

    assert max(len(racks) for racks in found) > 1
