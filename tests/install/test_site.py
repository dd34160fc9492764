"""`make docs`: the locked builder makes the site in a separate environment. A broken link makes it fail."""

import re
import sys
from pathlib import Path

import pytest

from tests.installed import run

HOME = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    assert run(sys.executable, "-m", "venv", str(folder / "venv")).returncode == 0
    pip = [str(folder / "venv/bin/pip"), "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    done = run(*pip, "-r", str(HOME / "requirements/docs.txt"))
    if done.returncode:
        pytest.skip(f"pip cannot install the builder: {done.stderr.strip().splitlines()[-1][:200]}")
    done = run(str(folder / "venv/bin/python"), str(HOME / "docs/site.py"), str(folder / "built"))
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "built/site"


def test_every_page_is_built_can_be_searched_and_loads_nothing_from_elsewhere(site):
    pages = {page.relative_to(HOME / "docs").with_suffix(".html").as_posix() for page in (HOME / "docs").rglob("*.md")}
    made = {page.relative_to(site).as_posix() for page in site.rglob("*.html")}
    assert {page.replace("README.html", "index.html") for page in pages} <= made
    assert (site / "llms.txt").read_text().startswith("# Muster\n")
    assert "data-ports-dropped" in (site / "search.json").read_text()
    loaded = re.compile(r"<(?:script|img|link|iframe)[^>]+(?:src|href)=[\"']?(?:https?:)?//", re.IGNORECASE)
    assert not [page.name for page in site.rglob("*.html") if loaded.search(page.read_text())]
