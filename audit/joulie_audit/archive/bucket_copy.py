"""The copy of an archive in a bucket: each part is put there once, and fetched where it is missing.

    PREFIX/facts/2026-11-21/10/000000000001-000000012345/...   as in the directory
    PREFIX/keys/00000312.pub                                    head.pub, by its length

The manifest of a part is put last, so that a part without one is no part. Nothing is overwritten or
deleted: a credential that may put, get and list is enough, and a bucket may lock its objects.
"""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from joulie_audit.archive.archiver import place_durably, write_durably, writing
from joulie_audit.archive.parts import FACTS, LOG, MANIFEST, Archive, File, Part, day_of, part_of
from joulie_audit.archive.untrusted_files import (
    LARGEST_FILE,
    LARGEST_KEYS,
    LARGEST_MANIFEST,
    content_of,
    keys_of,
    require_checksum,
)
from joulie_bus.errors import BucketFailed
from joulie_bus.runtime.secret_files import write_private
from joulie_bus.s3.bucket import Bucket

PUBLIC_KEYS = "head.pub"  # beside the parts
_MANIFEST = re.compile(
    rf"(?P<kind>{FACTS}|{LOG})/[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}/[0-9]{{2}}/"
    rf"(?P<part>[0-9]{{12}}-[0-9]{{12}})/{re.escape(MANIFEST)}"
)
_KEYS = re.compile(r"keys/[0-9]{8}\.pub")


class BucketCopy:
    """`put` and `fetch` continue where an earlier call, or an earlier process, ended."""

    def __init__(self, bucket: Bucket, archive: Path) -> None:
        self._bucket = bucket
        self._path = archive
        self._is_fetched = False
        self._held: set[str] = set()  # manifests in the bucket, after a fetch
        self._keys = b""  # that were put last
        self._day = ""  # whose files are fetched; all days if it is empty

    def fetch(self, day: str = "") -> int:
        """Writes every part that the directory lacks, and head.pub if it has none. The number of
        parts. Raises an error if directory and bucket hold different archives.

        With a `day`, of the parts of other days only the manifests, whose seals follow each other.
        """
        self._day = day
        with writing(self._path):
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = list(self._bucket.names())
        there = sorted(
            filter(None, map(_MANIFEST.fullmatch, names)), key=lambda found: found["part"]
        )
        self._held = {found[0] for found in there}
        count = sum(
            self._fetch_kind(kind, [found[0] for found in there if found["kind"] == kind])
            for kind in (FACTS, LOG)
        )
        self._fetch_keys(max(filter(_KEYS.fullmatch, names), default=None))
        self._is_fetched = True
        return count

    def _fetch_kind(self, kind: str, there: Sequence[str]) -> int:
        here = Archive(self._path).parts(kind)
        self._require_same([self._name(place / MANIFEST) for place, _ in here], there)
        last = here[-1][1] if here else Part.before_the_first(kind)
        missing = there[len(here) :]
        filled = sum(self._fill(place, part) for place, part in here if self._wants(place))
        for manifest in missing:
            last = self._fetch_part(last, manifest)
        wanted = [each for each in missing if self._wants((self._path / each).parent)]
        return filled + len(wanted)

    def _wants(self, place: Path) -> bool:
        return self._day in ("", day_of(place))

    def _fill(self, place: Path, part: Part) -> bool:
        """Fetches the files of a part of which only the manifest is there."""
        lacking = [file for file in part.files if not os.path.lexists(place / file.name)]
        for file in lacking:
            self._fetch_file(place, place / f".{file.name}.new", file)
        return bool(lacking)

    def _fetch_file(self, place: Path, draft: Path, file: File) -> None:
        found = self._got(self._name(place / file.name))
        require_checksum(place / file.name, found, file.sha256)
        with writing(self._path):
            write_durably(draft, found)
            draft.rename(draft.parent / file.name)

    def put(self) -> int:
        """Puts every part that the bucket lacks, and head.pub. The number of parts."""
        if not self._is_fetched:
            self.fetch()
        archive, count = Archive.of(self._path), 0
        for place, part in archive.facts + archive.log:
            manifest = self._name(place / MANIFEST)
            if manifest not in self._held:
                self._put_part(place, part)
                self._held.add(manifest)
                count += 1
        keys = keys_of(self._path / PUBLIC_KEYS)
        if keys is not None and keys != self._keys:
            self._put(f"keys/{len(keys):08d}.pub", keys)
            self._keys = keys
        return count

    def _put_part(self, place: Path, part: Part) -> None:
        files = [place / file.name for file in part.files]
        for file in [*files, place / MANIFEST]:
            self._put(self._name(file), content_of(file))

    def _put(self, name: str, content: bytes) -> None:
        if not self._bucket.put_new(name, content) and self._got(name) != content:
            raise self._failed(name, "is of another archive")

    def _fetch_part(self, before: Part, manifest: str) -> Part:
        content = self._got(manifest, LARGEST_MANIFEST)
        part = part_of(self._path / manifest, before.kind, content)
        if not part.follows(before):
            raise self._failed(manifest, "does not follow the part before it")
        place = (self._path / manifest).parent
        draft = place.with_name(f".{part.name}.new")
        with writing(self._path):
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(mode=0o700, parents=True)
            for file in part.files if self._wants(place) else ():
                self._fetch_file(place, draft / file.name, file)
            write_durably(draft / MANIFEST, content)
            place_durably(draft, place)
        return part

    def _fetch_keys(self, name: str | None) -> None:
        file = self._path / PUBLIC_KEYS
        if name is not None and keys_of(file) is None:
            with writing(self._path):
                write_private(file, self._got(name, LARGEST_KEYS).decode())

    def _require_same(self, here: Sequence[str], there: Sequence[str]) -> None:
        """One is the beginning of the other. Each seal covers the part before it, so the newest
        part that both have decides."""
        common = min(len(here), len(there))
        for mine, other in zip(here[:common], there[:common], strict=True):
            if mine != other:
                raise self._failed(other, "is of another archive")
        if common and self._got(there[common - 1]) != content_of(self._path / here[common - 1]):
            raise self._failed(there[common - 1], "is of another archive")

    def _got(self, name: str, largest: int = LARGEST_FILE) -> bytes:
        found = self._bucket.get(name, largest)
        if found is None:
            raise self._failed(name, "is missing")
        return found

    def _name(self, file: Path) -> str:
        return file.relative_to(self._path).as_posix()

    def _failed(self, name: str, why: str) -> BucketFailed:
        return BucketFailed(str(self._bucket.place), f"{name} {why} ({self._path})")
