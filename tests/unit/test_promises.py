"""tests/promises.md: each promise names tests that exist, and each page, contract part and cause has a row."""

import re
from functools import cache
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
PROMISES = (HOME / "tests/promises.md").read_text()
HELD, _, UNHELD = PROMISES.partition("\n## Not held by a test")
PAGES = [*HOME.glob("*.md"), *(HOME / "docs").rglob("*.md"), HOME / "tests/promises.md"]


def rows(text):
    """The rows of a text's tables, without the table heads."""
    return [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| |")]


@cache
def headings(page):
    """The headings and anchors of a page, in the form that links use."""
    text = page.read_text()
    titles, anchors = re.findall(r"^#+ (.+)$", text, re.MULTILINE), re.findall(r'<a (?:id|name)="([^"]+)"', text)
    return set(anchors) | {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def spans(text):
    return set(re.findall(r"`([^`]+)`", text))


def test_every_row_names_tests_that_exist():
    assert len(rows(HELD)) > 150
    tests = {row: re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row) for row in rows(HELD)}
    assert not [row for row, named in tests.items() if not named]
    files = {file: (HOME / file).read_text() for held in tests.values() for file, _ in held}
    assert not [each for held in tests.values() for each in held if f"\ndef {each[1]}(" not in files[each[0]]]


def test_every_link_of_a_page_leads_to_an_existing_place():
    lacking = []
    for page in PAGES:
        for path, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text()):
            place = (page.parent / path).resolve() if path else page
            if not place.exists() or (anchor and anchor not in headings(place)):
                lacking.append(f"{page.name}: {path}#{anchor}")
    assert not lacking


def test_every_command_on_the_pages_and_every_part_of_the_contract_has_a_promise():
    """The same holds for the bold items in the README's first list, which are its main claims."""
    shown = [HOME / "README.md", *(HOME / "docs/tutorial").glob("*.md"), *(HOME / "docs/how-to").glob("*.md")]
    commands = {
        name
        for page in shown
        for name in re.findall(r"(?:^|`|srun .+?)muster ([a-z]+)", page.read_text(), re.MULTILINE)
    }
    assert len(commands) > 25
    assert not {name for name in commands if not re.search(rf"`[^`]*\b(?:fab|muster) {name}\b", HELD)}
    bold = set(re.findall(r"^- (\*\*.+?\*\*)", shown[0].read_text(), re.MULTILINE))
    assert len(bold) == 4
    assert not {words for words in bold if words not in HELD}
    pages = ("develop/contract.md", "reference/variables.md", "reference/run-folder.md")
    titles = {"the-contract-between-the-two-halves", "what-the-nodes-of-a-run-leave-each-other", "variables"}
    parts = {part for page in pages for part in headings(HOME / "docs" / page)} - titles - {"the-run-folder"}
    assert len(parts) > 20
    assert not parts - set(re.findall(r"(?:contract|variables|run-folder)\.md#([^\s)]+)\)", HELD))


def test_every_figure_has_its_command():
    named = {name for page in PAGES for name in re.findall(r"python -m benchmarks\.([a-z_]+)", page.read_text())}
    assert len(named) > 15
    assert not {name for name in named if not list((HOME / "benchmarks").glob(f"{name}*"))}


def test_every_cause_is_tested_or_listed_as_not_tested():
    """A golden output tests a cause if it names the cause's entry."""
    causes = set(re.findall(r"^### (\S+)$", (HOME / "docs/reference/causes.md").read_text(), re.MULTILINE))
    outputs = "\n".join(path.read_text() for path in (HOME / "tests/golden/outputs").glob("*.txt"))
    named = r"more:? +(?:fab|muster) explain ([a-z0-9-]+)$|^json    [a-z ]+: ([a-z0-9-]+)$"
    held = set(re.findall(named, outputs, re.MULTILINE))
    held = {one or other for one, other in held}
    _, _, section = HELD.partition("\n## Causes\n")
    held |= spans(section.partition("\n## ")[0]) & causes
    assert causes - held == spans(UNHELD) & causes


def test_each_score_in_the_readme_is_in_the_evidence():
    _, _, rest = (HOME / "README.md").read_text().partition("## Measured\n")
    scores = set(re.findall(r"\b\d+ of \d+\b", rest.partition("\n## ")[0]))
    evidence = "\n".join(file.read_text() for file in (HOME / "docs/evidence").iterdir())
    assert len(scores) > 3
    assert not {score for score in scores if not re.search(rf"\b{score}\b", evidence)}
