"""A command on this machine ends by its timeout, together with everything that it started."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from deploy.core.errors import DeployError
from deploy.send.packages import places
from deploy.send.packages.local_runner import LocalRunner
from lab.waiting import alive, until

SLOW = ("sh", "-c", "echo asks; sleep 60; echo too late", "list-packages")


@pytest.mark.long
@pytest.mark.parametrize("first", ["", "exec >&-;", "setsid sleep 40 &", "yes; ", "setsid sleep 40 & exit;"])
def test_a_command_whose_child_hangs_is_ended_at_its_timeout(first):
    """As when a script runs `docker image inspect` and the engine does not answer."""
    began = time.monotonic()
    with pytest.raises(DeployError, match=r"`list-packages` has not ended after 0.5 s"):
        LocalRunner().run((*SLOW[:2], first + SLOW[2], SLOW[3]), timeout_s=0.5, check=False)
    assert time.monotonic() - began < 30


def test_each_line_of_a_command_arrives_whole_even_one_without_a_newline():
    heard = []
    code = "print('x' * 200_000); print(); print('{1', end='')"
    done = LocalRunner().run((sys.executable, "-c", code), on_line=heard.append, timeout_s=None)
    assert heard == ["x" * 200_000, "", "{1"]
    assert done.out == "x" * 4000 + "\n"


def test_a_background_process_that_a_command_leaves_on_purpose_continues(tmp_path):
    LocalRunner().run(("sh", "-c", f"(sleep 1; touch {tmp_path}/done) >/dev/null 2>&1 &"))
    until((tmp_path / "done").exists, "what goes on")


def test_no_command_continues_after_the_program_has_ended(tmp_path):
    started = tmp_path / "started"
    program = f"""
from pathlib import Path
from deploy.send.background import BackgroundTask
from deploy.send.packages.local_runner import LocalRunner
from lab.waiting import alive, until
BackgroundTask(lambda: LocalRunner().run(("sh", "-c", "echo $$ > {started}; exec sleep 600")))
started = Path({str(started)!r})
until(lambda: started.exists() and started.read_text(), "the command's process id")
"""
    subprocess.run([sys.executable, "-c", program], timeout=30, check=True)
    until(lambda: not alive(int(started.read_text())), "the command's end", 30)


def test_a_python_that_prints_warnings_at_each_start_keeps_its_base(tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "warning of process $$" >&2\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    place = places.ProcessPlace("here", str(python), tmp_path, tmp_path)
    assert place.look().base == place.look().base


def test_a_python_that_does_not_answer_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "_LOOK_S", 0.5)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nsleep 60\n")
    python.chmod(0o755)
    with pytest.raises(DeployError, match=r"python` has not ended after 0.5 s"):
        places.ProcessPlace("here", str(python), tmp_path, tmp_path).look()
