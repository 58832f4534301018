"""The archiver of the chart: it is there unless it is switched off, and what reads it can."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from helm_chart import CHART, of_kind, pod_specs, rendered
from joulie_audit.retention.writing import ArchiveSettings
from joulie_bus.runtime.settings import Source
from joulie_bus.streams.roles import Role
from joulie_projections.decision_log import heads

pytestmark = pytest.mark.slow
ARCHIVE, REBUILD = "Deployment/joulie-archive", "Job/joulie-rebuild"
HA = ["-f", str(CHART / "values-ha.yaml")]


def env_of(spec: dict[str, Any]) -> dict[str, Any]:
    [container] = spec["containers"]
    return {each["name"]: each.get("value") for each in container["env"]}


def volume_of(spec: dict[str, Any]) -> dict[str, Any]:
    [found] = [each for each in spec["volumes"] if each["name"] == "archive"]
    claim: dict[str, Any] = found["persistentVolumeClaim"]
    return claim


@pytest.mark.parametrize("words", [[], HA], ids=["sqlite", "postgresql"])
def test_an_archiver_runs_by_default_as_the_one_role_that_may_ask_for_cuts(
    words: list[str], home: Path
) -> None:
    trees = rendered(home, *words)
    spec = pod_specs(trees)[ARCHIVE]
    [container] = spec["containers"]
    claim = of_kind(trees, "PersistentVolumeClaim")["joulie-archive"]

    assert container["args"] == ["archive", "--every", "1h"]
    assert env_of(spec)["NATS_USER"] == Role.ARCHIVIST
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert volume_of(spec)["claimName"] == "joulie-archive"
    assert env_of(spec)["ARCHIVE_DIR"].startswith(mount_of(container)["mountPath"])
    assert of_kind(trees, "Deployment")["joulie-archive"]["spec"]["strategy"] == {
        "type": "Recreate"
    }


def mount_of(container: dict[str, Any]) -> dict[str, Any]:
    [mount] = [each for each in container["volumeMounts"] if each["name"] == "archive"]
    return dict(mount)


@pytest.mark.parametrize("words", [[], HA], ids=["sqlite", "postgresql"])
def test_a_rebuild_after_a_rollback_reads_what_was_trimmed(words: list[str], home: Path) -> None:
    """`joulie rebuild` refuses a trimmed log without its archive."""
    pods = pod_specs(rendered(home, *words))
    [container] = pods[REBUILD]["containers"]

    assert env_of(pods[REBUILD])["ARCHIVE_DIR"] == env_of(pods[ARCHIVE])["ARCHIVE_DIR"]
    assert volume_of(pods[REBUILD])["claimName"] == volume_of(pods[ARCHIVE])["claimName"]
    assert mount_of(container)["readOnly"] is True


def test_the_claim_may_be_one_of_yours(home: Path) -> None:
    trees = rendered(home, "--set", "archive.existingClaim=bucket")
    pods = pod_specs(trees)

    assert "joulie-archive" not in of_kind(trees, "PersistentVolumeClaim")
    assert (
        volume_of(pods[ARCHIVE])["claimName"] == volume_of(pods[REBUILD])["claimName"] == "bucket"
    )


def test_a_switch_leaves_the_archiver_out(home: Path) -> None:
    trees = rendered(home, "--set", "archive.enabled=false")
    pods = pod_specs(trees)

    assert ARCHIVE not in pods
    assert "ARCHIVE_DIR" not in env_of(pods[REBUILD])
    assert "joulie-archive" not in yaml.safe_dump_all(trees)


def test_the_keep_window_is_a_setting_of_the_chart(home: Path) -> None:
    trees = rendered(home, "--set", "settings.ARCHIVE_KEEP=72h")
    settings = of_kind(trees, "ConfigMap")["joulie-settings"]["data"]

    assert Source(settings).load(ArchiveSettings).keep_s == 72 * 3600


def test_a_pod_makes_the_public_key_from_a_secret_whose_files_are_links(tmp_path: Path) -> None:
    secret, key, public = tmp_path / "secret", tmp_path / "real.key", tmp_path / "head.pub"
    signer = heads.Signer.of(key)
    secret.symlink_to(key)
    words = [sys.executable, "-m", "joulie_projections.decision_log.public_half"]

    subprocess.run([*words, str(secret), str(public)], check=True)

    assert heads.public_key(public).newest.id == signer.key_id
