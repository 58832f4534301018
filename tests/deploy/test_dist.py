"""The wheel and the sdist that `make dist` builds, and what the image installs beside the wheel."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LOCKED, SBOM = ROOT / "deploy/image/locked.py", ROOT / "deploy/image/sbom.py"
ROOMS = sorted(path.parent for path in ROOT.glob("[a-z]*/joulie*/__init__.py"))

pytestmark = pytest.mark.slow


def output(*command: str | Path, **environ: str) -> str:
    told = {**os.environ, **environ}
    told.pop("PYTHONPATH", None)
    done = subprocess.run(command, capture_output=True, text=True, env=told, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("dist")
    output(sys.executable, "-m", "hatchling", "build", "-d", place)
    return place


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel; its dependencies are those of this environment."""
    place = tmp_path_factory.mktemp("fresh")
    venv.create(place, with_pip=False)
    python, [wheel] = place / "bin/python", dist.glob("*.whl")
    given = ["-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    try:
        output(sys.executable, *given, wheel)
    except AssertionError as error:
        if "No module named pip" in str(error):
            pytest.skip("requires pip")
        raise
    [packages] = place.glob("lib/python*/site-packages")
    # A path in a .pth file does not read the .pth files there: the editable install is not found.
    (packages / "dependencies.pth").write_text(str(Path(pytest.__file__).parents[1]))
    return place


def test_the_wheel_contains_every_file_of_the_packages(dist: Path) -> None:
    [wheel] = dist.glob("*.whl")
    tracked = output("git", "ls-files", *map(str, ROOMS)).splitlines()
    wanted = {line.partition("/")[2] for line in tracked}

    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}

    assert packed == wanted


def test_the_sdist_contains_what_the_wheel_is_built_from(dist: Path) -> None:
    [sdist] = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert {"pyproject.toml", "README.md", "LICENSE", "requirements.lock"} <= names
    assert set(output("git", "ls-files", *map(str, ROOMS)).splitlines()) <= names


@pytest.mark.long
def test_an_installed_wheel_has_all_commands(installed: Path) -> None:
    assert "usage: joulie" in output(installed / "bin/joulie", "--help")
    assert "usage: kubectl joulie" in output(installed / "bin/kubectl-joulie", "--help")


@pytest.mark.long
def test_an_installed_wheel_makes_its_database(installed: Path, tmp_path: Path) -> None:
    said = output(installed / "bin/joulie", "migrate", "--data", tmp_path / "data")

    assert "is at schema" in said
    code = "import joulie_cli; print(joulie_cli.__file__)"
    assert str(installed) in output(installed / "bin/python", "-c", code)


def required(name: str) -> set[str]:
    """What the installed distribution requires on this machine, with all that follows."""
    found, waiting = set[str](), [Requirement(name)]
    while waiting:
        asked = waiting.pop()
        extras = ["", *asked.extras]
        for line in metadata.requires(asked.name) or []:
            each = Requirement(line)
            is_meant = any(
                each.marker is None or each.marker.evaluate({"extra": extra}) for extra in extras
            )
            if is_meant and each.name not in found:
                found.add(each.name)
                waiting.append(each)
    return {each.lower().replace("_", "-").replace(".", "-") for each in found}


def locked(what: str) -> set[str]:
    lines = output(sys.executable, LOCKED, what).splitlines()
    return {line.partition("==")[0] for line in lines if "==" in line}


def test_the_image_installs_what_joulie_requires_and_no_tool_of_developers() -> None:
    run = locked("run")

    assert required("joulie") - run == set()
    assert {"nvidia-ml-py", "grpclib"} <= run  # of the agent, which the image runs, too
    assert run & {"pytest", "mypy", "basedpyright", "ruff", "hatchling", "pyarrow"} == set()


def test_the_image_installs_the_version_of_a_package_for_every_python() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    lines = [line for line in lock.splitlines() if line.startswith("numpy==")]

    assert len(lines) > 1
    assert set(lines) <= set(output(sys.executable, LOCKED, "run").splitlines())


def test_the_demo_installs_what_it_runs_and_no_tool_of_a_developer() -> None:
    demo, developer = locked("demo"), {"mypy", "ruff", "playwright", "sphinx", "pytest", "deno"}

    assert required("joulie") <= demo
    assert required("hatchling") | {"hatchling", "editables"} <= demo
    assert developer & demo == set()


def test_the_image_builds_the_wheel_with_locked_tools_only() -> None:
    assert required("hatchling") | {"hatchling"} <= locked("build")


def test_the_bill_of_materials_lists_what_the_image_installs() -> None:
    """Twice the same bytes: it depends on the lock alone."""
    text = output(sys.executable, SBOM)
    listed = json.loads(text)
    lines = [line.split()[0] for line in output(sys.executable, LOCKED, "run").splitlines()]
    pinned = {line for line in lines if "==" in line}
    hashes = {word for word in output(sys.executable, LOCKED, "run").split() if "sha256" in word}

    assert {f"{each['name']}=={each['version']}" for each in listed["components"]} == pinned
    found = {each["content"] for tree in listed["components"] for each in tree["hashes"]}
    assert {f"--hash=sha256:{content}" for content in found} == hashes
    refs = {tree["bom-ref"] for tree in listed["components"]}
    below = {ref for tree in listed["dependencies"] for ref in tree["dependsOn"]}
    assert below == refs  # each one is there because another one needs it
    assert output(sys.executable, SBOM) == text


def test_the_image_is_built_from_every_package_of_the_wheel() -> None:
    """What this file leaves out is not copied, and the wheel in the image lacks it."""
    ignored = (ROOT / "deploy/Containerfile.dockerignore").read_text().splitlines()

    assert ignored[0] == "*"
    assert {f"!{room.parent.name}" for room in ROOMS} <= set(ignored)


def test_every_locked_line_of_the_image_has_a_hash() -> None:
    blocks = output(sys.executable, LOCKED, "run").split("\n# ")
    text = "".join(blocks)

    assert text.count("--hash=sha256:") > text.count("==") > 20


def test_the_last_stage_of_the_image_is_unprivileged_and_installs_nothing() -> None:
    last = (ROOT / "deploy/Containerfile").read_text().split("\nFROM ")[-1]

    assert last.startswith("--platform=linux/${ARCH} ${BASE}\n")
    assert "USER 65532:65532" in last
    assert "strip.sh" in last
    assert "install " not in last.replace("to install packages", "")


def test_the_image_refuses_a_library_of_another_machine(tmp_path: Path) -> None:
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + (3).to_bytes(2, "little")
    (tmp_path / "right.so").write_bytes(head + (183).to_bytes(2, "little"))
    assert "1 programs and libraries, all for aarch64" in checked(tmp_path)

    (tmp_path / "wrong.so").write_bytes(head + (62).to_bytes(2, "little"))
    assert f"These are not for aarch64:\n{tmp_path / 'wrong.so'}: x86_64" in checked(tmp_path)


def checked(place: Path) -> str:
    code = "import sys, install; install.require_machine(install.Path(sys.argv[1]), 'aarch64')"
    told = {**os.environ, "PYTHONPATH": str(LOCKED.parent)}
    command = [sys.executable, "-c", code, str(place)]
    done = subprocess.run(command, capture_output=True, text=True, env=told, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("tags", "code"),
    [([], 0), (["v0.9.9"], 1), (["v0.9.9", "VERSION"], 0), (["nightly"], 0)],
    ids=["none", "another", "both", "no release"],
)
def test_nothing_is_built_under_another_version_than_that_of_its_tag(
    tmp_path: Path, tags: list[str], code: int
) -> None:
    version = "v" + metadata.version("joulie")
    (tmp_path / ".ci").mkdir()
    for name in ("pyproject.toml", ".ci/tag"):
        shutil.copy(ROOT / name, tmp_path / name)
    git = ["git", "-c", "user.name=n", "-c", "user.email=n@example.org", "-C", str(tmp_path)]
    output(*git, "init", "--quiet")
    output(*git, "commit", "--quiet", "--allow-empty", "--message", "Begin")
    for tag in tags:
        output(*git, "tag", tag.replace("VERSION", version))

    done = subprocess.run([tmp_path / ".ci/tag"], capture_output=True, text=True, check=False)

    assert done.returncode == code
    assert (f"This commit is tagged v0.9.9, and pyproject.toml says {version}." in done.stderr) == (
        code == 1
    )
