"""The plugin of kubectl as krew installs it."""

import hashlib
import os
import subprocess
import sys
import tarfile
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from helm_chart import loaded

ROOT = Path(__file__).parents[2]
KREW = ROOT / "deploy/krew"
URL, HOMEPAGE = "https://example.com/v1", "https://example.com"
# What the imported packages use only where it is. The client of Kubernetes looks for `google.auth`
# in a namespace that other packages have a part of.
INDIRECT = {
    "pydantic",
    "pydantic-core",
    "annotated-types",
    "typing-inspection",
    "protobuf",
    "googleapis-common-protos",
}
IMPORTED = """
import sys
import joulie_cli.kubectl.__main__
print("\\n".join({name.split(".")[0] for name in sys.modules}))
"""

pytestmark = pytest.mark.slow


PACKAGE = loaded(KREW / "package.py")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    PACKAGE.main(place, URL, HOMEPAGE)
    return place


@pytest.fixture(scope="module")
def manifest(dist: Path) -> dict[str, Any]:
    tree: dict[str, Any] = yaml.safe_load((dist / "joulie.yaml").read_text())
    return tree


def test_the_manifest_has_the_shape_that_krew_requires(manifest: dict[str, Any]) -> None:
    spec = manifest["spec"]
    [platform] = spec["platforms"]
    systems = platform["selector"]["matchExpressions"][0]

    assert manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert manifest["kind"] == "Plugin"
    assert manifest["metadata"] == {"name": "joulie"}
    assert spec["version"].startswith("v")
    assert len(spec["version"].split(".")) == 3
    assert len(spec["shortDescription"]) <= 50
    assert not spec["shortDescription"].endswith(".")
    assert systems == {"key": "os", "operator": "In", "values": ["linux", "darwin"]}
    assert set(platform) == {"selector", "uri", "sha256", "bin"}


def test_the_manifest_names_the_archive_and_its_sum(dist: Path, manifest: dict[str, Any]) -> None:
    [platform] = manifest["spec"]["platforms"]
    place, _, name = platform["uri"].rpartition("/")

    assert place == URL
    assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == platform["sha256"]
    assert manifest["spec"]["homepage"] == HOMEPAGE
    with tarfile.open(dist / name) as archive:
        program = archive.getmember(platform["bin"])
        assert program.mode == 0o755
        assert "LICENSE" in archive.getnames()  # krew requires one


def test_the_archive_is_the_same_each_time(dist: Path) -> None:
    [wheel] = dist.glob("*.whl")

    assert PACKAGE.archive(wheel, "1.2.3") == PACKAGE.archive(wheel, "1.2.3")


def test_the_archive_pins_every_package_that_the_plugin_imports() -> None:
    command = [sys.executable, "-c", IMPORTED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    owners = packages_distributions()
    found = {owner for name in done.stdout.split() for owner in owners.get(name, [])}
    pinned = set(PACKAGE.locked().blocks(PACKAGE.requirements()))
    optional = {"greenlet", "pygments", "rich", "joulie", "setuptools"}  # used where they are

    normal = PACKAGE.locked().normal
    assert {normal(name) for name in found} - pinned - optional - INDIRECT == set()


def test_the_program_starts_the_plugin_from_a_link(dist: Path, tmp_path: Path) -> None:
    """As krew does: the archive in a directory, and a link to the program on the path."""
    [packed] = dist.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path / "store", filter="data")
    version = packed.name.removeprefix("kubectl-joulie-").removesuffix(".tar.gz")
    prepared(tmp_path / "cache/kubectl-joulie" / version)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/kubectl-joulie").symlink_to("../store/kubectl-joulie")
    told = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(tmp_path / "cache")}

    done = subprocess.run(
        [tmp_path / "bin/kubectl-joulie", "explain", "--help"],
        env={**told, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "usage: kubectl joulie explain" in done.stdout


def prepared(home: Path) -> None:
    """The environment as the first start leaves it; this machine may reach no index."""
    (home / "bin").mkdir(parents=True)
    (home / "bin/python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (home / "bin/python").chmod(0o755)
    (home / "ready").touch()


def test_an_old_python_is_refused_and_nothing_is_installed(tmp_path: Path) -> None:
    old = tmp_path / "old-python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    told = {"PATH": os.environ["PATH"], "PYTHON": str(old), "HOME": str(tmp_path)}

    done = subprocess.run(
        [KREW / "kubectl-joulie", "status"], env=told, capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert "is not Python 3.11 or newer" in done.stderr
    assert not (tmp_path / ".cache").exists()
