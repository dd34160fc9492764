"""`muster docs` shows the pages in a terminal, by their names."""

import io

import pytest
from rich.console import Console as RichConsole

from deploy.commands.look import docs
from deploy.core.errors import DeployError, UsageError
from deploy.job.options import Options
from deploy.report import pages
from deploy.report.console import Console


def said(*words, terminal=False):
    out = io.StringIO()
    console = Console(
        out=RichConsole(file=out, width=100, force_terminal=terminal), err=RichConsole(file=io.StringIO())
    )
    assert docs.work(Options(), console, words) == 0
    return out.getvalue()


def test_every_page_is_listed_with_its_title():
    listed = said()
    for paths in pages.find_pages().values():
        for path in paths:
            assert f"  {path.stem} " in listed
    assert "Resume a run" in listed


def test_no_two_pages_have_the_same_name():
    names = [path.stem for paths in pages.find_pages().values() for path in paths]
    assert len(set(names)) == len(names)


def test_every_page_is_printed_without_relative_links():
    for paths in pages.find_pages().values():
        for path in paths:
            page = said(path.stem)
            assert page.startswith("# ")
            assert "](" not in page.replace("](https:", "")
            assert "<a id" not in page


def test_a_link_to_a_page_becomes_the_command_that_prints_it():
    named = {"resume": None}
    text = '[a](resume.md) [b](../how-to/resume.md#x) [c](../security.md#y) [d](https://x.invalid)\n<a id="z"></a>\n'
    shown = pages.plain_links(text, named)
    assert shown == "a (`muster docs resume`) b (`muster docs resume`) c d (https://x.invalid)\n"


@pytest.mark.parametrize("typed", [("it", "hangs"), ("it-hangs.md",), ("docs/how-to/it-hangs.md",), ("It-Hangs",)])
def test_a_page_is_found_by_what_users_type(typed):
    assert said(*typed).startswith("# It hangs\n")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("resumee", "resume"), ("jump", "users-ports-jump-hosts"), ("wandb", "secrets-and-wandb"),
        ("secrets", "secrets-and-wandb"), ("gpus", "choose-gpus-and-wait"), ("proxy", "offline-and-proxies"),
        ("dockerfile", "my-own-image"), ("conda", "conda-pip-uv"), ("nfs", "data-on-nfs-or-host-disks"),
    ],
)  # fmt: skip
def test_for_another_word_the_likely_page_is_named(typed, meant):
    with pytest.raises(UsageError) as fault:
        said(typed)
    assert fault.value.hint == f"muster docs {meant}"


def test_a_terminal_gets_headings_and_tables_laid_out():
    page = said("results-home", terminal=True)
    assert "| the script writes into |" not in page
    assert "the script writes into" in page


def test_missing_pages_are_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(pages, "_ABOVE", tmp_path)
    with pytest.raises(DeployError, match="not installed with the program"):
        said()
