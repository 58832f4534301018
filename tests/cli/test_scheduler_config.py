"""`joulie scheduler-config` derives what it prints from the settings."""

import json
from pathlib import Path
from typing import Any

import pytest

from joulie_cli.admin.scheduler_config import CONFIGURATIONS as OFFERED
from joulie_cli.main import main
from joulie_extender.protocol.scheduler_config import CONFIGURATIONS


def configuration(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["scheduler-config", "-o", "json", *words]) == 0
    tree: dict[str, Any] = json.loads(capsys.readouterr().out)
    return tree


def test_the_command_line_offers_the_configurations_of_the_extender() -> None:
    assert OFFERED == CONFIGURATIONS


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({}, "http://127.0.0.1:9876"),
        ({"EXTENDER_ADDR": "[::1]:9000"}, "http://[::1]:9000"),
        (
            {
                "EXTENDER_ADDR": ":9876",
                "EXTENDER_HOSTS": "joulie.example.com,10.0.0.7",
                "EXTENDER_ALLOW_UNAUTHENTICATED": "true",
            },
            "http://joulie.example.com:9876",
        ),
    ],
)
def test_the_address_is_the_one_that_the_extender_listens_on(
    settings: dict[str, str],
    url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    assert configuration(capsys, "--extenders")["extenders"][0]["urlPrefix"] == url


def test_an_extender_with_certificates_is_called_by_https(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CERT", "KEY", "CLIENT_CA"):
        (tmp_path / name).touch()
        monkeypatch.setenv(f"EXTENDER_TLS_{name}_FILE", str(tmp_path / name))
    [block] = configuration(capsys)["extenders"]

    assert block["urlPrefix"].startswith("https:")
    assert block["tlsConfig"]["keyFile"] == "/etc/joulie/scheduler.key"


def test_an_extender_that_binds_gets_both_blocks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXTENDER_BINDS", "in-cluster")
    monkeypatch.setenv("GPU_RESOURCES", "nvidia.com/gpu.shared")
    cards, energy = configuration(capsys, "--mode", "own")["extenders"]

    assert cards["managedResources"] == [
        {"name": "nvidia.com/gpu.shared", "ignoredByScheduler": False}
    ]
    assert "bindVerb" not in energy


def test_an_extender_on_every_interface_needs_a_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXTENDER_ADDR", ":9876")
    monkeypatch.setenv("EXTENDER_ALLOW_UNAUTHENTICATED", "true")

    assert main(["scheduler-config"]) == 2
    assert "set EXTENDER_HOSTS, or give --url" in capsys.readouterr().err


def test_a_scheduler_of_its_own_name_elects_a_leader_and_calls_the_same_extender(
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = configuration(capsys, "--mode", "own", "--namespace", "system")
    patch = configuration(capsys)

    assert own["leaderElection"]["resourceNamespace"] == "system"
    assert own["profiles"] == [{"schedulerName": "joulie"}]
    assert own["extenders"] == patch["extenders"]
