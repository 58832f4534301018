"""`joulie doctor` where little or nothing runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from joulie_bus.runtime.ports import free_port
from joulie_cli.main import main

pytestmark = pytest.mark.slow  # a broker that does not answer is tried for seconds


def examined(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str
) -> tuple[int, dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """The exit code, the findings by check and the settings by name."""
    monkeypatch.setenv("NATS_URL", f"nats://127.0.0.1:{free_port()}")
    code = main(["doctor", "-o", "json", *words])
    out = capsys.readouterr().out
    tree = json.loads(out[out.index("{") :])  # the client of Kubernetes prints a line of its own
    assert tree["exit_code"] == code
    found = {each["check"]: each for each in tree["findings"]}
    return code, found, {each["name"]: each for each in tree["settings"]}


def test_where_nothing_runs_each_finding_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, found, _ = examined(capsys, monkeypatch, "--data", str(tmp_path / "none"))

    assert code == 1
    assert {found["database"]["level"], found["broker"]["level"]} == {"fail"}
    assert found["cluster"]["level"] == "warn"
    assert "DATABASE_URL" in found["database"]["advice"]


def test_a_kubeconfig_that_cannot_be_read_is_one_finding_among_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ["--kubeconfig", str(tmp_path / "missing")]
    code, found, _ = examined(capsys, monkeypatch, "--data", str(tmp_path), *config)

    assert code == 1
    assert found["API server"]["level"] == "fail"
    assert found["python"]["level"] == "ok"
    assert found["broker"]["level"] == "fail"  # NATS_URL names one


def test_the_settings_come_with_their_origin_and_without_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_USER", "joulie")
    monkeypatch.setenv("NATS_PASSWORD", "a-secret-of-ours")
    _, found, settings = examined(capsys, monkeypatch, "--data", str(tmp_path))

    assert settings["NATS_USER"]["origin"] == "environment"
    assert settings["score_range"]["origin"] == "default"
    assert "a-secret-of-ours" not in json.dumps([found, settings])


def test_a_file_without_a_certificate_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.crt").write_text("no certificate")
    monkeypatch.setenv("NATS_CA_FILE", str(tmp_path / "ca.crt"))
    _, found, _ = examined(capsys, monkeypatch, "--data", str(tmp_path))

    assert found["certificate"]["level"] == "warn"
    assert "NATS_CA_FILE" in found["certificate"]["seen"]
