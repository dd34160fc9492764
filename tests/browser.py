"""A browser for tests: Debian's chromium, which reaches no address but 127.0.0.1."""

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
    """A running browser, until the end of the `with`."""
    playwright = pytest.importorskip("playwright.sync_api", reason="make installs it for tests")
    with playwright.sync_playwright() as here:
        started = here.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@contextmanager
def board_of(folder, *words, **variables):
    """Run `muster board` in a folder and yield its first line; then Ctrl-C must end it silently with code 0."""
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
