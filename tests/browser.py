"""A browser for tests: Debian's chromium, which knows no address but 127.0.0.1."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[1]
CHROMIUM = shutil.which("chromium")
COMMAND = "import sys; from deploy.commands import main; sys.exit(main.run(sys.argv[1:]))"
needed = pytest.mark.skipif(not CHROMIUM, reason="there is no chromium: apt-get install chromium")


@contextmanager
def chromium():
    """A browser, as long as this lasts."""
    playwright = pytest.importorskip("playwright.sync_api", reason="make installs it for tests")
    with playwright.sync_playwright() as here:
        started = here.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@contextmanager
def board_of(folder, *words, **variables):
    """`muster board` in a folder: its first line, and afterwards Ctrl-C ends it with code 0 and without a word."""
    line = [sys.executable, "-c", COMMAND, "board", "--no-open", *words]
    environment = {**os.environ, "PYTHONPATH": str(HOME), **variables}
    with subprocess.Popen(
        line, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == ""
