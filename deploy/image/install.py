"""Installs what Joulie needs into a virtual environment, for the machine of the image.

    python deploy/image/install.py /opt/joulie amd64 arm64    built on amd64, for arm64

On its own machine pip installs. For another one it puts the wheels of that machine into the
environment, which holds links to Python and no program of a machine. Afterwards each program and
library must be of the machine of the image. Python's standard library is enough.
"""

import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from locked import PLAIN, platforms, text

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}  # the name of images, and that of wheels
ELF = {62: "x86_64", 183: "aarch64"}  # e_machine
HASHED = ["--no-cache-dir", "--no-deps", "--require-hashes"]


def pip(environment: Path, *words: str | Path) -> None:
    subprocess.run([environment / "bin/python", "-m", "pip", *words], check=True)


def written(environment: Path, name: str, what: str) -> Path:
    file = environment / f"{name}.lock"
    file.write_text(text(what))
    return file


def install(environment: Path) -> None:
    plain = [word for name in sorted(PLAIN) for word in ("--no-binary", name)]
    lock = written(environment, "run", "run")
    pip(environment, "install", *HASHED, "--only-binary", ":all:", *plain, "-r", lock)


def install_for(environment: Path, machine: str) -> None:
    """pip puts scripts below its target, with the Python of this environment in the first line."""
    [packages] = (environment / "lib").glob("python3*/site-packages")
    made, scripts = environment / "made", packages / "bin"
    pip(environment, "wheel", *HASHED, "-w", made, "-r", written(environment, "plain", "plain"))
    given = [f"--platform={each}" for each in platforms(machine)]
    lock = written(environment, "wheels", "wheels")
    into = ["install", "--target", packages, "--only-binary", ":all:"]
    pip(environment, *into, *HASHED, *given, "-r", lock)
    for script in scripts.iterdir():
        shutil.move(script, environment / "bin" / script.name)
    scripts.rmdir()
    pip(environment, "install", "--no-cache-dir", "--no-deps", "--no-index", *made.iterdir())
    shutil.rmtree(made)


def machines(directory: Path) -> Iterator[tuple[Path, str]]:
    """Each program and library below, with its machine; links point out of the environment."""
    for path in sorted(directory.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as file:
            head = file.read(20)
        if head[:4] == b"\x7fELF":
            [number] = struct.unpack("<H", head[18:20])
            yield path, ELF.get(number, f"machine {number}")


def require_machine(environment: Path, machine: str) -> None:
    found = list(machines(environment))
    if wrong := [f"{path}: {each}" for path, each in found if each != machine]:
        sys.exit(f"These are not for {machine}:\n" + "\n".join(wrong))
    if not found:
        sys.exit(f"{environment} has no library at all")
    print(f"{len(found)} programs and libraries, all for {machine}")


def main(place: str, built_on: str, arch: str) -> None:
    environment, machine = Path(place), MACHINES[arch]
    if arch == built_on:
        install(environment)
    else:
        install_for(environment, machine)
    for lock in environment.glob("*.lock"):
        lock.unlink()
    require_machine(environment, machine)


if __name__ == "__main__":
    main(*sys.argv[1:])
