"""Writes archives anew, so that two of the same content are equal: sorted, no times, no owners.

    python deploy/release/repack.py dist/joulie-0.2.0.tgz dist/joulie-0.2.0-image-amd64.tar

helm and the builders of images write the time of the build into theirs. Python's standard library
is enough for this program.
"""

import gzip
import sys
import tarfile
from contextlib import ExitStack
from pathlib import Path
from typing import IO


def member(found: tarfile.TarInfo) -> tarfile.TarInfo:
    """What counts of an entry."""
    plain = tarfile.TarInfo(found.name)
    plain.type, plain.linkname, plain.size = found.type, found.linkname, found.size
    plain.mode = 0o755 if found.isdir() or found.mode & 0o100 else 0o644
    return plain


def copied(old: tarfile.TarFile, into: IO[bytes] | gzip.GzipFile) -> None:
    with tarfile.open(fileobj=into, mode="w") as new:
        for found in sorted(old, key=lambda each: each.name):
            new.addfile(member(found), old.extractfile(found) if found.isfile() else None)


def repack(archive: Path) -> None:
    new = archive.with_name(f"{archive.name}.new")
    with ExitStack() as stack:
        old = stack.enter_context(tarfile.open(archive))
        into = stack.enter_context(new.open("wb"))
        if archive.suffix == ".tar":
            copied(old, into)
        else:
            copied(old, stack.enter_context(gzip.GzipFile("", "wb", fileobj=into, mtime=0)))
    new.replace(archive)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        repack(Path(name))
