"""The page's files, read once. Only files of the folder `page` are served."""

from functools import cache
from importlib.resources import files
from typing import NamedTuple

TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}


class PageFile(NamedTuple):
    content: bytes
    media_type: str


@cache
def page_files() -> dict[str, PageFile]:
    """The files by the path that each is served at."""
    found = {}
    for file in (files("joulie_console") / "page").iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            path = "/" if file.name == "index.html" else f"/{file.name}"
            found[path] = PageFile(file.read_bytes(), kind)
    return found
