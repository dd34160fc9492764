"""The site of docs/ (docs/site.py) has every page, and none of its links leads to a place that it lacks."""

import importlib
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
site = importlib.import_module("docs.site")
PAGES = {page.path: page for pages in site.list_pages().values() for page in pages}


def test_every_page_is_in_the_site_and_no_two_have_the_same_title():
    assert set(PAGES) == {file.relative_to(DOCS).as_posix() for file in DOCS.rglob("*.md")} - {"index.md"}
    titles = [page.title for page in PAGES.values()]
    assert not {title for title in titles if titles.count(title) > 1}


def test_llms_txt_lists_every_page_with_its_subject():
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
def test_a_link_that_leaves_the_pages_becomes_the_path_it_names(written, shown):
    assert site.keep_inside("page.md", written) == shown


def test_anchors_are_those_github_makes_of_headings_and_code_gets_none():
    text = site.name_headings("# T\n\n## With `--min-nodes N`\n\n```\n## no heading\n```\n")
    assert "## With `--min-nodes N` {#with---min-nodes-n}\n" in text
    assert "## no heading\n" in text


def test_a_page_without_a_heading_is_named():
    with pytest.raises(ValueError, match=r"a\.md: no heading"):
        site.read_page("a.md", "words\n")


def test_a_recording_has_each_line_at_its_time_and_escapes_markup(tmp_path):
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


def test_a_failing_command_or_too_many_lines_make_no_recording(tmp_path):
    record = importlib.import_module("docs.pictures.record")
    with pytest.raises(RuntimeError, match="ended with 3"):
        list(record.run_all(tmp_path, ["exit 3"]))
    with pytest.raises(ValueError, match="record fewer"):
        record.draw([(0.0, "", "x")] * (record.MOST_ROWS + 1))
