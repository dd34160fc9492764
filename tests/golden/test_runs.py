"""What is shown of the runs that earlier versions left: their list, their page, an explanation, as text and as JSON."""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.golden.held import hold

HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
RUNS = ("run-v1", "run-v2", "run-hosts")


class Text(HTMLParser):
    """The words of a page, without its style and scripts."""

    def __init__(self, source):
        super().__init__()
        self.words, self._hidden = [], 0
        self.feed(source)

    def handle_starttag(self, name, attributes):
        self._hidden += name in ("style", "script")

    def handle_endtag(self, name):
        self._hidden -= name in ("style", "script")

    def handle_data(self, data):
        if data.strip() and not self._hidden:
            self.words.append(" ".join(data.split()))


@pytest.fixture
def checkout(tmp_path):
    """A copy of the checkout, with the recorded runs in its folder of runs."""
    for name in ("deploy", "muster", "trainer", "fabfile.py", "pyproject.toml", "images"):
        (tmp_path / name).symlink_to(HOME / name)
    for name in RUNS:
        shutil.copytree(HOME / "tests/golden" / name, tmp_path / "runs" / name)
    return tmp_path


def said(checkout, *words):
    """What a command prints, with its code; of where it ran, `.` alone."""
    known = {**os.environ, "TZ": "UTC", "COLUMNS": "120", "XDG_STATE_HOME": f"{checkout}/state"}
    done = subprocess.run([FAB, *words], cwd=checkout, env=known, capture_output=True, text=True, timeout=120)
    text = f"{done.stdout}{done.stderr}".replace(f"{checkout}/", "./").replace(str(HOME), ".")
    return "\n".join([f"== fab {' '.join(words)}: {done.returncode}", text])


def test_recorded_runs_are_listed_explained_and_compared(checkout):
    commands = [
        ("runs",),
        ("runs", "--json"),
        *((word, name, *json) for word in ("explain",) for name in RUNS for json in ((), ("--json",))),
        ("compare", "run-v1", "run-v2"),
        ("compare", "run-v1", "run-v2", "--json"),
        ("logs", "--run", "run-v1"),
    ]
    hold("runs.txt", "\n".join(said(checkout, *words) for words in commands))


def test_pages_of_recorded_runs_have_their_words(checkout):
    blocks = []
    for name in RUNS:
        blocks.append(said(checkout, "report", "--run", name))
        page = (checkout / "runs" / name / "report.html").read_text()
        blocks += Text(page).words
    hold("pages.txt", "\n".join(blocks))


def test_without_colours_the_same_words_are_there(checkout, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    colourful = said(checkout, "explain", "nowhere")
    monkeypatch.setenv("NO_COLOR", "1")
    plain = said(checkout, "explain", "nowhere")
    assert re.search(r"\x1b\[[\d;]*3\dm", colourful)
    assert not re.search(r"\x1b\[[\d;]*3\dm", plain)
    assert re.sub(r"\x1b\[[\d;]*m", "", colourful) == re.sub(r"\x1b\[[\d;]*m", "", plain)
