"""The page's files, read once. Only files of the folder `page` are served."""

import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}


class PageFile(NamedTuple):
    content: bytes
    media_type: str
    etag: str


@cache
def page_files() -> dict[str, PageFile]:
    """The files by the path that each is served at."""
    found = _files_in(files("joulie_console") / "page", "/")
    return {"/": found.pop("/index.html"), **found}


def _files_in(folder: Traversable, path: str) -> dict[str, PageFile]:
    found: dict[str, PageFile] = {}
    for file in folder.iterdir():
        if file.is_dir():
            found |= _files_in(file, f"{path}{file.name}/")
        elif kind := TYPES.get(file.name.rpartition(".")[2]):
            content = file.read_bytes()
            tag = hashlib.sha256(content).hexdigest()[:16]
            found[f"{path}{file.name}"] = PageFile(content, kind, f'W/"{tag}"')
    return found
