"""Packs `kubectl joulie` for krew: an archive and its manifest, beside the wheel of `make dist`.

    python deploy/krew/package.py dist https://example.com/releases/v0.2.0 https://example.com

The archive is for all platforms: a program that starts the plugin, the wheel, and the packages that
the plugin imports, pinned by hash. It is reproducible. Python's standard library is enough here.
"""

import gzip
import hashlib
import io
import sys
import tarfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# What the plugin imports; a test compares it with the modules.
IMPORTED = {"aiohttp", "kubernetes", "msgspec", "numpy", "prometheus-client", "pyyaml", "structlog"}
PROGRAM = "kubectl-joulie"


def locked() -> ModuleType:
    """deploy/image/locked.py, which is no module of a package."""
    spec = spec_from_file_location("locked", ROOT / "deploy/image/locked.py")
    if spec is None or spec.loader is None:
        raise SystemExit("There is no deploy/image/locked.py.")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def requirements() -> str:
    names = locked()
    blocks = names.blocks((ROOT / "requirements.lock").read_text())
    return "".join(blocks[name] for name in names.closure(IMPORTED, blocks))


def archive(wheel: Path, version: str) -> bytes:
    """The same bytes for the same content: no times, no owners."""
    content = {
        PROGRAM: (HERE / PROGRAM).read_text().replace("VERSION", version).encode(),
        "requirements.txt": requirements().encode(),
        wheel.name: wheel.read_bytes(),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in content.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o755 if name == PROGRAM else 0o644
            tar.addfile(member, io.BytesIO(data))
    return gzip.compress(packed.getvalue(), mtime=0)


def manifest(version: str, name: str, sha256: str, url: str, homepage: str) -> str:
    text = (HERE / "joulie.yaml").read_text().partition("\n")[2]  # without its first comment
    filled = {
        "vVERSION": f"v{version}",
        "HOMEPAGE": homepage,
        "URL/ARCHIVE": f"{url.rstrip('/')}/{name}",
        "SHA256": sha256,
    }
    for word, value in filled.items():
        text = text.replace(word, value)
    return text


def main(dist: Path, url: str, homepage: str) -> None:
    [wheel] = dist.glob("joulie-*.whl")
    version = wheel.name.split("-")[1]
    name = f"{PROGRAM}-{version}.tar.gz"
    packed = archive(wheel, version)
    (dist / name).write_bytes(packed)
    sha256 = hashlib.sha256(packed).hexdigest()
    (dist / "joulie.yaml").write_text(manifest(version, name, sha256, url, homepage))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
