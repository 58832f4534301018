"""Records a new golden log: `make golden`. Required after a change of scores or folds.

Runs a short demo and archives it as plain segments next to this file. The tests then compare with
the decisions of this version, so the changelog must state what changes for users, and why.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"
# The scores with the most terms; the demo would score by watts.
PRESET = """base = "headroom"
[scores]
gpu_packing = "fragmentation"
"""
SETTINGS = {
    "TWIN_STALENESS_THRESHOLD": "11s",  # the readings of a silent node end to count in the log
}
NODES = ("--nodes", "40", "--odd-nodes", "1")  # one is late, one falls silent, and one leaves


def joulie(preset: Path, *words: str) -> None:
    environ = os.environ | SETTINGS | {"PRESET": str(preset)}
    subprocess.run([sys.executable, "-m", "joulie_cli.main", *words], check=True, env=environ)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        preset, data = Path(directory) / "golden.toml", ("--data", f"{directory}/data")
        preset.write_text(PRESET)
        joulie(preset, "demo", "--headless", *NODES, "--seed", "7", "--for", "12s", *data)
        shutil.rmtree(GOLDEN, ignore_errors=True)
        joulie(preset, "archive", "--dir", str(GOLDEN), "--now", "--plain", *data)
        joulie(preset, "replay", "--archive", str(GOLDEN), *data)
    size = sum(file.stat().st_size for file in GOLDEN.rglob("*") if file.is_file())
    print(f"{GOLDEN} holds {size:,} bytes. Now write the line in CHANGELOG.md.")


if __name__ == "__main__":
    main()
