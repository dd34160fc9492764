"""The site of docs/: python docs/site.py FOLDER  ->  FOLDER/site/index.html, its search, and llms.txt (`make docs`).

Pages are read where they lie. A folder is a section, and the title of a page is its heading, so a new page needs no
entry anywhere. What a page links to outside docs/ is no page of the site: its path stands there instead.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parent
# The sections, in the order in which a reader needs them. What lies in no folder comes before `Develop`.
SECTIONS = {
    "tutorial": "Tutorial",
    "how-to": "How to",
    "reference": "Reference",
    "explanation": "Explanation",
    "evidence": "Evidence",
    "": "More",
    "develop": "Develop",
    "decisions": "Decisions",
}
# A tutorial is read in this order; every other section in the order of the alphabet.
FIRST = ("laptop.md", "two-hosts.md", "break-it.md", "README.md")
_HEADING = re.compile(r"^(#{2,6}) (.+)$", re.MULTILINE)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")


@dataclass(frozen=True)
class Page:
    """A page: its path below docs/, its title, and its first sentence."""

    path: str
    title: str
    about: str


def list_pages() -> dict[str, list[Page]]:
    """The pages of each section, in the order of the site."""
    found: dict[str, list[Page]] = {section: [] for section in SECTIONS}
    for file in sorted(DOCS.rglob("*.md"), key=lambda file: (file.name not in FIRST, _place(file.name), file.name)):
        path = file.relative_to(DOCS).as_posix()
        section = path.rpartition("/")[0].partition("/")[0]
        if path != "index.md" and section in found:
            found[section].append(read_page(path, file.read_text(encoding="utf-8")))
    return {section: pages for section, pages in found.items() if pages}


def _place(name: str) -> int:
    return FIRST.index(name) if name in FIRST else 0


def read_page(path: str, text: str) -> Page:
    """What the site says of a page. Raises ValueError if it has no heading."""
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    if not title:
        raise ValueError(f"{path}: no heading: begin it with `# `")
    prose = re.search(r"^[A-Z*`\[][^|\n][^\n]*(?:\n[^\n|#`<-][^\n]*)*", text[title.end() :], re.MULTILINE)
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(prose[0].split())) if prose else ""
    return Page(path, title[1].replace("`", ""), re.split(r"(?<=[.!?:])\s", plain.replace("**", ""))[0].rstrip(":"))


def name_headings(text: str) -> str:
    """The text, with the anchor of each heading as GitHub makes it: a builder has rules of its own."""
    parts = re.split(r"(^```.*?^```\s*$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _HEADING.sub(_with_anchor, part) for part in parts)


def _with_anchor(heading: re.Match[str]) -> str:
    slug = re.sub(r"[^\w\- ]", "", heading[2].lower()).replace(" ", "-")
    return f"{heading[0]} {{#{slug}}}"


def keep_inside(path: str, text: str) -> str:
    """The text of a page, whose links out of docs/ are the paths that they name."""

    def kept(link: re.Match[str]) -> str:
        image, words, target, _ = link.groups()
        place = (DOCS / path).parent.joinpath(target).resolve()
        if place == DOCS.parent / "README.md":
            return f"{image}[{words}]({'../' * path.count('/')}index.md)"
        if place.is_relative_to(DOCS) and (place.suffix != ".md" or place.is_file()) and not place.is_dir():
            return link[0]
        name = place.relative_to(DOCS.parent).as_posix() if place.is_relative_to(DOCS.parent) else target
        return words if name in words else f"{words} (`{name}`)"

    return _LINK.sub(kept, text)


def index_for_programs(sections: dict[str, list[Page]], settings: dict[str, str]) -> str:
    """llms.txt (llmstxt.org): each page with its address and its first sentence, for programs that read."""
    lines = [f"# {settings['name']}", "", f"> {settings['about']}"]
    for section, pages in sections.items():
        lines += ["", f"## {SECTIONS[section]}", ""]
        lines += [f"- [{page.title}]({page.path}): {page.about}" for page in pages]
    return "\n".join([*lines, ""])


def build_site(folder: Path) -> int:
    """Write the site below the folder. Returns the builder's exit code; a broken link is an error."""
    shutil.rmtree(folder, ignore_errors=True)
    sections = list_pages()
    for path in ["index.md", *(page.path for pages in sections.values() for page in pages)]:
        target = folder / "pages" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        text = keep_inside(path, (DOCS / path).read_text(encoding="utf-8"))
        target.write_text(name_headings(text), encoding="utf-8")
    shutil.copytree(DOCS / "pictures", folder / "pages/pictures", ignore=shutil.ignore_patterns("*.py", "*.sh"))
    for data in DOCS.rglob("*.csv"):
        shutil.copy(data, folder / "pages" / data.relative_to(DOCS))
    settings = (DOCS / "mkdocs.yml").read_text(encoding="utf-8")
    named = {word: re.search(rf"^site_{word}: (.+)$", settings, re.MULTILINE) for word in ("name", "description")}
    about = {word: found[1] for word, found in named.items() if found}
    text = index_for_programs(sections, {"name": about["name"], "about": about["description"]})
    (folder / "pages/llms.txt").write_text(text, encoding="utf-8")
    (folder / "mkdocs.yml").write_text(f"{settings}nav: {json.dumps(list(_navigation(sections)))}\n", encoding="utf-8")
    program = Path(sys.executable).with_name("zensical")
    return subprocess.run([program, "build", "--clean", "--strict"], cwd=folder, check=False).returncode


def _navigation(sections: dict[str, list[Page]]) -> Iterator[dict[str, object]]:
    yield {"Muster": "index.md"}
    for section, pages in sections.items():
        yield {SECTIONS[section]: [{page.title: page.path} for page in pages]}


if __name__ == "__main__":
    sys.exit(build_site(Path(sys.argv[1]).resolve()))
