"""The how-to pages and the tutorial, for a terminal: they are installed with the program, and need no network."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ..core.errors import DeployError, UsageError
from ..core.suggest import near_match

# In a checkout, the pages are below docs/; in a wheel, below `deploy` (setup.py).
_ABOVE = Path(__file__).resolve().parents[2]
_PLACES = {"Tutorial": ("docs/tutorial", "deploy/tutorial"), "How to": ("docs/how-to", "deploy/pages")}
_LINK = re.compile(r"!?\[([^\]]*)\]\(([^)\s]+)\)")
_ANCHOR = re.compile(r'<a id="[^"]*"></a>\n?')


def find_pages() -> dict[str, list[Path]]:
    """The pages of each section. Raises DeployError if they were not installed with the program."""
    pages = {title: _pages_of(places) for title, places in _PLACES.items()}
    if not all(pages.values()):
        raise DeployError(
            "the pages are not installed with the program", "install it again: pip install /path/to/the/checkout"
        )
    return pages


def _pages_of(places: tuple[str, ...]) -> list[Path]:
    return next((paths for place in places if (paths := sorted((_ABOVE / place).glob("*.md")))), [])


def list_pages() -> list[str]:
    """The names of all pages, each with its title."""
    pages = find_pages()
    wide = max(len(path.stem) for paths in pages.values() for path in paths)
    lines = []
    for section, paths in pages.items():
        titles = [path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for path in paths]
        lines += [section, *(f"  {path.stem:{wide}}  {title}" for path, title in zip(paths, titles, strict=True)), ""]
    return [*lines, "`muster docs PAGE` prints one."]


def read_page(words: tuple[str, ...]) -> str:
    """The page that the user's words name, for a terminal. Raises UsageError, with the page that may be meant."""
    named = {path.stem: path for paths in find_pages().values() for path in paths}
    name = "-".join(words).lower().removesuffix(".md").rpartition("/")[2]
    if name not in named:
        close = _meant(name, named)
        raise UsageError(f"{name}: no such page", f"muster docs {close}" if close else "muster docs lists them")
    return plain_links(named[name].read_text(encoding="utf-8"), named)


def _meant(name: str, named: Mapping[str, Path]) -> str:
    """The page with a similar name, or else the one that mentions the name most often; empty if none does."""
    if close := near_match(name, named):
        return close
    words = name.replace("-", " ")
    spoken = {page: path.read_text(encoding="utf-8").lower().count(words) for page, path in named.items()}
    titled = [page for page in named if name in page.split("-")]
    page = max(titled or named, key=lambda page: spoken[page])
    return page if spoken[page] else ""


def plain_links(text: str, named: Mapping[str, object]) -> str:
    """A page's text for a terminal: a link to a page becomes the command that prints it, any other link its words."""

    def shown(link: re.Match[str]) -> str:
        words, target = link.groups()
        if target.startswith("https:"):
            return f"{words} ({target})"
        page = re.split(r"[/#]", target.partition(".md")[0])[-1]
        return f"{words} (`muster docs {page}`)" if page in named and ".md" in target else words

    return _LINK.sub(shown, _ANCHOR.sub("", text))
