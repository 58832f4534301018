"""A real kube-scheduler places the pods of a group in one rack, because the extender scores so.

KUBE_BIN=.kube/bin-1.37.2 before it: with groups that Kubernetes itself schedules as one.
"""

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from joulie_answers.doctor.judgement.versions import numbers
from joulie_bus.runtime.ports import free_port
from joulie_process import joulie
from kube_builders import Tree, asking, schedulable
from kube_conditions import NODES, PODS, TIMEOUT_S, placed, pod_of, profiles_are, wait_until
from kube_real import ASSETS, SCHEDULER, Running, program_or_skip, real_server
from kube_scheduled import deployed_block, scheduling
from kube_versions import reported
from seen_positions import committed

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
    found = await racks_of_gangs(server, tmp_path, STATIC_HP_FRAC="0", SCORE_GANG_LEVELS="none")

    assert max(len(racks) for racks in found) > 1


# --- a group that Kubernetes schedules as one ---------------------------------------------------

GROUPS = "/apis/scheduling.k8s.io/v1beta1"
GROUPS_SINCE = (1, 37)
GATE = "--feature-gates=GenericWorkload=true"
MEMBERS_OF_MANY, FIT = 20, 12
ATTEMPTS_S = 20.0


def of_group(number: int) -> Tree:
    made = member(0, number)
    del made["metadata"]["labels"]
    made["spec"]["schedulingGroup"] = {"podGroupName": "many"}
    return made


async def have_caps(data: Path) -> bool:
    nodes = committed(data).state.nodes.values()
    return len(nodes) == FIT and all(each.cpu_cap_pct for each in nodes)


async def printed(data: Path, *words: str) -> str:
    command = (sys.executable, "-m", "joulie_cli.main", *words, "--data", str(data))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0, out
    return out.decode()


async def answers(data: Path) -> list[dict[str, Any]]:
    lines = await printed(data, "decisions", "-o", "jsonl", "--limit", "500")
    found = map(json.loads, lines.splitlines())
    return [each for each in found if each["verb"] in ("filter", "prioritize")]


async def test_a_group_that_cannot_fit_has_one_entry_for_each_member_and_list_of_names(
    tmp_path: Path,
) -> None:
    """kube-scheduler asks again about the whole group, and rolls the attempt back."""
    programs = program_or_skip(ASSETS, "kube-apiserver", "etcd").parent
    if numbers(reported(program_or_skip(SCHEDULER))) < GROUPS_SINCE:
        pytest.skip("this version of Kubernetes schedules no groups")
    flags = [GATE, f"--runtime-config={GROUPS.removeprefix('/apis/')}=true"]
    data, extender = tmp_path / "data", f"127.0.0.1:{free_port()}"
    settings = {"EXTENDER_ADDR": extender, "STATIC_HP_FRAC": "0"}
    async with real_server(tmp_path / "server", programs, flags=flags) as server:
        await server.put(NODES, *[node_of(at % RACKS, at) for at in range(FIT)])
        spec = {"schedulingPolicy": {"gang": {"minCount": MEMBERS_OF_MANY}}}
        group = {"metadata": {"name": "many"}, "spec": spec}
        await server.put(f"{GROUPS}/namespaces/default/podgroups", group)
        async with (
            joulie("up", server.kubeconfig("operator"), data, TIMEOUT_S, **settings),
            scheduling(server, deployed_block("kube-scheduler.yaml", extender), flags=[GATE]),
        ):
            await wait_until(lambda: have_caps(data))  # which change the scores
            await server.put(PODS, *map(of_group, range(MEMBERS_OF_MANY)))
            await asyncio.sleep(ATTEMPTS_S)
            found = await answers(data)
            verified = await printed(data, "verify")
            replayed = await printed(data, "replay")

    lists = Counter((each["name"], each["verb"], each["candidates"]) for each in found)
    print(f"\n{len(found)} entries in {ATTEMPTS_S:.0f} s")
    assert len(lists) >= 2 * FIT - 2  # one node left is filtered, and not scored
    assert {key: count for key, count in lists.items() if count > 1} == {}
    assert "every hash, link and signature is valid" in verified
    assert "no mismatches" in replayed
