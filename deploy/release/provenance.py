"""Prints where the files of a release come from: an in-toto statement with SLSA provenance v1.

    python deploy/release/provenance.py dist COMMIT TAG NAME=VERSION... >dist/joulie.provenance.json

The subjects are all files of the directory, except an older statement and its sums. The materials
are the commit, the lock of all Python packages, and the base of each image, as the image names it.
It has no time: two runs of one commit with the same tools print the same bytes. Python's standard
library is enough for this program.
"""

import hashlib
import json
import os
import sys
import tarfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NO_SUBJECTS = ("joulie.provenance.json", "SHA256SUMS")
BUILD_TYPE = "https://joulie.io/make-release/v1"
LOCAL = "urn:joulie:builder:local"  # nothing vouches for a machine that names no builder
_BASE = "org.opencontainers.image.base"
Tree = dict[str, Any]


def sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def base_of(image: Path) -> Tree:
    """The base that the manifest of an image in an archive names."""
    with tarfile.open(image) as archive:

        def content(name: str) -> Tree:
            opened = archive.extractfile(name)
            tree: Tree = json.load(opened) if opened else {}
            return tree

        [listed] = content("index.json")["manifests"]
        manifest = content(f"blobs/{listed['digest'].replace(':', '/')}")
    named = manifest.get("annotations", {})
    if f"{_BASE}.digest" not in named:
        raise SystemExit(
            f"{image} does not name the digest of its base. No provenance was written."
        )
    algorithm, _, digest = named[f"{_BASE}.digest"].partition(":")
    return {
        "name": f"base of {image.name}",
        "uri": f"oci:{named.get(f'{_BASE}.name', '')}",
        "digest": {algorithm: digest},
    }


def materials(dist: Path, commit: str) -> list[Tree]:
    source: Tree = {"name": "source", "digest": {"gitCommit": commit}}
    if uri := os.environ.get("SOURCE"):
        source["uri"] = f"git+{uri}"
    lock = {"name": "requirements.lock", "digest": {"sha256": sha256(ROOT / "requirements.lock")}}
    return [source, lock, *(base_of(image) for image in sorted(dist.glob("*-image-*.tar")))]


def statement(dist: Path, commit: str, tag: str, tools: dict[str, str]) -> Tree:
    files = sorted(file for file in dist.iterdir() if file.name not in NO_SUBJECTS)
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": file.name, "digest": {"sha256": sha256(file)}} for file in files],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"tag": tag, "images": os.environ.get("IMAGES", "")},
                "resolvedDependencies": materials(dist, commit),
            },
            "runDetails": {"builder": {"id": os.environ.get("BUILDER") or LOCAL, "version": tools}},
        },
    }


def main(dist: str, commit: str, tag: str, *tools: str) -> None:
    named = dict(tool.split("=", 1) for tool in tools)
    print(json.dumps(statement(Path(dist), commit, tag, named), indent=2))


if __name__ == "__main__":
    main(*sys.argv[1:])
