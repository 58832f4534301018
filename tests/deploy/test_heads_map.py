"""Signed heads in the ConfigMap of the chart, written with the rights of the projector alone."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml  # type: ignore[import-untyped]

from audit_kit import RecordedLog
from helm_chart import CHART, NAMESPACE, helm
from joulie_bus.errors import KubernetesRefused
from joulie_operator.kube import heads_map
from joulie_operator.kube.api_client import CONFLICT, ApiServer
from joulie_operator.kube.heads_map import ConfigMapKeeper
from joulie_projections.chain.head import decode
from joulie_projections.chain.keyring import Ring
from joulie_projections.history.history import History
from joulie_projections.witness.keeping import HeadKeeping
from joulie_projections.witness.settings import ConfigMapPlace
from kube_real import Running
from recorded_data import copied, grow, recorded_in, replaced, verify

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
NAMED = f"configmap:{NAMESPACE}/joulie-heads"
FORBIDDEN = 403


class Site(NamedTuple):
    data: Path
    recorded: RecordedLog
    server: Running
    keeper: ConfigMapKeeper
    kubeconfig: Path  # of the account of the projector

    async def keep(self) -> None:
        keeping = HeadKeeping(self.data / "joulie.db", self.keeper, NAMED, self.ring)
        await asyncio.to_thread(keeping.keep)

    def ring(self) -> Ring:
        return self.recorded.builder.signer.public

    async def entries(self) -> list[int]:
        return [decode(line).pos for line in await asyncio.to_thread(self.keeper.kept)]

    async def verify(self) -> int:
        return await verify("--data", str(self.data), "--heads", NAMED)


async def kubeconfig_of(server: Running, account: str, directory: Path) -> Path:
    """With a token of the account, as its pod gets one."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
    made = json.loads(await server.api.create(path, {"spec": {"expirationSeconds": 3600}}))
    tree = yaml.safe_load(server.kubeconfig("admin").read_text())
    for user in tree["users"]:
        user["user"] = {"token": made["status"]["token"]}
    file = directory / f"{account}.kubeconfig"
    file.write_text(yaml.safe_dump(tree))
    return file


@pytest.fixture
async def site(
    server: Running, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Site, None]:
    words = ["install", "joulie", str(CHART), "-n", NAMESPACE, "--create-namespace"]
    words += ["--set", "headsTo.configMap=true"]
    code, said = await asyncio.to_thread(helm, words, home, server.kubeconfig("admin"))
    assert code == 0, said
    file = await kubeconfig_of(server, "joulie-projector", tmp_path)
    keeper = ConfigMapKeeper.of(ConfigMapPlace(NAMESPACE, "joulie-heads"), str(file))
    monkeypatch.setenv("KUBECONFIG", str(file))
    async with recorded_in(tmp_path / "data", tmp_path) as recorded:
        recorded.builder.signer.publish(tmp_path / "data" / "head.pub")
        yield Site(tmp_path / "data", recorded, server, keeper, file)


async def test_the_newest_heads_are_kept_and_a_rollback_is_named(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads_map, "KEPT", 2)
    copy = copied(site.recorded, tmp_path / "copy.db")
    await site.keep()
    assert await site.verify() == 0
    await grow(site.recorded, "later")
    await site.keep()
    await site.keep()
    assert await site.entries() == [9, 11]  # of three

    replaced(site.data, copy)
    await site.keep()
    assert await site.entries() == [9, 11]
    assert await site.verify() == 1
    assert "a signed head covers entry 11, but the log ends at 9" in capsys.readouterr().out


async def test_the_projector_may_replace_no_other_object_and_remove_nothing(site: Site) -> None:
    secrets = f"/api/v1/namespaces/{NAMESPACE}/secrets/joulie-head-key"
    async with ApiServer.of(site.kubeconfig) as projector:
        with pytest.raises(KubernetesRefused) as of_secret:
            await projector.get(secrets)
        with pytest.raises(KubernetesRefused) as of_settings:
            await projector.get(f"{MAPS}/joulie-settings")
        with pytest.raises(KubernetesRefused) as of_delete:
            await projector.delete(f"{MAPS}/joulie-heads")

    assert [of_secret.value.code, of_settings.value.code, of_delete.value.code] == [FORBIDDEN] * 3


async def test_of_two_projectors_at_once_none_replaces_what_the_other_kept(site: Site) -> None:
    """A write with an older version is refused."""
    async with ApiServer.of(site.kubeconfig) as projector:
        before: dict[str, Any] = json.loads(await projector.get(f"{MAPS}/joulie-heads") or b"{}")
        await site.keep()
        with pytest.raises(KubernetesRefused) as refused:
            await projector.replace(f"{MAPS}/joulie-heads", before | {"data": {}})

    assert refused.value.code == CONFLICT
    with History.of(site.data / "joulie.db") as history:
        assert await site.entries() == [head.pos for head in history.heads()]


async def test_what_others_wrote_into_it_is_named(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(await site.server.api.get(f"{MAPS}/joulie-heads") or b"{}")
    written = found | {"data": {"heads.jsonl": "no head\n"}}
    await site.server.api.replace(f"{MAPS}/joulie-heads", written)
    await site.keep()

    assert await site.verify() == 1
    assert f"no key of this log signed a head in {NAMED}" in capsys.readouterr().out
