"""Checks that each locked package of the image has a wheel, for one Python and one machine.

    python deploy/image/wheels.py 3.11 aarch64

pip asks the index and downloads only metadata. Packages without a wheel are plain Python.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from locked import platforms, text


def main(python: str, machine: str) -> int:
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "run.lock"
        file.write_text(text("wheels"))
        given = [f"--platform={each}" for each in platforms(machine)]
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps"]
        command += [f"--target={place}/none", "--only-binary=:all:", "--require-hashes"]
        command += [f"--python-version={python}", *given, "-r", str(file)]
        code = subprocess.run(command, check=False).returncode
    print(f"Python {python}, {machine}: {'each package has a wheel' if code == 0 else 'see above'}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
