"""The site of docs/ (docs/site.py): every page is in it, and nothing in it leads to a place that it does not have."""

import importlib
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
site = importlib.import_module("docs.site")
PAGES = {page.path: page for pages in site.list_pages().values() for page in pages}


def test_every_page_is_in_the_site_and_its_title_stands_once():
    assert set(PAGES) == {file.relative_to(DOCS).as_posix() for file in DOCS.rglob("*.md")} - {"index.md"}
    titles = [page.title for page in PAGES.values()]
    assert not {title for title in titles if titles.count(title) > 1}


def test_llms_txt_names_every_page_with_what_it_is_about():
    text = site.index_for_programs(site.list_pages(), {"name": "Muster", "about": "It trains."})
    assert text.startswith("# Muster\n\n> It trains.\n")
    listed = dict(re.findall(r"^- \[[^]]+\]\(([^)]+)\): (.*)$", text, re.MULTILINE))
    assert set(listed) == set(PAGES)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("[a](index.md)", "[a](index.md)"),
        ("[a](https://x.invalid/)", "[a](https://x.invalid/)"),
        ("[a](#below)", "[a](#below)"),
        ("[Muster](../README.md#quick-start)", "[Muster](index.md)"),
        ("[the loop](../examples/ddp.py)", "the loop (`examples/ddp.py`)"),
        ("[examples/ddp.py](../examples/ddp.py)", "examples/ddp.py"),
        ("![a picture](pictures/view.svg)", "![a picture](pictures/view.svg)"),
    ],
)
def test_a_link_that_leaves_the_pages_is_the_path_that_it_names(written, shown):
    assert site.keep_inside("page.md", written) == shown


def test_an_anchor_is_what_github_makes_of_a_heading_and_code_has_none():
    text = site.name_headings("# T\n\n## With `--min-nodes N`\n\n```\n## no heading\n```\n")
    assert "## With `--min-nodes N` {#with---min-nodes-n}\n" in text
    assert "## no heading\n" in text


def test_a_page_without_a_heading_is_named():
    with pytest.raises(ValueError, match=r"a\.md: no heading"):
        site.read_page("a.md", "words\n")


def test_a_recording_has_each_line_at_its_time_and_nothing_of_it_is_markup(tmp_path):
    record = importlib.import_module("docs.pictures.record")
    lines = list(record.run_all(tmp_path, ["echo '<b>'", "sleep 0.01; printf 'rank 1 was killed\\n'"]))
    assert [(kind, text) for _, kind, text in lines] == [
        ("typed", "$ echo '<b>'"), ("", "<b>"),
        ("typed", "$ sleep 0.01; printf 'rank 1 was killed\\n'"), ("bad", "rank 1 was killed"),
    ]  # fmt: skip
    assert [at for at, _, _ in lines] == sorted(at for at, _, _ in lines)
    picture = record.draw(lines)
    assert "&lt;b&gt;" in picture
    assert "<b>" not in picture
    assert picture.count("<text ") == 4


def test_a_recording_of_a_command_that_fails_or_of_too_many_lines_is_none(tmp_path):
    record = importlib.import_module("docs.pictures.record")
    with pytest.raises(RuntimeError, match="ended with 3"):
        list(record.run_all(tmp_path, ["exit 3"]))
    with pytest.raises(ValueError, match="record fewer"):
        record.draw([(0.0, "", "x")] * (record.MOST_ROWS + 1))
