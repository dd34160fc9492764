"""docs/decisions/ has at most 40 pages and 12,000 words, all in the index; each reference leads to a page."""

import re
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
FOLDER = HOME / "docs/decisions"
PAGES = {page.name[:4]: page for page in sorted(FOLDER.glob("[0-9]*.md"))}
MOST_PAGES, MOST_WORDS = 40, 12_000
# Matches `decision 0011`, `docs/decisions/0057, 0139`, the name of a page, and links such as `decisions [0057](`.
REFERENCE = re.compile(r"[Dd]ecisions?(?:/|\s+\[?)(\d{4})((?:(?:, | and )\d{4})*)(-[\w-]+\.md)?")
PLACES = (
    "deploy",
    "trainer",
    "muster",
    "docs",
    "tests",
    "lab",
    "benchmarks",
    "gpu_check",
    "examples",
    "images",
    "rack",
)
TEXTS = {".md", ".py", ".sh", ".toml", ".yml", ".html", ".txt", ".in"}
# Texts that others wrote: recorded outputs, and malformed answers of hosts.
OTHERS = ("tests/golden/", "tests/hostile/fuzz/corpus/")


def texts():
    """Yield each of our own texts that may name a decision, after its path in the checkout."""
    files = [path for path in HOME.iterdir() if path.is_file()]
    files += [path for place in PLACES for path in (HOME / place).rglob("*")]
    for path in files:
        name = path.relative_to(HOME).as_posix()
        if (path.suffix in TEXTS or path.name in {"Makefile", "Dockerfile"}) and not name.startswith(OTHERS):
            yield name, path.read_text()


def test_there_are_at_most_40_and_each_begins_with_its_number():
    assert 0 < len(PAGES) <= MOST_PAGES, "put it into the page that it belongs to: docs/decisions/README.md"
    assert len(PAGES) == len(list(FOLDER.glob("[0-9]*.md")))
    assert not [page.name for number, page in PAGES.items() if not page.read_text().startswith(f"# {number} ")]


def test_they_can_be_read_in_an_hour():
    """Measurements and rejected alternatives are in the log, to which each page links."""
    words = {page.name: len(page.read_text().split()) for page in [FOLDER / "README.md", *PAGES.values()]}
    assert sum(words.values()) <= MOST_WORDS, words
    assert not [name for name, page in PAGES.items() if f"log.md#{name}" not in page.read_text()]


def test_the_index_has_each_page_once():
    index = (FOLDER / "README.md").read_text()
    listed = re.findall(r"^\| \[(\d{4})\]\(([\w-]+\.md)\) \| [^|]+ \| ([\d, ]*)\|$", index, re.MULTILINE)
    assert sorted(row[:2] for row in listed) == [(number, page.name) for number, page in PAGES.items()]
    went_in = [number for _, _, others in listed for number in re.findall(r"\d{4}", others)]
    assert len(went_in) == len(set(went_in)), "each went into one page"
    assert not set(went_in) & set(PAGES)


def test_each_reference_to_a_decision_leads_to_a_page():
    lost, found = [], 0
    for name, text in texts():
        for match in REFERENCE.finditer(text):
            found += 1
            first, others, words = match.groups()
            numbers = [first, *re.findall(r"\d{4}", others)]
            there = all(number in PAGES for number in numbers) and words in {None, PAGES[first].name[4:]}
            lost += [] if there else [f"{name}: {match[0]}"]
    assert found > 50
    assert not lost
