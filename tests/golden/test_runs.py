"""The output for runs of earlier versions: their list, page and explanation, as text and as JSON."""

import json
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
# How a run failed on rack-2, by the cause in its outcome.
ENDS = {
    "killed": "was killed by SIGKILL from outside (the kernel was not out of memory) at step 20",
    "host-out-of-memory": "was killed at step 20: its host ran out of memory",
    "container-out-of-memory": "was killed at step 20: its container ran out of memory",
    "gpu-out-of-memory": "ended with code 1: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "exception": "ended with code 1: KeyError: 'image'",
    "left-early": "left at step 20 while rank 0 goes on",
    "stopped": "is stopped by SIGSTOP since step 20",
    "locked-up": "was stuck in train.py:41 for 38 s, and its node ended it at step 20",
    "mismatched-collectives": "called broadcast, and rank 0 all_reduce",
    "node-lost": "is lost: no sign of life for 60 s",
    "cut-off": "does not reach rack-1",
    "disk-full": "ended with code 1: OSError: [Errno 28] No space left on device",
    "disk-silent": "waits for a disk that does not answer: /data, nfs4",
    "trained-alone": "trained alone: no process group joined it to the others",
    "slow": "holds up all others: its steps take 5 times as long",
    "corrupt-weights": "has different weights from the other replicas since step 20",
    "clock": "has a clock that jumped by 3600 s",
    "gpu-lost": "ended with code 1: CUDA error: device-side assert triggered",
    "set-up": "ended with code 1: ModuleNotFoundError: No module named 'yaml'",
    "ended-from-outside": "was ended by SIGTERM from outside",
    "not-known": "ended with code 1",
}


class Text(HTMLParser):
    """The text of a page, without its style and scripts."""

    def __init__(self, source):
        super().__init__()
        self.words, self._hidden = [], 0
        self.feed(source)

    def handle_starttag(self, name, attributes):
        self._hidden += name in ("style", "script", "template")

    def handle_endtag(self, name):
        self._hidden -= name in ("style", "script", "template")

    def handle_data(self, data):
        if data.strip() and not self._hidden:
            self.words.append(" ".join(data.split()))


@pytest.fixture
def checkout(tmp_path):
    """A copy of the checkout, with the recorded runs in its runs/ folder."""
    for name in ("deploy", "muster", "trainer", "fabfile.py", "pyproject.toml", "images"):
        (tmp_path / name).symlink_to(HOME / name)
    for name in RUNS:
        shutil.copytree(HOME / "tests/golden" / name, tmp_path / "runs" / name)
    return tmp_path


def said(checkout, *words):
    """What a command prints, with its exit code; the folder where it ran is shown as `.`."""
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


def test_each_cause_of_an_end_is_explained(checkout):
    path = checkout / "runs/run-hosts/outcome.json"
    whole, blocks = json.loads(path.read_text()), []
    for cause, words in ENDS.items():
        end = {"verdict": "failed", "code": 1, "node": "rack-2", "rank": 1, "cause": cause}
        path.write_text(json.dumps({**whole, **end, "message": f"rack-2 (rank 1) {words}"}))
        blocks += [f"== {cause}", said(checkout, "explain", "run-hosts")]
    hold("ends.txt", "\n".join(blocks))


def test_the_text_of_the_pages_of_recorded_runs_is_unchanged(checkout):
    blocks = []
    for name in RUNS:
        blocks.append(said(checkout, "report", "--run", name))
        page = (checkout / "runs" / name / "report.html").read_text()
        blocks += Text(page).words
    hold("pages.txt", "\n".join(blocks))


def test_the_same_words_are_printed_without_colours(checkout, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    colourful = said(checkout, "explain", "nowhere")
    monkeypatch.setenv("NO_COLOR", "1")
    plain = said(checkout, "explain", "nowhere")
    assert re.search(r"\x1b\[[\d;]*3\dm", colourful)
    assert not re.search(r"\x1b\[[\d;]*3\dm", plain)
    assert re.sub(r"\x1b\[[\d;]*m", "", colourful) == re.sub(r"\x1b\[[\d;]*m", "", plain)
