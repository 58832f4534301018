"""Executors against real sockets and programs: a small Redfish service, scripts."""

import json
import stat
from base64 import b64encode
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web

from joulie_bus.errors import SwitchFailed
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_operator.power.executor_file import executor_of, read_executors
from joulie_operator.power.executors import Executor
from joulie_projections.state.state import NodeState

pytestmark = pytest.mark.anyio
NO_API = cast(Api, None)
ROOT = Path(__file__).parents[3]


class Bmc:
    """A Redfish service with one system, as DSP0266 describes it."""

    def __init__(self) -> None:
        self.power, self.resets, self.port = "On", list[str](), 0
        self.members: object = [{"@odata.id": "/redfish/v1/Systems/437XR"}]
        self.allows = f"Basic {b64encode(b'joulie:secret').decode()}"

    async def respond(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != self.allows:
            return web.Response(status=401)
        match request.method, request.path:
            case "GET", "/redfish/v1/Systems":
                return self._object({"Members": self.members})
            case "GET", "/redfish/v1/Systems/437XR":
                return self._object({"Id": "437XR", "PowerState": self.power})
            case "POST", "/redfish/v1/Systems/437XR/Actions/ComputerSystem.Reset":
                kind = (await request.json())["ResetType"]
                self.resets.append(kind)
                self.power = {"On": "On", "GracefulShutdown": "Off"}[kind]
                return web.Response(status=204)
            case _:
                return web.Response(status=404)

    def _object(self, body: dict[str, Any]) -> web.Response:
        return web.json_response(body)


@pytest.fixture
async def bmc() -> AsyncGenerator[Bmc, None]:
    made = Bmc()
    runner = web.ServerRunner(web.Server(made.respond))  # type: ignore[arg-type]
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


def executor(tmp_path: Path, toml: str, **labels: str) -> Executor:
    """The executor of node n1; the file may name `user` and `password`."""
    (tmp_path / "user").write_text("joulie\n")
    (tmp_path / "password").write_text("secret\n")
    file = tmp_path / "executors.toml"
    secrets = f'user_file = "{tmp_path}/user"\npassword_file = "{tmp_path}/password"\n'
    file.write_text("[[executor]]\n" + toml.replace("SECRETS", secrets))
    named = {f"joulie.io/{key}": value for key, value in labels.items()}
    found = executor_of(
        read_executors(file), "n1", NodeState(ordinal=0, at=0, labels=named), NO_API
    )
    assert found is not None
    return found


async def switched(made: Executor) -> list[bool | None]:
    """The states before, after it was switched off, and after it was switched on."""
    states = [await made.is_on("n1")]
    await made.switch_off("n1")
    states.append(await made.is_on("n1"))
    await made.switch_on("n1")
    return [*states, await made.is_on("n1")]


async def test_redfish_shuts_down_gracefully_and_switches_on(bmc: Bmc, tmp_path: Path) -> None:
    toml = f'kind = "redfish"\naddress = "http://127.0.0.1:{bmc.port}"\nSECRETS'

    assert await switched(executor(tmp_path, toml)) == [True, False, True]
    assert bmc.resets == ["GracefulShutdown", "On"]


@pytest.mark.parametrize("members", [["a"], [7], [], "x", None])
async def test_a_list_of_systems_of_another_form_is_an_error(
    bmc: Bmc, tmp_path: Path, members: object
) -> None:
    bmc.members = members
    toml = f'kind = "redfish"\naddress = "http://127.0.0.1:{bmc.port}"\nSECRETS'

    with pytest.raises(SwitchFailed, match="system"):
        await executor(tmp_path, toml).is_on("n1")


async def test_wrong_credentials_and_silence_are_errors_without_the_password(
    bmc: Bmc, tmp_path: Path
) -> None:
    toml = f'kind = "redfish"\naddress = "http://127.0.0.1:{bmc.port}"\nSECRETS'
    bmc.allows = "another"

    with pytest.raises(SwitchFailed, match="returned 401") as refused:
        await executor(tmp_path, toml).is_on("n1")
    assert "secret" not in str(refused.value)
    dead = toml.replace(str(bmc.port), "1")
    with pytest.raises(SwitchFailed, match=r"127\.0\.0\.1:1"):
        await executor(tmp_path, dead).is_on("n1")


async def test_an_address_may_name_the_node_and_its_labels(bmc: Bmc, tmp_path: Path) -> None:
    toml = f'kind = "redfish"\naddress = "http://{{joulie.io/bmc}}:{bmc.port}"\nSECRETS'

    assert await executor(tmp_path, toml, bmc="127.0.0.1").is_on("n1") is True
    with pytest.raises(SwitchFailed, match=r"no label joulie\.io/bmc"):
        executor(tmp_path, toml)


def program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


async def test_a_command_gets_its_arguments_without_a_shell(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text("on")
    power = program(
        tmp_path / "power",
        f'echo "$@" >> {tmp_path}/calls\n'
        f'[ "$1" = state ] && exec grep -q on {state}\necho "$1" > {state}\n',
    )
    toml = "".join(
        f"{what} = {json.dumps([power, what, '{node}; rm -rf $HOME'])}\n"
        for what in ("on", "off", "state")
    )

    assert await switched(executor(tmp_path, 'kind = "command"\n' + toml)) == [True, False, True]
    assert "off n1; rm -rf $HOME" in (tmp_path / "calls").read_text().splitlines()


@pytest.mark.parametrize(
    ("script", "why"),
    [("echo no route; exit 3", "ended with 3: no route"), ("sleep 30", "took longer than 0.2 s")],
)
async def test_a_command_that_fails_says_why(script: str, why: str, tmp_path: Path) -> None:
    power = json.dumps([program(tmp_path / "power", script)])
    toml = f'kind = "command"\non = {power}\noff = {power}\ntimeout_s = 0.2\n'

    with pytest.raises(SwitchFailed, match=why):
        await executor(tmp_path, toml).switch_off("n1")


def documented(place: Path, rack: str, **labels: str) -> Executor:
    """The executor of a rack as the page has it, with its files in this folder."""
    page = (ROOT / "docs" / "sleeping-nodes.md").read_text()
    recipes = page.split("### IPMI and wake-on-LAN")[1].split("```")[1].removeprefix("toml")
    (place / "password").write_text("secret\n")
    file = place / "executors.toml"
    file.write_text(recipes.replace("/etc/joulie/power", str(place)))
    named = {f"joulie.io/{key}": value for key, value in {"rack": rack, **labels}.items()}
    node = NodeState(ordinal=0, at=0, labels=named)
    found = executor_of(read_executors(file), "n1", node, NO_API)
    assert found is not None
    return found


async def test_the_documented_recipe_of_ipmi_switches_and_reads_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script in place of ipmitool: it keeps the power in a file and prints as ipmitool does."""
    (tmp_path / "power").write_text("on")
    program(
        tmp_path / "ipmitool",
        f'echo "$@" >> {tmp_path}/calls\nfor last; do :; done\n'
        f"case $last in status) echo Chassis Power is $(cat {tmp_path}/power);;\n"
        f"soft) echo off > {tmp_path}/power;; on) echo on > {tmp_path}/power;; esac\n",
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    made = documented(tmp_path, "r3", bmc="10.0.0.7")

    assert await switched(made) == [True, False, True]
    calls = (tmp_path / "calls").read_text()
    assert f"-I lanplus -H 10.0.0.7 -U joulie -f {tmp_path}/password chassis power soft" in calls
    assert "secret" not in calls
    program(tmp_path / "ipmitool", "echo Unable to establish session; exit 1")
    with pytest.raises(SwitchFailed, match="ended with 2: Unable to establish session"):
        await made.is_on("n1")


async def test_the_documented_recipe_of_wake_on_lan_takes_the_address_from_a_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("wakeonlan", "ssh"):
        program(tmp_path / name, f'echo {name} "$@" >> {tmp_path}/calls\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    made = documented(tmp_path, "r4", mac="0a-1b-2c-3d-4e-5f")

    assert await switched(made) == [None, None, None]
    assert (tmp_path / "calls").read_text().splitlines() == [
        "ssh power@n1 poweroff",
        "wakeonlan -i 10.3.255.255 0a:1b:2c:3d:4e:5f",
    ]


@pytest.mark.parametrize(
    ("toml", "why"),
    [
        ('kind = "magic"', "Invalid enum value 'magic'"),
        ('kind = "redfish"', "redfish needs address"),
        ('kind = "redfish"\naddress = "bmc"\nSECRETS', "'bmc' is no URL"),
        ('kind = "command"\non = ["x"]', "command needs off"),
        ('kind = "autoscaler"\nuser_file = "/nowhere"', "there is no file /nowhere"),
        ('kind = "autoscaler"\nnodes = "x"', "not a list of label=value"),
        ('kind = "autoscaler"\nsecret = "x"', "unknown field `secret`"),
        ('kind = "ipmi"\naddress = "bmc"', "the kind ipmi is a recipe of the kind command now"),
        ('kind = "wake-on-lan"\nmac = "x"', '"IPMI and wake-on-LAN", has it'),
    ],
)
def test_a_wrong_file_is_an_error_that_names_it(toml: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"executors\.toml: ") as wrong:
        executor(tmp_path, toml)

    assert why in str(wrong.value)
