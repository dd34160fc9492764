"""Each `muster` line of the README, the tutorial and the how-to pages is parsed, and its options exist."""

import re
import shlex
from pathlib import Path

import click
import pytest

from deploy.commands import main
from deploy.commands.command import Context

HOME = Path(__file__).resolve().parents[3]
PAGES = [
    HOME / "README.md",
    *sorted((HOME / "docs/tutorial").glob("*.md")),
    *sorted((HOME / "docs/how-to").glob("*.md")),
]
LONGEST = {"README.md": 900, "launch.md": 600}


def lines_of(page):
    """The commands in a page's code blocks and text, as a reader types them."""
    text = page.read_text()
    blocks = [
        line for block in re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL) for line in block.splitlines()
    ]
    spans = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    for line in (*blocks, *spans):
        found = re.search(r"(?:^|\|\s|-node=1 )(muster [a-z-].*)", line)
        if found:
            yield re.sub(r"\s+#.*|\s>\S*.*", "", found[1])


TYPED = sorted({(page.name, line) for page in PAGES for line in lines_of(page)})


def test_the_pages_have_many_commands():
    assert len(TYPED) > 100


@pytest.mark.parametrize(("page", "line"), TYPED)
def test_each_command_on_a_page_is_parsed(page, line):
    words = shlex.split(line)[1:]
    if words[0] in ("--version", "--list", "--help"):
        return
    command = main.TREE.get_command(None, words[0])
    assert command, f"{page}: no command {words[0]}"
    if not words[1:]:
        return  # a page may name a command that needs words
    with Context(main.TREE, obj=words) as above:
        try:
            command.make_context(words[0], words[1:], parent=above)
        except click.UsageError as fault:
            pytest.fail(f"{page}: {line}: {fault.format_message()}")


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name != "tutorial"], ids=lambda page: page.name)
def test_a_page_is_short(page):
    assert len(page.read_text().split()) <= LONGEST.get(page.name, 450)
