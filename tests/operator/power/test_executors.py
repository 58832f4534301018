"""Executors against real sockets and programs: a small Redfish service, scripts."""

import asyncio
import json
import ssl
import stat
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web

from authority import Authority
from http_server import endless, serving
from joulie_bus.errors import SwitchFailed
from joulie_operator.controllers.controller_file import controllers_of, read_controllers
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_operator.power.executors import Executor, executor_of
from joulie_projections.state.state import NodeState

pytestmark = pytest.mark.anyio
NO_API = cast(Api, None)
ROOT = Path(__file__).parents[3]
SYSTEMS = "/redfish/v1/Systems"
RACK, HOST, MAC = (
    f"{group}.node-restriction.kubernetes.io/{name}"
    for group, name in (("rack", "name"), ("bmc", "host"), ("nic", "mac"))
)


class Bmc:
    """A Redfish service with TLS and one system, as DSP0266 describes it."""

    def __init__(self) -> None:
        self.power, self.resets, self.url = "On", list[str](), ""
        self.asked = list[str]()
        self.documents: dict[str, Any] = {
            SYSTEMS: {"Members": [{"@odata.id": f"{SYSTEMS}/437XR"}]},
        }
        self.allows = f"Basic {b64encode(b'joulie:secret').decode()}"

    async def respond(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path}")
        if request.headers.get("Authorization") != self.allows:
            return web.Response(status=401)
        match request.method, request.path:
            case "GET", path if path in self.documents:
                found = self.documents[path]
                if callable(found):
                    return await found(request)  # type: ignore[no-any-return]
                return web.json_response(found)
            case "GET", path if path == f"{SYSTEMS}/437XR":
                return web.json_response({"Id": "437XR", "PowerState": self.power})
            case "POST", path if path == f"{SYSTEMS}/437XR/Actions/ComputerSystem.Reset":
                kind = (await request.json())["ResetType"]
                self.resets.append(kind)
                self.power = {"On": "On", "GracefulShutdown": "Off"}[kind]
                return web.Response(status=204)
            case _:
                return web.Response(status=404)


@pytest.fixture
async def bmc(tmp_path: Path) -> AsyncGenerator[Bmc, None]:
    async with running_bmc(tmp_path) as made:
        yield made


@asynccontextmanager
async def running_bmc(folder: Path) -> AsyncGenerator[Bmc, None]:
    """Its authority is ca.pem of the folder."""
    made = Bmc()
    cert, key = Authority.made(folder, "ca").issue(folder, "bmc")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    async with serving(made.respond, tls=tls) as url:
        made.url = url
        yield made


def executor(tmp_path: Path, toml: str, **labels: str) -> Executor:
    """The executor of node n1; SECRETS stands for the files of user, password and authority."""
    (tmp_path / "user").write_text("joulie\n")
    (tmp_path / "password").write_text("secret\n")
    secrets = "".join(
        f'{key}_file = "{tmp_path}/{name}"\n'
        for key, name in (("user", "user"), ("password", "password"), ("ca", "ca.pem"))
    )
    file = tmp_path / "controllers.toml"
    file.write_text("[[controller]]\n" + toml.replace("SECRETS", f"{secrets}switches = true"))
    return executor_in(file, labels)


def executor_in(file: Path, labels: Mapping[str, str]) -> Executor:
    node = NodeState(ordinal=0, at=0, present=True, labels=dict(labels))
    found = controllers_of(read_controllers(file), "switches", {"n1": node})
    assert not found.problems
    made = executor_of(found.entries["n1"], NO_API)
    assert made is not None
    return made


def redfish(url: str, more: str = "") -> str:
    return f'kind = "redfish"\naddress = "{url}"\nSECRETS\n{more}'


async def switched(made: Executor) -> list[bool | None]:
    """The states before, after it was switched off, and after it was switched on."""
    states = [await made.is_on("n1")]
    await made.switch_off("n1")
    states.append(await made.is_on("n1"))
    await made.switch_on("n1")
    return [*states, await made.is_on("n1")]


async def test_redfish_shuts_down_gracefully_and_switches_on(bmc: Bmc, tmp_path: Path) -> None:
    assert await switched(executor(tmp_path, redfish(bmc.url))) == [True, False, True]
    assert bmc.resets == ["GracefulShutdown", "On"]


async def never(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


async def elsewhere(request: web.Request) -> web.StreamResponse:
    raise web.HTTPTemporaryRedirect("https://127.0.0.1:1/redfish/v1/Systems")


def named(path: object) -> dict[str, Any]:
    return {"Members": [{"@odata.id": path}]}


HOSTILE: dict[str, tuple[Any, str]] = {
    "a name": ({"Members": ["a"]}, "lists no system of its own"),
    "a number": ({"Members": [7]}, "lists no system of its own"),
    "no system": ({"Members": []}, "lists no system of its own"),
    "a text": ({"Members": "x"}, "lists no system of its own"),
    "null": ({"Members": None}, "lists no system of its own"),
    "no path": (named("None"), "lists no system of its own"),
    "a path upwards": (named(f"{SYSTEMS}/../../admin"), "lists no system of its own"),
    "a hidden path upwards": (named(f"{SYSTEMS}/%2E%2e/%2e%2e/x"), "lists no system of its own"),
    "a host without a scheme": (named("//other.example/redfish/v1/x"), "lists no system"),
    "a user of another host": (named("@other.example/redfish/v1/x"), "lists no system"),
    "a port": (named(":1@other.example/"), "lists no system of its own"),
    "a system that is gone": (named(f"{SYSTEMS}/gone"), "answered 404"),
    "a redirect": (elsewhere, "answered 307"),
    "a body without end": (endless, "more than 1048576 bytes"),
    "silence": (never, "no answer in 1 s"),
}


@pytest.mark.parametrize(("document", "why"), HOSTILE.values(), ids=HOSTILE)
async def test_a_bmc_that_answers_anything_else_is_an_error_and_nothing_is_switched(
    bmc: Bmc, document: Any, why: str, tmp_path: Path
) -> None:
    bmc.documents = {SYSTEMS: document}
    made = executor(tmp_path, redfish(bmc.url, "timeout_s = 1.0"))

    for call in (made.is_on, made.switch_off):
        with pytest.raises(SwitchFailed) as failed:
            await call("n1")
        assert why in str(failed.value)
        assert "secret" not in str(failed.value)
    assert not [each for each in bmc.asked if each.startswith("POST")] or "gone" in str(document)


async def test_a_bmc_that_names_a_system_of_another_one_gets_no_request_sent_there(
    bmc: Bmc, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    async with running_bmc(tmp_path / "other") as other:
        bmc.documents = {SYSTEMS: named(f"{other.url}{SYSTEMS}/437XR")}
        made = executor(tmp_path, redfish(bmc.url))
        for call in (made.is_on, made.switch_off):
            with pytest.raises(SwitchFailed, match="lists no system of its own"):
                await call("n1")

    assert (other.asked, other.resets) == ([], [])


async def test_wrong_credentials_and_silence_are_errors_without_the_password(
    bmc: Bmc, tmp_path: Path
) -> None:
    bmc.allows = "another"

    with pytest.raises(SwitchFailed, match="answered 401") as refused:
        await executor(tmp_path, redfish(bmc.url)).is_on("n1")
    assert "secret" not in str(refused.value)
    with pytest.raises(SwitchFailed, match=r"127\.0\.0\.1:1"):
        await executor(tmp_path, redfish("https://127.0.0.1:1")).is_on("n1")


async def test_a_bmc_with_another_certificate_gets_no_password(bmc: Bmc, tmp_path: Path) -> None:
    made = executor(tmp_path, redfish(bmc.url))
    Authority.made(tmp_path, "ca")

    with pytest.raises(SwitchFailed, match="certificate"):
        await made.switch_off("n1")
    assert bmc.asked == []


async def test_an_address_may_name_labels_that_no_kubelet_can_set(bmc: Bmc, tmp_path: Path) -> None:
    toml = redfish(bmc.url.replace("127.0.0.1", f"{{{HOST}}}"))

    assert await executor(tmp_path, toml, **{HOST: "127.0.0.1"}).is_on("n1") is True


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
    file = place / "controllers.toml"
    file.write_text(recipes.replace("/etc/joulie/power", str(place)))
    return executor_in(file, {RACK: rack, **labels})


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
    made = documented(tmp_path, "r3", **{HOST: "10.0.0.7"})

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

    made = documented(tmp_path, "r4", **{MAC: "0a-1b-2c-3d-4e-5f"})

    assert await switched(made) == [None, None, None]
    assert (tmp_path / "calls").read_text().splitlines() == [
        "ssh power@n1 poweroff",
        "wakeonlan -i 10.3.255.255 0a:1b:2c:3d:4e:5f",
    ]
