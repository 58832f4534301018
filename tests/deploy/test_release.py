"""`make release` in a repository with the files of this one: what it makes, and what it refuses."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from kube_real import HELM, ROOT, program, program_or_skip

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
TAG = f"v{VERSION}"
GIT = ("git", "-c", "user.name=n", "-c", "user.email=n@example.org")
LONE = {"joulie.cdx.json", "joulie.provenance.json", "SHA256SUMS"}


def git(place: Path, *words: str) -> str:
    done = subprocess.run(
        [*GIT, "-C", str(place), *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of this tree in a repository of their own, with one commit that is a release."""
    place = tmp_path_factory.mktemp("release") / "joulie"
    listed = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        if os.path.lexists(ROOT / name):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, place / name, follow_symlinks=False)
    git(place, "init", "--quiet")
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "--message", "Release")
    git(place, "tag", TAG)
    environment_of(place)
    return place


def environment_of(place: Path) -> None:
    """The environment of this run, as if `make setup` had made it there."""
    (place / ".venv").mkdir()
    for entry in Path(sys.prefix).iterdir():
        if not entry.name.startswith("."):
            (place / ".venv" / entry.name).symlink_to(entry)
    (place / ".venv/.ready").touch()


def release(place: Path, *words: str, **environ: str) -> tuple[int, str]:
    told = {**os.environ, "HELM": str(program_or_skip(HELM)), **environ}
    done = subprocess.run(
        ["make", "release", *words],
        cwd=place,
        env=told,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def made(tagged: Path) -> Path:
    code, said = release(
        tagged, "IMAGES=none", "URL=https://example.com/v", "HOMEPAGE=https://example.com"
    )
    assert code == 0, said
    return tagged / "dist"


def sums(place: Path) -> dict[str, str]:
    lines = (place / "SHA256SUMS").read_text().splitlines()
    return {name: found for found, name in (line.split("  ") for line in lines)}


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def statement(place: Path) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((place / "joulie.provenance.json").read_text())
    return tree


def test_a_release_has_each_file_under_the_version_of_its_tag(made: Path) -> None:
    assert {file.name for file in made.iterdir()} == LONE | {
        f"joulie-{VERSION}-py3-none-any.whl",
        f"joulie-{VERSION}.tar.gz",
        f"joulie-{VERSION}.tgz",
        f"kubectl-joulie-{VERSION}.tar.gz",
        "joulie.yaml",
    }
    with tarfile.open(made / f"joulie-{VERSION}.tgz") as chart:
        opened = chart.extractfile("joulie/Chart.yaml")
        assert opened is not None
        tree = yaml.safe_load(opened)
    assert (tree["version"], tree["appVersion"]) == (VERSION, VERSION)


def test_the_sums_are_those_of_all_other_files(made: Path) -> None:
    assert sums(made) == {
        file.name: sha256(file) for file in made.iterdir() if file.name != "SHA256SUMS"
    }
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=made, check=True)


def test_the_provenance_names_the_files_the_commit_and_the_lock(made: Path, tagged: Path) -> None:
    tree = statement(made)
    built = tree["predicate"]["buildDefinition"]
    digests = {each["name"]: each["digest"] for each in built["resolvedDependencies"]}

    assert tree["_type"] == "https://in-toto.io/Statement/v1"
    assert tree["predicateType"] == "https://slsa.dev/provenance/v1"
    assert {each["name"]: each["digest"]["sha256"] for each in tree["subject"]} == {
        name: found for name, found in sums(made).items() if name != "joulie.provenance.json"
    }
    assert built["externalParameters"] == {"tag": TAG, "images": "none"}
    assert digests == {
        "source": {"gitCommit": git(tagged, "rev-parse", "HEAD")},
        "requirements.lock": {"sha256": sha256(ROOT / "requirements.lock")},
    }
    assert tree["predicate"]["runDetails"]["builder"]["version"]["hatchling"] == metadata.version(
        "hatchling"
    )


def test_a_second_run_makes_the_same_bytes(made: Path, tagged: Path, tmp_path: Path) -> None:
    before = sums(made)
    again = tmp_path / "elsewhere"
    git(tmp_path, "clone", "--quiet", str(tagged), str(again))
    environment_of(again)
    code, said = release(
        again, "IMAGES=none", "URL=https://example.com/v", "HOMEPAGE=https://example.com"
    )

    assert code == 0, said
    assert sums(again / "dist") == before


def objects(chart: Path, home: Path) -> list[tuple[str, str]]:
    words = [
        str(program(HELM)),
        "template",
        "joulie",
        str(chart),
        "--set",
        "generateSecrets=always",
    ]
    told = {**os.environ, "HOME": str(home)}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=told)
    trees = [tree for tree in yaml.safe_load_all(done.stdout) if tree]
    return sorted((tree["kind"], tree["metadata"]["name"]) for tree in trees)


def test_the_packed_chart_renders_the_objects_of_the_folder(made: Path, home: Path) -> None:
    packed = objects(made / f"joulie-{VERSION}.tgz", home)

    assert packed == objects(ROOT / "deploy/chart", home)
    assert len(packed) > 35


def test_a_chart_that_lacks_a_file_is_no_release(other: Path) -> None:
    """Such as out of a copy in which links were lost: helm packs it without an error."""
    git(other, "rm", "--quiet", "deploy/chart/files/kube-scheduler.yaml")
    git(other, "commit", "--quiet", "--message", "Lose a link")

    code, said = release(other, "UNTAGGED=yes", "IMAGES=none")

    assert code != 0
    assert "The packed chart does not render" in said
    assert not (other / "dist/SHA256SUMS").exists()


@pytest.fixture
def other(tagged: Path, tmp_path: Path) -> Path:
    """A clone with a commit that has no tag."""
    place = tmp_path / "other"
    git(tmp_path, "clone", "--quiet", str(tagged), str(place))
    git(place, "commit", "--quiet", "--allow-empty", "--message", "Continue")
    environment_of(place)
    return place


def refusal(place: Path, *words: str, **environ: str) -> str:
    """The error; nothing was built."""
    code, said = release(place, *words, **environ)
    assert code != 0
    assert "Nothing was built." in said
    assert not (place / "dist").exists()
    return said


def test_a_commit_without_a_tag_is_released_only_if_asked(other: Path) -> None:
    assert f"This commit has no tag {TAG}." in refusal(other, "IMAGES=none")

    code, said = release(other, "IMAGES=none", "UNTAGGED=yes")

    assert code == 0, said
    parameters = statement(other / "dist")["predicate"]["buildDefinition"]["externalParameters"]
    assert parameters["tag"] == ""


def test_a_release_refuses_what_it_could_not_name_truly(other: Path) -> None:
    untagged = ("UNTAGGED=yes", "IMAGES=none")

    git(other, "tag", "v9.9.9")
    assert "This commit is tagged v9.9.9, and pyproject.toml says" in refusal(other, *untagged)
    git(other, "tag", "--delete", "v9.9.9")

    (other / "stray.py").touch()
    assert "Files differ from the commit, such as stray.py." in refusal(other, *untagged)
    (other / "stray.py").unlink()

    assert "IMAGES names 'riscv'" in refusal(other, "UNTAGGED=yes", "IMAGES=amd64 riscv")
    assert "more than 'none'" in refusal(other, "UNTAGGED=yes", "IMAGES=none amd64")
    assert "URL is set for krew, and HOMEPAGE is not" in refusal(other, *untagged, "URL=https://a")


def test_without_a_builder_images_are_left_out_only_if_asked(other: Path, tmp_path: Path) -> None:
    """With a path that has everything of this machine but the builders."""
    bare = tmp_path / "bare"
    bare.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for found in Path(folder).glob("*"):
            if found.name not in ("buildah", "podman") and not (bare / found.name).exists():
                (bare / found.name).symlink_to(found)

    said = refusal(other, "UNTAGGED=yes", PATH=str(bare))

    assert "An image is built with buildah or podman, and neither is here." in said
    assert "make release IMAGES=none" in said


def test_the_pages_load_the_file_that_the_archive_is_written_to(tagged: Path) -> None:
    said = subprocess.run(
        ["make", "--dry-run", "image-archive", "ARCH=amd64"],
        cwd=tagged,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    [file] = set(re.findall(r"oci-archive:([^:]+):docker.io/library/joulie:", said))

    lines = re.findall(
        r"(?:kind load|k3s ctr|ctr --namespace k8s.io|minikube image load).* (dist/\S+\.tar)",
        (ROOT / "README.md").read_text() + (ROOT / "docs/install.md").read_text(),
    )
    assert lines == [file] * 5


def described(archive: Path) -> dict[str, str]:
    """Name and machine of the image in an archive."""
    with tarfile.open(archive) as image:

        def content(name: str) -> Any:
            opened = image.extractfile(name)
            assert opened is not None
            return json.load(opened)

        [listed] = content("index.json")["manifests"]
        manifest = content(f"blobs/{listed['digest'].replace(':', '/')}")
        config = content(f"blobs/{manifest['config']['digest'].replace(':', '/')}")
    name = listed["annotations"]["org.opencontainers.image.ref.name"]
    return {"name": name, "machine": config["architecture"]}


@pytest.mark.drill
@pytest.mark.timeout(1800)
@pytest.mark.skipif("RELEASE_BASE" not in os.environ, reason="RELEASE_BASE names no base image")
def test_the_images_of_a_release_are_the_same_twice_and_name_their_base(
    tagged: Path, tmp_path: Path
) -> None:
    """On a base that need not be pulled: one that `.ci/cluster` makes, or a list of two."""
    machines = os.environ.get("RELEASE_IMAGES", "amd64").split()
    options = [f"IMAGES={' '.join(machines)}", f"BASE={os.environ['RELEASE_BASE']}"]
    options += [f"BUILD={os.environ.get('RELEASE_BUILD', '')}"]
    found = []
    for name in ("one", "two"):
        place = tmp_path / name
        git(tmp_path, "clone", "--quiet", str(tagged), str(place))
        environment_of(place)
        code, said = release(place, *options)
        assert code == 0, said
        found.append(sums(place / "dist"))

    assert found[0] == found[1]
    built = statement(place / "dist")["predicate"]["buildDefinition"]
    bases = {each["name"]: each["digest"] for each in built["resolvedDependencies"][2:]}
    archives = {machine: f"joulie-{VERSION}-image-{machine}.tar" for machine in machines}
    assert {f"base of {archive}" for archive in archives.values()} == set(bases)
    assert all(len(digest["sha256"]) == 64 for digest in bases.values())
    for machine, archive in archives.items():
        name = f"docker.io/library/joulie:{VERSION}"
        assert described(place / "dist" / archive) == {"name": name, "machine": machine}
