"""Checks that each locked package of the image has a wheel, for one Python and one machine.

    python deploy/image/wheels.py 3.11 aarch64

pip asks the index and downloads only metadata. nkeys has no wheel: it is plain Python.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from locked import ROOT, blocks, closure, roots

PLAIN = {"nkeys"}
_MANYLINUX = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")


def main(python: str, machine: str) -> int:
    lock = blocks((ROOT / "requirements.lock").read_text())
    names = [name for name in closure(roots("run"), lock) if name not in PLAIN]
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "run.lock"
        file.write_text("".join(lock[name] for name in names))
        platforms = [f"--platform={each}_{machine}" for each in _MANYLINUX]
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps"]
        command += [f"--target={place}/none", "--only-binary=:all:", "--require-hashes"]
        command += [f"--python-version={python}", *platforms, "-r", str(file)]
        code = subprocess.run(command, check=False).returncode
    print(f"Python {python}, {machine}: {'each package has a wheel' if code == 0 else 'see above'}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
