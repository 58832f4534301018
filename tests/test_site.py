"""The documentation as a site: every link resolves, and a reader needs no network."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOADED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?(?:src|href)="(https?:[^"]*)""")

pytestmark = [pytest.mark.slow, pytest.mark.long]  # Sphinx reads all pages


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built with warnings as errors: an unknown link, an anchor, a page outside of the shelves."""
    made = tmp_path_factory.mktemp("site")
    options = ("-q", "-W", "--keep-going", "-d", str(made / "doctrees"))
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(made / "html")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return made / "html"


def test_every_page_is_on_the_site_and_can_be_searched(site: Path) -> None:
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    searched = (site / "searchindex.js").read_text()

    assert {path.stem for path in site.glob("*.html")} >= pages
    assert all(f'"{page}"' in searched for page in pages)


def test_a_page_loads_nothing_from_the_network(site: Path) -> None:
    loaded = {url for page in site.rglob("*.html") for url in LOADED.findall(page.read_text())}

    assert len(list(site.rglob("*.html"))) > 60
    assert loaded == set()
