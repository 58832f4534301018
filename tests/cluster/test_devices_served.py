"""Devices of DRA from a real API server that serves one older version of their API, or none.

The gate of the feature is off, because the server itself waits for the newest version with it. A
pod then keeps no claims: its devices are known by the pods in `reservedFor` of the claim.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from joulie_answers.doctor.judgement.versions import numbers
from joulie_bus.runtime.ports import free_port
from joulie_operator.kube.api_client import object_path
from joulie_process import joulie
from kube_builders import asking, schedulable
from kube_conditions import NODES, PODS, TIMEOUT_S, Condition, profiles, wait_until
from kube_devices import DRIVER, MEMORY, MODEL
from kube_real import ASSETS, Running, program_or_skip, real_server
from kube_versions import reported

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
GROUP = "resource.k8s.io"
ALL = ("v1", "v1beta2", "v1beta1")
LOCKED_SINCE = (1, 35)
Tree = dict[str, Any]


def serving(*versions: str) -> list[str]:
    switched = (f"{GROUP}/{each}={str(each in versions).lower()}" for each in ALL)
    gate = "--feature-gates=DynamicResourceAllocation=false"
    return [gate, f"--runtime-config={','.join(switched)}"]


def unlocked_or_skip() -> Path:
    """The directory of an API server in which the gate can be off."""
    server = program_or_skip(ASSETS, "etcd", "kube-apiserver")
    if numbers(reported(server)) >= LOCKED_SINCE:
        pytest.skip("this version of Kubernetes always serves the newest version of the API")
    return server.parent


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
async def test_cards_and_holders_are_known_by_an_older_version(
    tmp_path: Path, version: str
) -> None:
    programs = unlocked_or_skip()
    async with real_server(tmp_path / "server", programs, flags=serving(version)) as server:
        await put_devices(server, version)
        data, operator = tmp_path / "data", server.kubeconfig("operator")
        settings = {"EXTENDER_ADDR": f"127.0.0.1:{free_port()}", "LEASE_DURATION": "15s"}
        async with joulie("up", operator, data, TIMEOUT_S, **settings):
            await wait_until(has_holders(data, ["default/train"] * 2))

            assert await line_of_doctor(server, data) == ("ok", f"{GROUP}/{version}")


async def test_without_the_api_nodes_are_known_and_doctor_has_a_line(tmp_path: Path) -> None:
    programs = unlocked_or_skip()
    async with real_server(tmp_path / "server", programs, flags=serving()) as server:
        await server.put(NODES, schedulable("n1"))
        data, operator = tmp_path / "data", server.kubeconfig("operator")
        settings = {"EXTENDER_ADDR": f"127.0.0.1:{free_port()}", "LEASE_DURATION": "15s"}

        async def is_planned() -> bool:
            return list(await profiles(server)) == ["n1"]

        async with joulie("up", operator, data, TIMEOUT_S, **settings):
            await wait_until(is_planned)

            assert (await asked(data, "gpus"))["items"] == []
            assert await line_of_doctor(server, data) == (
                "ok",
                "the API server serves no version that Joulie reads",
            )


async def put_devices(server: Running, version: str) -> None:
    """A node with four devices; a pod holds two."""
    place = f"/apis/{GROUP}/{version}"
    await server.put(NODES, schedulable("n1"))
    await server.api.create(f"{place}/resourceslices", in_form(version, slice_of_four()))
    pod = asking("train", cpu="1", memory="16Mi")
    pod["spec"] |= {
        "nodeName": "n1",
        "resourceClaims": [{"name": "gpus", "resourceClaimName": "two"}],
    }
    uid = msgspec.json.decode(await server.api.create(PODS, pod))["metadata"]["uid"]
    claims = f"{place}/namespaces/default/resourceclaims"
    made = msgspec.json.decode(await server.api.create(claims, in_form(version, claim_of_two())))
    results = [
        {"request": "gpus", "driver": DRIVER, "pool": "n1", "device": f"gpu-{at}"}
        for at in range(2)
    ]
    holder = {"resource": "pods", "name": "train", "uid": uid}
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [holder]}
    await server.api.replace(object_path(claims, "two", "status"), made | {"status": status})


def slice_of_four() -> Tree:
    fields = {
        "attributes": {"productName": {"string": MODEL}},
        "capacity": {"memory": {"value": MEMORY}},
    }
    return {
        "metadata": {"name": "n1-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{at}", **fields} for at in range(4)],
        },
    }


def claim_of_two() -> Tree:
    exactly = {"deviceClassName": DRIVER, "count": 2}
    return {
        "metadata": {"name": "two", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
    }


def in_form(version: str, tree: Tree) -> Tree:
    """v1beta1 has the fields of a device under `basic`, and those of a request beside its name."""
    if version != "v1beta1":
        return tree
    spec = tree["spec"]
    if isinstance(spec["devices"], list):
        devices: Any = [{"name": each.pop("name"), "basic": each} for each in spec["devices"]]
    else:
        devices = {
            "requests": [
                {"name": each["name"], **each["exactly"]} for each in spec["devices"]["requests"]
            ]
        }
    return tree | {"spec": spec | {"devices": devices}}


def has_holders(data: Path, pods: list[str]) -> Condition:
    async def condition() -> bool:
        cards = (await asked(data, "gpus"))["items"]
        found = [pod for card in cards for each in card["allocated"] for pod in each["pods"]]
        return len(cards) == 4 and found == pods

    return condition


async def line_of_doctor(server: Running, data: Path) -> tuple[str, str]:
    operator = ("--kubeconfig", str(server.kubeconfig("admin")))
    found = await asked(data, "doctor", *operator)
    line = next(each for each in found["findings"] if each["check"] == "devices of DRA")
    return line["level"], line["seen"]


async def asked(data: Path, command: str, *options: str) -> Tree:
    words = ("-m", "joulie_cli.main", command, "-o", "json", "--data", str(data), *options)
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    answer: Tree = json.loads(out or '{"items": []}')
    return answer
