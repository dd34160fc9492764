"""What a rank writes about its threads, for `muster why` and the node's agent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

KEY = "sk-4711/sesame+open"
SCRIPT = """
import os, sys, threading
from trainer.node.rank.looks import Looks
key, begun, over = os.environ.pop("KEY"), threading.Event(), threading.Event()
name = "f_" + key.replace("-", "_").replace("/", "_").replace("+", "_")
names = {"begun": begun, "over": over}
exec(compile(f"def {name}():\\n    begun.set()\\n    over.wait()", key + ".py", "exec"), names)
thread = threading.Thread(target=names[name])
thread.start()
begun.wait()
Looks(sys.argv[1]).take({"error": "401 for https://u:" + key + "@host"})
over.set()
"""


@pytest.mark.holds("secrets-masked")
def test_no_name_of_a_function_or_a_file_shows_a_secret(tmp_path):
    path = tmp_path / "0.stacks"
    environment = {**os.environ, "KEY": KEY, "MUSTER_SECRET_NAMES": "KEY"}
    subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path)], env=environment, cwd=Path(__file__).parents[5], check=True
    )
    text = path.read_text()
    assert 'File "***.py", line 3 in f_***' in text
    assert '"error": "401 for https://u:***@host"' in text
    assert "sesame" not in text
